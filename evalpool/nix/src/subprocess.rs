//! `--eval-subprocess`: reads requests from standard input, answers on standard output.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;

use gradient_ipc::codec::{self, EVAL_IPC_VERSION, Message};
use gradient_ipc::message::bounded;
use gradient_ipc::message::{Failure, List, Plan, Request, Response, STDERR_MARK, Start, Started};
use gradient_ipc::walker;

use crate::evaluator::Evaluator;
use crate::library::Nix;
use crate::process;
use crate::stats::Meter;
use crate::tree::FlakeTree;

/// Deep recursion in Nix code is recursion on the stack. This is address space, not memory.
const STACK_SIZE: usize = 256 * 1024 * 1024;

/// Exit codes: the parent stopped talking, the pipes failed, the evaluator thread panicked.
const EXIT_DONE: i32 = 0;
const EXIT_PIPES: i32 = 2;
const EXIT_PANIC: i32 = 101;

/// The whole life of the subprocess. Nix is initialised and used on one thread with a large stack.
pub fn run() -> ! {
    process::subordinate();
    let Ok((input, output)) = process::take_over_stdio() else { process::exit(EXIT_PIPES) };
    let evaluator = thread::Builder::new()
        .name("evaluator".to_owned())
        .stack_size(STACK_SIZE)
        .spawn(move || Child { input, output, requests: 0, state: State::Fresh }.serve());
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
    /// Ready, with the flake of the last request kept open.
    Ready { evaluator: &'static Evaluator, warm: Option<(String, FlakeTree)> },
}

struct Child {
    input: File,
    output: File,
    requests: u64,
    state: State,
}

impl Child {
    /// Answers requests until the parent is done. Gives the exit code.
    fn serve(mut self) -> i32 {
        if self.output.write_all(&[EVAL_IPC_VERSION]).is_err() {
            return EXIT_PIPES;
        }
        loop {
            let payload = match codec::read_payload(&mut self.input) {
                Ok(Some(payload)) => payload,
                Ok(None) => return EXIT_DONE,
                Err(_) => return EXIT_PIPES,
            };
            self.requests += 1;
            let meter = Meter::start(self.nix());
            let response = match Request::from_payload(&payload) {
                Ok(Request::Shutdown) => return EXIT_DONE,
                // Nothing waits for a build here; a late answer is no reason to fail.
                Ok(Request::BuildDone(_)) => {
                    eprintln!("answer to an import that nothing waits for, ignored");
                    continue;
                }
                Ok(request) => self.answer(request),
                Err(error) => failure(format!("malformed request: {error}")),
            };
            if self.send(&response, &meter).is_err() {
                return EXIT_PIPES;
            }
        }
    }

    fn nix(&self) -> Option<&'static Nix> {
        match &self.state {
            State::Ready { evaluator, .. } => Some(evaluator.nix()),
            State::Fresh | State::Broken(_) => None,
        }
    }

    /// Ends the request on standard error, then writes statistics and the response.
    fn send(&mut self, response: &Response, meter: &Meter) -> Result<(), codec::FrameError> {
        let mark = format!("\n{STDERR_MARK}{}\n", self.requests);
        std::io::stderr().write_all(mark.as_bytes())?;
        if matches!(response, Response::PlanOk(_) | Response::ListOk(_)) {
            let stats = Response::Stats(meter.read(self.nix()));
            codec::write_message(&mut self.output, &stats)?;
        }
        match codec::write_message(&mut self.output, response) {
            Err(error @ codec::FrameError::TooLong { .. }) => {
                codec::write_message(&mut self.output, &failure(error.to_string()))
            }
            done => done,
        }
    }

    fn answer(&mut self, request: Request) -> Response {
        match request {
            Request::Start(start) => self.start(&start),
            Request::Ping => Response::Pong,
            Request::Plan(Plan { flake, patterns }) => {
                match self.tree(&flake).and_then(|tree| walker::plan(tree, &patterns)) {
                    Ok(planned) => Response::PlanOk(planned),
                    Err(message) => failure(message),
                }
            }
            Request::List(List { flake, shard, excludes }) => {
                let excludes: BTreeSet<_> = excludes.into_iter().collect();
                match self.tree(&flake).and_then(|tree| walker::list(tree, &shard, &excludes)) {
                    Ok(listed) => Response::ListOk(listed),
                    Err(message) => failure(message),
                }
            }
            Request::BuildDone(_) | Request::Shutdown => failure("not a question".to_owned()),
        }
    }

    fn start(&mut self, start: &Start) -> Response {
        if let State::Ready { .. } = self.state {
            return failure("evaluator already initialized".to_owned());
        }
        let opened = Nix::load(start.nix_lib_dir.as_deref().map(Path::new))
            .map_err(|error| error.to_string())
            .and_then(|nix| {
                Evaluator::open(nix, &start.store_uri).map_err(|error| error.to_string())
            });
        match opened {
            Ok(evaluator) => {
                self.state = State::Ready { evaluator, warm: None };
                let nix_version = evaluator.nix().version().to_owned();
                Response::Started(Started { nix_version })
            }
            Err(message) => {
                self.state = State::Broken(message.clone());
                failure(message)
            }
        }
    }

    /// The tree of this flake: the one still open, or a new one in its place.
    fn tree(&mut self, flake: &str) -> Result<&mut FlakeTree, String> {
        match &mut self.state {
            State::Fresh => Err("evaluator not initialized".to_owned()),
            State::Broken(reason) => Err(format!("evaluator not initialized: {reason}")),
            State::Ready { evaluator, warm } => {
                if warm.as_ref().is_none_or(|(open, _)| open != flake) {
                    *warm = None;
                    let outputs = evaluator.flake_outputs(flake).map_err(|e| e.to_string())?;
                    if !outputs.is_set() {
                        let words = outputs.type_words();
                        return Err(format!("the outputs of the flake are {words}, not a set"));
                    }
                    *warm = Some((flake.to_owned(), FlakeTree { outputs }));
                }
                match warm {
                    Some((_, tree)) => Ok(tree),
                    None => Err("evaluator not initialized".to_owned()),
                }
            }
        }
    }
}

fn failure(message: String) -> Response {
    Response::Err(Failure { message: bounded(message) })
}
