//! The hidden `--eval-driver <file>`: one JSON request per line through a real subprocess, one JSON
//! response per line out. For tests that want to see both sides of the wire.

use std::io::{self, Write};
use std::path::Path;

use gradient_domain::AttrPath;
use gradient_domain::pattern::{Pattern, PatternSet};
use gradient_evalcache::Folder;
use gradient_ipc::discovery::Crash;
use gradient_ipc::message::{
    CacheFile, Failure, FetchInput, FetchOk, Fingerprint, FingerprintOk, List, ListOk, Plan,
    PlanOk, Request, Response, Source,
};
use gradient_ipc::shard::{Recursion, Shard};
use gradient_ipc::tree::{AttrError, Job};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::pool::Pool;
use crate::settings::PoolSettings;
use crate::transport::{Answer, SpawnError, Transport, unexpected};

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

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Plan {
        repository: String,
        wildcards: Vec<String>,
        #[serde(default)]
        input_overrides: Vec<(String, String)>,
    },
    List {
        repository: String,
        wildcards: Vec<String>,
        only: Option<Vec<String>>,
        #[serde(default)]
        input_overrides: Vec<(String, String)>,
    },
    Fingerprint {
        repository: String,
        #[serde(default)]
        input_overrides: Vec<(String, String)>,
    },
    Checkpoint {
        repository: String,
        #[serde(default)]
        input_overrides: Vec<(String, String)>,
    },
    FetchInput {
        locked: String,
        git_ssh_command: Option<String>,
    },
    Shutdown,
}

#[derive(Serialize)]
struct ShardLine {
    pattern: String,
    only: Option<Vec<String>>,
}

impl From<Shard> for ShardLine {
    fn from(shard: Shard) -> ShardLine {
        let pattern = Pattern { exclude: false, segments: shard.pattern };
        ShardLine { pattern: pattern.to_string(), only: shard.only }
    }
}

/// Runs the requests of a file and prints the responses.
///
/// # Errors
/// If a line is no request, or there is no subprocess to ask. A call that fails is a response.
pub async fn run(
    file: &Path,
    settings: PoolSettings,
    lock: impl AsyncFn(&str, &[(String, String)]) -> Result<Locked, String>,
) -> Result<(), DriverError> {
    let requests = std::fs::read_to_string(file)?;
    run_lines(&requests, settings, &mut io::stdout().lock(), lock).await
}

/// A flake with other flakes in the place of inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    /// What to evaluate, locked.
    pub url: String,
    /// Its complete lock file.
    pub locks: String,
}

/// As [`run`], from text and to any writer.
///
/// # Errors
/// As [`run`].
pub async fn run_lines(
    requests: &str,
    settings: PoolSettings,
    output: &mut impl Write,
    lock: impl AsyncFn(&str, &[(String, String)]) -> Result<Locked, String>,
) -> Result<(), DriverError> {
    let mut driver = Driver { pool: Pool::new(settings)?, child: None, lock };
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
    /// Puts other flakes in the place of inputs.
    lock: L,
}

impl<L: AsyncFn(&str, &[(String, String)]) -> Result<Locked, String>> Driver<L> {
    /// The response to a line; none to a shutdown.
    async fn line(&mut self, line: Line) -> Result<Option<Value>, SpawnError> {
        let response = match line {
            Line::Plan { repository, wildcards, input_overrides } => {
                match self.locked(repository, &input_overrides, wildcards).await {
                    Ok((locked, set)) => self.plan(locked, set).await?,
                    Err(message) => failure(&message),
                }
            }
            Line::List { repository, wildcards, only, input_overrides } => {
                match self.locked(repository, &input_overrides, wildcards).await {
                    Ok((locked, set)) => self.list(locked, set, only).await?,
                    Err(message) => failure(&message),
                }
            }
            Line::Fingerprint { repository, input_overrides } => {
                match self.overridden(repository, &input_overrides).await {
                    Ok(Locked { url, locks }) => {
                        let of = Fingerprint { reference: url, locks };
                        self.ask(Request::Fingerprint(of)).await?
                    }
                    Err(message) => failure(&message),
                }
            }
            Line::Checkpoint { repository, input_overrides } => {
                match self.overridden(repository, &input_overrides).await {
                    Ok(locked) => match self.cache_of(&locked).await? {
                        Some(cache) => self.ask(Request::Checkpoint(cache)).await?,
                        None => failure("there is no evaluation cache of this flake"),
                    },
                    Err(message) => failure(&message),
                }
            }
            Line::FetchInput { locked, git_ssh_command } => {
                let has_key = git_ssh_command.is_some();
                if has_key {
                    // Nor does one that has evaluated learn of a key.
                    self.shutdown().await;
                }
                let input = FetchInput { locked, git_ssh_command };
                let response = self.ask(Request::FetchInput(input)).await?;
                if has_key {
                    // Whoever was told of a key evaluates nothing.
                    self.shutdown().await;
                }
                response
            }
            Line::Shutdown => {
                self.shutdown().await;
                return Ok(None);
            }
        };
        Ok(Some(response))
    }

    /// What is evaluated, and what of it.
    async fn locked(
        &self,
        repository: String,
        overrides: &[(String, String)],
        wildcards: Vec<String>,
    ) -> Result<(Locked, PatternSet), String> {
        let set = PatternSet::from_texts(wildcards).map_err(|error| error.to_string())?;
        Ok((self.overridden(repository, overrides).await?, set))
    }

    /// A repository as it was given, or with other flakes in the place of inputs.
    async fn overridden(
        &self,
        repository: String,
        overrides: &[(String, String)],
    ) -> Result<Locked, String> {
        match overrides {
            [] => Ok(Locked { url: repository, locks: String::new() }),
            overrides => (self.lock)(&repository, overrides).await,
        }
    }

