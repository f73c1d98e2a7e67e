//! Requests and responses of the harness as lines of JSON (reference 5.14).

use gradient_domain::AttrPath;
use gradient_domain::pattern::Pattern;
use gradient_ipc::message::{FetchOk, FingerprintOk, ListOk, PlanOk, Response};
use gradient_ipc::shard::Shard;
use gradient_ipc::tree::{AttrError, Job};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Locked;
use crate::transport::unexpected;

/// A request.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// The fetch step alone.
    Lock {
        repository: String,
        #[serde(default)]
        input_overrides: Vec<(String, String)>,
        #[serde(default)]
        strict_lock: bool,
    },
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

/// A call that failed.
pub(super) fn failure(message: &str) -> Value {
    json!({ "kind": "err", "message": message })
}

/// What the fetch step made of a reference.
pub(super) fn lock_line(locked: &Locked) -> Value {
    json!({
        "kind": "lock_ok",
        "url": locked.url,
        "locks": locked.locks,
        "not_locked": locked.not_locked,
        "warnings": locked.warnings,
    })
}

/// The response of the subprocess, about a flake if it is about one.
pub(super) fn response_line(
    response: Response,
    mut warnings: Vec<String>,
    of: Option<&Locked>,
) -> Value {
    let shards = |shards: Vec<Shard>| shards.into_iter().map(ShardLine::from).collect::<Vec<_>>();
    match response {
        Response::PlanOk(PlanOk { shards: planned, errors }) => {
            let errors: Vec<_> = errors.into_iter().map(|error| error_line(error, of)).collect();
            json!({ "kind": "plan_ok", "shards": shards(planned), "errors": errors })
        }
        Response::ListOk(ListOk { items, deferred, warnings: own, errors }) => {
            warnings.extend(own);
            let items: Vec<_> = items.iter().map(|i| item_line(&i.attr, &i.result, of)).collect();
            let errors: Vec<_> = errors.into_iter().map(|error| error_line(error, of)).collect();
            json!({
                "kind": "list_ok",
                "items": items,
                "deferred": shards(deferred),
                "warnings": warnings,
                "errors": errors,
            })
        }
        Response::FingerprintOk(FingerprintOk { fingerprint }) => {
            json!({ "kind": "fingerprint_ok", "fingerprint": fingerprint })
        }
        Response::CheckpointOk => json!({ "kind": "checkpoint_ok" }),
        Response::FetchOk(FetchOk { store_path }) => {
            json!({ "kind": "fetch_ok", "store_path": store_path })
        }
        Response::Err(error) => failure(&hinted(&error.message, of)),
        other => failure(&unexpected(&other)),
    }
}

/// A text of the evaluator after what the fetch step knows to do about it.
fn hinted(message: &str, of: Option<&Locked>) -> String {
    match of.and_then(|locked| (locked.hint)(message)) {
        Some(hint) => format!("{hint}\n{message}"),
        None => message.to_owned(),
    }
}

fn error_line(error: AttrError, of: Option<&Locked>) -> Value {
    let message = hinted(&error.message, of);
    json!({ "attr": error.attr.to_string(), "attr_path": error.attr, "message": message })
}

fn item_line(attr: &AttrPath, result: &Result<Job, String>, of: Option<&Locked>) -> Value {
    let name = attr.to_string();
    match result {
        Ok(job) => json!({ "attr": name, "attr_path": attr, "drv_path": job.drv_path }),
        Err(error) => json!({ "attr": name, "attr_path": attr, "error": hinted(error, of) }),
    }
}

#[cfg(test)]
mod tests {
    use gradient_ipc::shard::Recursion;

    use super::*;

    #[test]
    fn lines_become_requests_and_nothing_else_does() {
        for good in [
            r#"{"op":"lock","repository":"R","strict_lock":true}"#,
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
        let line = response_line(Response::PlanOk(planned), Vec::new(), None);
        let expected = json!({
            "kind": "plan_ok",
            "shards": [{ "pattern": "packages.\"tool-1.2\".#", "only": ["a"] }],
            "errors": [],
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn errors_come_with_what_the_fetch_step_knows_of_them() {
        let mut locked = Locked::as_it_is("path:/nix/store/x".into());
        locked.hint = std::sync::Arc::new(|error| {
            error.contains("missing").then(|| "ask for submodules".to_owned())
        });
        let attr: AttrPath = ["a"].into_iter().collect();
        let error = |text: &str| item_line(&attr, &Err(text.to_owned()), Some(&locked));
        assert_eq!(error("missing file")["error"], "ask for submodules\nmissing file");
        assert_eq!(error("other")["error"], "other");
    }
}
