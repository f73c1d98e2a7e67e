//! The hidden `--eval-driver <file>`: one JSON request per line through a real subprocess, one JSON
//! response per line out. For tests that want to see both sides of the wire.
//!
//! Nothing is evaluated but what is locked. Any other reference goes through the fetch step first, as it
//! does in a worker; `lock` shows what that made of it.

mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use gradient_domain::flake::{LockPolicy, is_locked};
use gradient_domain::pattern::PatternSet;
use gradient_evalcache::Folder;
use gradient_ipc::discovery::Crash;
use gradient_ipc::message::{
    CacheFile, FetchInput, Fingerprint, List, Plan, Request, Response, Source,
};
use gradient_ipc::shard::{Recursion, Shard};
use serde_json::Value;

use crate::pool::Pool;
use crate::settings::PoolSettings;
use crate::transport::{Answer, SpawnError, Transport};
use wire::{Line, failure, lock_line, response_line};

/// Why the driver stopped early.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The requests cannot be read, or the responses not written.
    #[error("the driver's files fail")]
    Io(#[from] io::Error),
    /// A line is no request.
    #[error("line {line} is no request")]
    Request {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// There is no subprocess.
    #[error("no evaluator")]
    Spawn(#[from] SpawnError),
}

/// What the fetch step is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Any flake reference.
    pub repository: String,
    /// Other flakes in the place of inputs.
    pub overrides: Vec<(String, String)>,
    /// Whether an incomplete lock file is refused.
    pub is_strict: bool,
}

impl Asked {
    /// What an incomplete lock file means.
    #[must_use]
    pub fn lock_policy(&self) -> LockPolicy {
        match self.is_strict {
            true => LockPolicy::Strict,
            false => LockPolicy::Complete,
        }
    }
}

/// A flake that can be evaluated.
#[derive(Clone)]
pub struct Locked {
    /// What to evaluate, locked.
    pub url: String,
    /// Its complete lock file; empty if nobody looked.
    pub locks: String,
    /// Inputs that its own lock file does not lock, by path.
    pub not_locked: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// What to do about an error of the evaluation, where the fetch step knows.
    pub hint: Hint,
}

/// From an error to what to do about it.
pub type Hint = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Locked {
    /// A reference that needs no fetch step.
    #[must_use]
    pub fn as_it_is(url: String) -> Self {
        let hint: Hint = Arc::new(|_| None);
        Self { url, locks: String::new(), not_locked: Vec::new(), warnings: Vec::new(), hint }
    }
}

impl fmt::Debug for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Runs the requests of a file and prints the responses. `lock` is the fetch step.
///
/// # Errors
/// If a line is no request, or there is no subprocess to ask. A call that fails is a response.
pub async fn run(
    file: &Path,
    settings: PoolSettings,
    lock: impl AsyncFn(&Asked) -> Result<Locked, String>,
) -> Result<(), DriverError> {
    let requests = std::fs::read_to_string(file)?;
    run_lines(&requests, settings, &mut io::stdout().lock(), lock).await
}

/// As [`run`], from text and to any writer.
///
/// # Errors
/// As [`run`].
pub async fn run_lines(
    requests: &str,
    settings: PoolSettings,
    output: &mut impl Write,
    lock: impl AsyncFn(&Asked) -> Result<Locked, String>,
) -> Result<(), DriverError> {
    let mut driver =
        Driver { pool: Pool::new(settings)?, child: None, lock, locked: BTreeMap::new() };
    for (n, text) in requests.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line: Line = serde_json::from_str(text)
            .map_err(|source| DriverError::Request { line: n + 1, source })?;
        if let Some(response) = driver.line(line).await? {
            writeln!(output, "{response}")?;
        }
    }
    driver.shutdown().await;
    Ok(())
}

/// The one subprocess that everything is asked.
struct Driver<L> {
    pool: Pool,
    child: Option<Transport>,
    /// The fetch step.
    lock: L,
    /// What it made of references: one file of requests is about one state of them.
    locked: BTreeMap<Asked, Locked>,
}

impl<L: AsyncFn(&Asked) -> Result<Locked, String>> Driver<L> {
    /// The response to a line; none to a shutdown.
    async fn line(&mut self, line: Line) -> Result<Option<Value>, SpawnError> {
        let response = match line {
            Line::Lock { repository, input_overrides: overrides, strict_lock: is_strict } => {
                let asked = Asked { repository, overrides, is_strict };
                self.fetched(asked).await.map(|locked| lock_line(&locked))
            }
            Line::Plan { repository, wildcards, input_overrides } => {
                match self.flake(repository, input_overrides, wildcards).await {
                    Ok((locked, set)) => Ok(self.plan(&locked, set).await?),
                    Err(message) => Err(message),
                }
            }
            Line::List { repository, wildcards, only, input_overrides } => {
                match self.flake(repository, input_overrides, wildcards).await {
                    Ok((locked, set)) => Ok(self.list(&locked, set, only).await?),
                    Err(message) => Err(message),
                }
            }
            Line::Fingerprint { repository, input_overrides } => {
                match self.locked(repository, input_overrides).await {
                    Ok(locked) => {
                        let of = Request::Fingerprint(fingerprint_of(&locked));
                        Ok(self.ask(of, Some(&locked)).await?)
                    }
                    Err(message) => Err(message),
                }
            }
            Line::Checkpoint { repository, input_overrides } => {
                match self.locked(repository, input_overrides).await {
                    Ok(locked) => match self.cache_of(&locked).await? {
                        Some(cache) => Ok(self.ask(Request::Checkpoint(cache), None).await?),
                        None => Err("there is no evaluation cache of this flake".to_owned()),
                    },
                    Err(message) => Err(message),
                }
            }
            Line::FetchInput { locked, git_ssh_command } => {
                Ok(self.fetch_input(FetchInput { locked, git_ssh_command }).await?)
            }
            Line::Shutdown => {
                self.shutdown().await;
                return Ok(None);
            }
        };
        Ok(Some(response.unwrap_or_else(|message| failure(&message))))
    }

