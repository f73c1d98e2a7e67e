//! `--eval-subprocess`: reads requests from standard input, answers on standard output.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::thread;

use gradient_domain::StorePath;
use gradient_evalcache::{CachedTree, EvalCache};
use gradient_ipc::codec::{self, EVAL_IPC_VERSION, Message};
use gradient_ipc::fingerprint::{NixIdentity, fingerprint};
use gradient_ipc::marks::Marks;
use gradient_ipc::message::{
    CacheFile, Failure, FetchInput, FetchOk, Fingerprint, FingerprintOk, List, Plan, Request,
    Response, Source, Start, Started, bounded,
};
use gradient_ipc::tree::TreeError;
use gradient_ipc::walker;

use crate::evaluator::Evaluator;
use crate::library::Nix;
use crate::process;
use crate::stats::Meter;
use crate::tree::SourceTree;
use crate::wire::Wire;

/// Deep recursion in Nix code is recursion on the stack. This is address space, not memory.
const STACK_SIZE: usize = 256 * 1024 * 1024;
/// Stack of the thread that tells statistics.
const TICKER_STACK_SIZE: usize = 256 * 1024;

/// Exit codes: the parent stopped talking, the pipes failed, the evaluator thread panicked.
const EXIT_DONE: i32 = 0;
const EXIT_PIPES: i32 = 2;
const EXIT_PANIC: i32 = 101;

/// The whole life of the subprocess. Nix is initialised and used on one thread with a large stack.
pub fn run() -> ! {
    process::subordinate();
    let Ok((input, output)) = process::take_over_stdio() else { process::exit(EXIT_PIPES) };
    let wire = Wire::new(output);
    let ticker = wire.clone();
    let ticking = thread::Builder::new().name("ticker".to_owned()).stack_size(TICKER_STACK_SIZE);
    if ticking.spawn(move || ticker.tick()).is_err() {
        process::exit(EXIT_PIPES);
    }
    let evaluator = thread::Builder::new()
        .name("evaluator".to_owned())
        .stack_size(STACK_SIZE)
        .spawn(move || Child { input, wire, state: State::Fresh }.serve());
    match evaluator.map(thread::JoinHandle::join) {
        Ok(Ok(code)) => process::exit(code),
        Ok(Err(_panic)) => process::exit(EXIT_PANIC),
        Err(_spawn) => process::exit(EXIT_PIPES),
    }
}

/// What is loaded.
enum State {
    /// Nothing yet.
    Fresh,
    /// Nix could not be loaded, for this reason.
    Broken(String),
    /// Ready, with the tree of the last request kept open.
    Ready {
        evaluator: &'static Evaluator,
        warm: Option<Box<(Source, CachedTree<SourceTree>)>>,
        marks: Marks,
    },
    /// Ready to fetch, and for nothing else: the environment names somebody's key.
    Fetching { evaluator: &'static Evaluator },
}

struct Child {
    input: File,
    wire: Wire,
    state: State,
}

impl Child {
    /// Answers requests until the parent is done. Gives the exit code.
    fn serve(mut self) -> i32 {
        if self.wire.greet(EVAL_IPC_VERSION).is_err() {
            return EXIT_PIPES;
        }
        loop {
            let payload = match codec::read_payload(&mut self.input) {
                Ok(Some(payload)) => payload,
                Ok(None) => return EXIT_DONE,
                Err(_) => return EXIT_PIPES,
            };
            self.wire.begin(Meter::start(self.nix()));
            let response = match Request::from_payload(&payload) {
                Ok(Request::Shutdown) => return EXIT_DONE,
                // Nothing waits for a build here; a late answer is no reason to fail.
                Ok(Request::BuildDone(_)) => {
                    eprintln!("answer to an import that nothing waits for, ignored");
                    self.wire.forget();
                    continue;
                }
                Ok(request) => self.answer(request).unwrap_or_else(|error| failure(error.message)),
                Err(error) => failure(format!("malformed request: {error}")),
            };
            if self.wire.answer(&response).is_err() {
                return EXIT_PIPES;
            }
        }
    }

    fn nix(&self) -> Option<&'static Nix> {
        match &self.state {
            State::Ready { evaluator, .. } | State::Fetching { evaluator } => Some(evaluator.nix()),
            State::Fresh | State::Broken(_) => None,
        }
    }

    fn answer(&mut self, request: Request) -> Result<Response, TreeError> {
        Ok(match request {
            Request::Start(start) => self.start(&start),
            Request::Ping => Response::Pong,
            Request::Plan(Plan { source, patterns, recursion }) => {
                let tree = self.tree(source)?;
                let planned = walker::plan(tree, &patterns, recursion);
                tree.flush();
                whole(tree)?;
                Response::PlanOk(planned?)
            }
            Request::List(List { source, shard, excludes }) => {
                let excludes: BTreeSet<_> = excludes.into_iter().collect();
                let tree = self.tree(source)?;
                let listed = walker::list(tree, &shard, &excludes);
                tree.flush();
                whole(tree)?;
                Response::ListOk(listed?)
            }
            Request::Fingerprint(of) => {
                Response::FingerprintOk(FingerprintOk { fingerprint: self.fingerprint(&of)? })
            }
            Request::Checkpoint(cache) => checkpoint(&cache)?,
            Request::FetchInput(input) => {
                Response::FetchOk(FetchOk { store_path: self.fetch(&input)? })
            }
            Request::BuildDone(_) | Request::Shutdown => failure("not a question".to_owned()),
        })
    }