    async fn plan(&mut self, locked: Locked, set: PatternSet) -> Result<Value, SpawnError> {
        let source = self.source(locked).await?;
        let patterns = set.includes.into_iter().map(|include| include.segments).collect();
        self.ask(Request::Plan(Plan { source, patterns, recursion: Recursion::Pattern })).await
    }

    async fn list(
        &mut self,
        locked: Locked,
        set: PatternSet,
        only: Option<Vec<String>>,
    ) -> Result<Value, SpawnError> {
        let PatternSet { includes, excludes } = set;
        let [include] = includes.as_slice() else {
            return Ok(failure("a list needs exactly one pattern that is not an exclusion"));
        };
        let source = self.source(locked).await?;
        let shard = Shard { only, ..Shard::whole(include.segments.clone(), Recursion::Pattern) };
        self.ask(Request::List(List { source, shard, excludes })).await
    }

    /// What a request is about, with its evaluation cache.
    async fn source(&mut self, locked: Locked) -> Result<Source, SpawnError> {
        let cache = self.cache_of(&locked).await?;
        Ok(Source { cache, ..Source::flake(locked.url) })
    }

    async fn cache_of(&mut self, locked: &Locked) -> Result<Option<CacheFile>, SpawnError> {
        let Some(folder) = self.pool.inner.settings.eval_cache.clone() else {
            return Ok(None);
        };
        let Locked { url, locks } = locked.clone();
        let of = Fingerprint { reference: url, locks };
        let answer = self.call(&Request::Fingerprint(of)).await?;
        let Ok(Answer { response: Response::FingerprintOk(found), .. }) = answer else {
            return Ok(None);
        };
        Ok(found.fingerprint.map(|fingerprint| {
            let path = Folder::new(folder).file(&fingerprint).display().to_string();
            CacheFile { path, fingerprint }
        }))
    }

    async fn ask(&mut self, request: Request) -> Result<Value, SpawnError> {
        Ok(match self.call(&request).await? {
            Ok(answer) => {
                let warnings = answer.warnings.into_iter().map(|warning| warning.text).collect();
                response_line(answer.response, warnings)
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

fn failure(message: &str) -> Value {
    json!({ "kind": "err", "message": message })
}

fn error_lines(errors: Vec<AttrError>) -> Vec<Value> {
    let line = |error: AttrError| json!({ "attr": error.attr.to_string(), "attr_path": error.attr, "message": error.message });
    errors.into_iter().map(line).collect()
}

fn item_line(attr: &AttrPath, result: &Result<Job, String>) -> Value {
    match result {
        Ok(job) => json!({ "attr": attr.to_string(), "attr_path": attr, "drv_path": job.drv_path }),
        Err(error) => json!({ "attr": attr.to_string(), "attr_path": attr, "error": error }),
    }
}

fn response_line(response: Response, mut warnings: Vec<String>) -> Value {
    let shards = |shards: Vec<Shard>| shards.into_iter().map(ShardLine::from).collect::<Vec<_>>();
    match response {
        Response::PlanOk(PlanOk { shards: planned, errors }) => {
            json!({ "kind": "plan_ok", "shards": shards(planned), "errors": error_lines(errors) })
        }
        Response::ListOk(ListOk { items, deferred, warnings: own, errors }) => {
            warnings.extend(own);
            let items: Vec<_> = items.iter().map(|i| item_line(&i.attr, &i.result)).collect();
            json!({
                "kind": "list_ok",
                "items": items,
                "deferred": shards(deferred),
                "warnings": warnings,
                "errors": error_lines(errors),
            })
        }
        Response::FingerprintOk(FingerprintOk { fingerprint }) => {
            json!({ "kind": "fingerprint_ok", "fingerprint": fingerprint })
        }
        Response::CheckpointOk => json!({ "kind": "checkpoint_ok" }),
        Response::FetchOk(FetchOk { store_path }) => {
            json!({ "kind": "fetch_ok", "store_path": store_path })
        }
        Response::Err(Failure { message }) => failure(&message),
        other => failure(&unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_requests_and_nothing_else_does() {
        for good in [
            r#"{"op":"plan","repository":"R","wildcards":["packages.*.hello"]}"#,
            r#"{"op":"list","repository":"R","wildcards":["a.*"],"only":["b"]}"#,
            r#"{"op":"fingerprint","repository":"R"}"#,
            r#"{"op":"checkpoint","repository":"R","input_overrides":[]}"#,
            r#"{"op":"fetch_input","locked":"{}"}"#,
            r#"{"op":"shutdown"}"#,
        ] {
            assert!(serde_json::from_str::<Line>(good).is_ok(), "{good}");
        }
        assert!(serde_json::from_str::<Line>(r#"{"op":"plan"}"#).is_err());
        assert!(serde_json::from_str::<Line>(r#"{"op":"dance"}"#).is_err());
    }

    #[test]
    fn shards_are_shown_as_patterns() {
        let path: AttrPath = ["packages", "tool-1.2"].into_iter().collect();
        let planned = PlanOk {
            shards: vec![Shard::of_set(&path, vec!["a".into()], Recursion::Pattern)],
            errors: vec![],
        };
        let line = response_line(Response::PlanOk(planned), Vec::new());
        let expected = json!({
            "kind": "plan_ok",
            "shards": [{ "pattern": "packages.\"tool-1.2\".#", "only": ["a"] }],
            "errors": [],
        });
        assert_eq!(line, expected);
    }
}
