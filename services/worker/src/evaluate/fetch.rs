//! The source of a flake into the local store, and the locked reference to evaluate.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt as _;
use gradient_domain::StorePath;
use gradient_events::{FailureKind, FlakeSource};
use serde::Deserialize;
use tokio::process::Command;

use super::Evaluator;
use crate::job::JobEnd;

/// Longest that fetching may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Most bytes that are taken of Nix's answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

pub(super) struct Fetched {
    pub(super) source: StorePath,
    pub(super) locked_url: String,
}

/// What is used of `nix flake metadata --json`.
#[derive(Deserialize)]
struct Metadata {
    path: StorePath,
    url: String,
}

impl Evaluator {
    pub(super) async fn fetch(&self, flake: &FlakeSource) -> Result<Fetched, JobEnd> {
        match flake {
            FlakeSource::Store { path, nar_hash, subdir, .. } => {
                let wanted = BTreeSet::from([path.clone()]);
                let fetched = self.cache.ensure_closure(&self.store, &wanted, None).boxed().await;
                fetched.map_err(|error| JobEnd::Failed {
                    kind: FailureKind::InputsUnavailable,
                    error: format!("the source {path} cannot be had from the cache: {error}"),
                    missing_paths: vec![path.clone()],
                })?;
                let dir = if subdir.is_empty() {
                    String::new()
                } else {
                    format!("&dir={}", percent(subdir))
                };
                let locked_url = format!("path:{path}?narHash={}{dir}", percent(nar_hash));
                Ok(Fetched { source: path.clone(), locked_url })
            }
            FlakeSource::Reference { url } => self.fetch_reference(url).await,
        }
    }

    async fn fetch_reference(&self, url: &str) -> Result<Fetched, JobEnd> {
        let mut command = Command::new(&self.nix);
        command
            .args([
                "--extra-experimental-features",
                "nix-command flakes",
                "--store",
                &self.store_uri,
            ])
            .args(["--option", "flake-registry", "", "--option", "accept-flake-config", "false"])
            .args(["flake", "metadata", "--json", "--no-write-lock-file", "--", url])
            .env("NIX_CACHE_HOME", &self.cache_home)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = match tokio::time::timeout(FETCH_TIMEOUT, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => {
                let error = format!("{} cannot be started: {error}", self.nix.display());
                return Err(JobEnd::failed(FailureKind::Transient, error));
            }
            Err(_) => {
                let error =
                    format!("fetching '{url}' took longer than {} s", FETCH_TIMEOUT.as_secs());
                return Err(JobEnd::failed(FailureKind::Timeout, error));
            }
        };
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let error = format!("locking flake reference '{url}' failed: {}", said.trim());
            return Err(JobEnd::failed(FailureKind::Permanent, error));
        }
        if output.stdout.len() > ANSWER_BYTES_MAX {
            return Err(JobEnd::failed(FailureKind::Permanent, "the lock file is too large"));
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout).map_err(|error| {
            JobEnd::failed(
                FailureKind::Permanent,
                format!("Nix's answer on '{url}' is not understood: {error}"),
            )
        })?;
        Ok(Fetched { source: metadata.path, locked_url: metadata.url })
    }
}

/// Escapes what would end a value in a flake reference.
fn percent(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #[test]
    fn hashes_survive_in_a_reference() {
        assert_eq!(super::percent("sha256-a+b/c="), "sha256-a%2Bb/c%3D");
        assert_eq!(super::percent("sub dir/x&y"), "sub%20dir/x%26y");
    }
}