    fn start(&mut self, start: &Start) -> Response {
        match self.state {
            State::Fresh | State::Broken(_) => {}
            State::Ready { .. } | State::Fetching { .. } => {
                return failure("evaluator already initialized".to_owned());
            }
        }
        let marks = Marks::new(&start.nonce);
        self.wire.mark_with(marks.clone());
        let opened = Nix::load(start.nix_lib_dir.as_deref().map(Path::new))
            .map_err(|error| error.to_string())
            .and_then(|nix| {
                let opened = Evaluator::open(nix, &start.store_uri, start.show_trace);
                opened.map_err(|error| error.to_string())
            });
        match opened {
            Ok(evaluator) => {
                self.state = State::Ready { evaluator, warm: None, marks };
                let nix_version = evaluator.nix().version().to_owned();
                Response::Started(Started { nix_version })
            }
            Err(message) => {
                self.state = State::Broken(message.clone());
                failure(message)
            }
        }
    }

    fn evaluator(&self) -> Result<&'static Evaluator, TreeError> {
        let not = |reason: &str| TreeError::passing(format!("evaluator not initialized{reason}"));
        match &self.state {
            State::Fresh => Err(not("")),
            State::Broken(reason) => Err(not(&format!(": {reason}"))),
            State::Ready { evaluator, .. } | State::Fetching { evaluator } => Ok(evaluator),
        }
    }

    /// The tree of this source: the one still open, or a new one in its place.
    fn tree(&mut self, source: Source) -> Result<&mut CachedTree<SourceTree>, TreeError> {
        let evaluator = self.evaluator()?;
        let State::Ready { warm, marks, .. } = &mut self.state else {
            return Err(TreeError::passing("this evaluator only fetches"));
        };
        if warm.as_ref().is_none_or(|warm| warm.0 != source) {
            *warm = None;
            let cache = source.cache.as_ref().and_then(open_cache);
            // A function is applied to what the fragment leads to, so that is found before it.
            let (fragment, of) = match source.select {
                Some(_) => (Vec::new(), source.clone()),
                None => {
                    let of = Source { fragment: Vec::new(), ..source.clone() };
                    (source.fragment.clone(), of)
                }
            };
            let marks = marks.clone();
            let open = move || SourceTree::open(evaluator, &of, marks.clone());
            let tree = CachedTree::new(cache, open, |path| evaluator.has(path)).below(fragment);
            *warm = Some(Box::new((source, tree)));
        }
        match warm {
            Some(warm) => Ok(&mut warm.1),
            None => Err(TreeError::passing("evaluator not initialized")),
        }
    }

    fn fingerprint(&self, of: &Fingerprint) -> Result<Option<String>, TreeError> {
        let evaluator = self.evaluator()?;
        let (version, store_dir) = (evaluator.nix().version(), evaluator.store_dir());
        let config = std::env::var("NIX_CONFIG").unwrap_or_default();
        let nix = NixIdentity { version, store_dir, config: &config };
        Ok(fingerprint(&of.reference, &of.locks, nix))
    }

    fn fetch(&mut self, input: &FetchInput) -> Result<StorePath, TreeError> {
        let evaluator = self.evaluator()?;
        if let Some(command) = &input.git_ssh_command {
            process::set_git_ssh_command(command);
            self.state = State::Fetching { evaluator };
        }
        let path = evaluator.fetch_tree(&input.locked)?.string()?;
        let path = path.ok_or_else(|| TreeError::passing("the input has no path"))?;
        path.parse().map_err(|error| TreeError::passing(format!("the input's path: {error}")))
    }
}

/// Refuses what was found of a tree that could not be opened when it was needed.
fn whole(tree: &CachedTree<SourceTree>) -> Result<(), TreeError> {
    tree.broken().map_or(Ok(()), |error| Err(error.clone()))
}

/// The cache of a source. One that cannot be opened is worth a note, not an error.
fn open_cache(file: &CacheFile) -> Option<EvalCache> {
    match EvalCache::open(Path::new(&file.path), &file.fingerprint) {
        Ok(cache) => Some(cache),
        Err(error) => {
            eprintln!("note: the evaluation cache is not used: {error}");
            None
        }
    }
}

fn checkpoint(file: &CacheFile) -> Result<Response, TreeError> {
    let opened = EvalCache::open_existing(Path::new(&file.path), &file.fingerprint);
    let done = opened.and_then(|cache| cache.map_or(Ok(()), |cache| cache.checkpoint()));
    done.map_err(|error| TreeError::passing(error.to_string()))?;
    Ok(Response::CheckpointOk)
}

fn failure(message: String) -> Response {
    Response::Err(Failure { message: bounded(message) })
}