    async fn fetch_input(&mut self, input: FetchInput) -> Result<Value, SpawnError> {
        let has_key = input.git_ssh_command.is_some();
        if has_key {
            // Nor does one that has evaluated learn of a key.
            self.shutdown().await;
        }
        let response = self.ask(Request::FetchInput(input), None).await?;
        if has_key {
            // Whoever was told of a key evaluates nothing.
            self.shutdown().await;
        }
        Ok(response)
    }

    /// What is evaluated, and what of it.
    async fn flake(
        &mut self,
        repository: String,
        overrides: Vec<(String, String)>,
        wildcards: Vec<String>,
    ) -> Result<(Locked, PatternSet), String> {
        let set = PatternSet::from_texts(wildcards).map_err(|error| error.to_string())?;
        Ok((self.locked(repository, overrides).await?, set))
    }

    /// A repository as it was given if it is locked, or else as the fetch step has it.
    async fn locked(
        &mut self,
        repository: String,
        overrides: Vec<(String, String)>,
    ) -> Result<Locked, String> {
        if overrides.is_empty() && is_locked(&repository) {
            return Ok(Locked::as_it_is(repository));
        }
        self.fetched(Asked { repository, overrides, is_strict: false }).await
    }

    async fn fetched(&mut self, asked: Asked) -> Result<Locked, String> {
        if let Some(locked) = self.locked.get(&asked) {
            return Ok(locked.clone());
        }
        let locked = (self.lock)(&asked).await?;
        self.locked.insert(asked, locked.clone());
        Ok(locked)
    }

    async fn plan(&mut self, locked: &Locked, set: PatternSet) -> Result<Value, SpawnError> {
        let source = self.source(locked).await?;
        let patterns = set.includes.into_iter().map(|include| include.segments).collect();
        let plan = Plan { source, patterns, recursion: Recursion::Pattern };
        self.ask(Request::Plan(plan), Some(locked)).await
    }

    async fn list(
        &mut self,
        locked: &Locked,
        set: PatternSet,
        only: Option<Vec<String>>,
    ) -> Result<Value, SpawnError> {
        let PatternSet { includes, excludes } = set;
        let [include] = includes.as_slice() else {
            return Ok(failure("a list needs exactly one pattern that is not an exclusion"));
        };
        let source = self.source(locked).await?;
        let shard = Shard { only, ..Shard::whole(include.segments.clone(), Recursion::Pattern) };
        self.ask(Request::List(List { source, shard, excludes }), Some(locked)).await
    }

    /// What a request is about, with its evaluation cache.
    async fn source(&mut self, locked: &Locked) -> Result<Source, SpawnError> {
        let cache = self.cache_of(locked).await?;
        Ok(Source { cache, ..Source::flake(locked.url.clone()) })
    }

    async fn cache_of(&mut self, locked: &Locked) -> Result<Option<CacheFile>, SpawnError> {
        let Some(folder) = self.pool.inner.settings.eval_cache.clone() else {
            return Ok(None);
        };
        let answer = self.call(&Request::Fingerprint(fingerprint_of(locked))).await?;
        let Ok(Answer { response: Response::FingerprintOk(found), .. }) = answer else {
            return Ok(None);
        };
        Ok(found.fingerprint.map(|fingerprint| {
            let path = Folder::new(folder).file(&fingerprint).display().to_string();
            CacheFile { path, fingerprint }
        }))
    }

    /// The response to a request, about a flake if it is about one.
    async fn ask(&mut self, request: Request, of: Option<&Locked>) -> Result<Value, SpawnError> {
        Ok(match self.call(&request).await? {
            Ok(answer) => {
                let fetching = of.into_iter().flat_map(|locked| locked.warnings.iter().cloned());
                let evaluating = answer.warnings.into_iter().map(|warning| warning.text);
                response_line(answer.response, fetching.chain(evaluating).collect(), of)
            }
            Err(crash) => failure(&crash.cause),
        })
    }

    /// Asks the subprocess, or a new one if there is none. One that crashed is not asked again.
    async fn call(&mut self, request: &Request) -> Result<Result<Answer, Crash>, SpawnError> {
        let mut child = match self.child.take() {
            Some(child) => child,
            None => self.pool.inner.open().await?,
        };
        let answer = child.call(request, self.pool.inner.settings.call_limit).await;
        self.child = answer.is_ok().then_some(child);
        Ok(answer)
    }

    async fn shutdown(&mut self) {
        if let Some(child) = self.child.take() {
            child.shutdown().await;
        }
    }
}

fn fingerprint_of(locked: &Locked) -> Fingerprint {
    Fingerprint { reference: locked.url.clone(), locks: locked.locks.clone() }
}
