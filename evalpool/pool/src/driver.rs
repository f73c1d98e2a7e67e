//! The hidden `--eval-driver <file>`: one JSON request per line through a real subprocess, one JSON
//! response per line out. For tests that want to see both sides of the wire.

use std::io::{self, Write};
use std::path::Path;

use gradient_domain::AttrPath;
use gradient_domain::pattern::{ParsePatternError, Pattern, PatternSet};
use gradient_ipc::message::{Failure, List, ListOk, Plan, PlanOk, Request, Response, Source};
use gradient_ipc::shard::{Recursion, Shard};
use gradient_ipc::tree::{AttrError, Job};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::pool::Pool;
use crate::settings::PoolSettings;
use crate::transport::{SpawnError, Transport, unexpected};

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
        #[serde(rename = "repository")]
        _repository: String,
    },
    Checkpoint {
        #[serde(rename = "repository")]
        _repository: String,
    },
    FetchInput {
        #[serde(rename = "locked")]
        _locked: String,
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
pub async fn run(file: &Path, settings: PoolSettings) -> Result<(), DriverError> {
    let requests = std::fs::read_to_string(file)?;
    run_lines(&requests, settings, &mut io::stdout().lock()).await
}

/// As [`run`], from text and to any writer.
///
/// # Errors
/// As [`run`].
pub async fn run_lines(
    requests: &str,
    settings: PoolSettings,
    output: &mut impl Write,
) -> Result<(), DriverError> {
    let limit = settings.call_limit;
    let pool = Pool::new(settings)?;
    let mut child: Option<Transport> = None;
    for (n, text) in requests.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line: Line = serde_json::from_str(text)
            .map_err(|source| DriverError::Request { line: n + 1, source })?;
        let request = match request_of(line) {
            Ok(Some(request)) => request,
            Ok(None) => {
                if let Some(child) = child.take() {
                    child.shutdown().await;
                }
                continue;
            }
            Err(message) => {
                writeln!(output, "{}", failure(&message))?;
                continue;
            }
        };
        let mut transport = match child.take() {
            Some(transport) => transport,
            None => pool.inner.open().await?,
        };
        match transport.call(&request, limit).await {
            Ok(answer) => {
                let warnings = answer.warnings.into_iter().map(|warning| warning.text).collect();
                writeln!(output, "{}", response_line(answer.response, warnings))?;
                child = Some(transport);
            }
            Err(crash) => writeln!(output, "{}", failure(&crash.cause))?,
        }
    }
    if let Some(child) = child {
        child.shutdown().await;
    }
    Ok(())
}

/// The frame of a line; `None` for a shutdown, an error for what cannot be asked.
fn request_of(line: Line) -> Result<Option<Request>, String> {
    let text = |error: ParsePatternError| error.to_string();
    match line {
        Line::Plan { repository, wildcards, input_overrides } => {
            without_overrides(&input_overrides)?;
            let set = PatternSet::from_texts(wildcards).map_err(text)?;
            let patterns = set.includes.into_iter().map(|include| include.segments).collect();
            Ok(Some(Request::Plan(Plan {
                source: Source::flake(repository),
                patterns,
                recursion: Recursion::Pattern,
            })))
        }
        Line::List { repository, wildcards, only, input_overrides } => {
            without_overrides(&input_overrides)?;
            let PatternSet { includes, excludes } =
                PatternSet::from_texts(wildcards).map_err(text)?;
            let [include] = includes.as_slice() else {
                return Err("a list needs exactly one pattern that is not an exclusion".to_owned());
            };
            let shard =
                Shard { only, ..Shard::whole(include.segments.clone(), Recursion::Pattern) };
            Ok(Some(Request::List(List { source: Source::flake(repository), shard, excludes })))
        }
        Line::Fingerprint { .. } | Line::Checkpoint { .. } | Line::FetchInput { .. } => {
            Err("this build has no evaluation cache and no fetcher of inputs".to_owned())
        }
        Line::Shutdown => Ok(None),
    }
}

fn without_overrides(overrides: &[(String, String)]) -> Result<(), String> {
    match overrides {
        [] => Ok(()),
        _ => Err("overrides are applied when the flake is locked, not here".to_owned()),
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
        Response::Err(Failure { message }) => failure(&message),
        other => failure(&unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_requests_and_nothing_else_does() {
        let plan: Line = serde_json::from_str(
            r#"{"op":"plan","repository":"R","wildcards":["packages.*.hello"]}"#,
        )
        .expect("plan");
        assert!(matches!(request_of(plan), Ok(Some(Request::Plan(_)))));
        let list = r#"{"op":"list","repository":"R","wildcards":["a.*","b.*"]}"#;
        assert!(request_of(serde_json::from_str(list).expect("list")).is_err());
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
