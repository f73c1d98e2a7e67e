//! The source of a flake into the local store, and the locked reference to evaluate.

use std::collections::BTreeSet;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::FutureExt as _;
use gradient_domain::StorePath;
use gradient_domain::flake::{HINT, check_reference};
use gradient_events::{FailureKind, FlakeSource};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::Evaluator;
use crate::job::JobEnd;

/// Longest that fetching may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Most bytes of Nix's answer; more is a failure.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes that are kept of what Nix says beside it, from the end.
const SAID_BYTES_MAX: usize = 64 << 10;

/// The network or the machine failed, not the reference.
const PASSING: [&str; 26] = [
    "could not resolve host",
    "couldn't resolve host",
    "name resolution",
    "name or service not known",
    "could not connect",
    "couldn't connect",
    "failed to connect",
    "connection refused",
    "connection reset",
    "connection timed out",
    "timed out",
    "timeout was reached",
    "timeout reached",
    "network is unreachable",
    "no route to host",
    "ssl connect error",
    "transferred a partial file",
    "http error 429",
    "http error 5",
    "returned error: 429",
    "returned error: 5",
    "rate limit",
    "early eof",
    "unexpected end-of-file",
    "no space left on device",
    "cannot allocate memory",
];

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
        check_reference(url)
            .map_err(|error| JobEnd::failed(FailureKind::Permanent, format!("{error}; {HINT}")))?;
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
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let Answer { status, stdout, stderr } =
            match tokio::time::timeout(FETCH_TIMEOUT, answer(&mut command)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => {
                    let error = format!("{} cannot be run: {error}", self.nix.display());
                    return Err(JobEnd::failed(FailureKind::Transient, error));
                }
                Err(_) => {
                    let error =
                        format!("fetching '{url}' took longer than {} s", FETCH_TIMEOUT.as_secs());
                    return Err(JobEnd::failed(FailureKind::Timeout, error));
                }
            };
        if stdout.len() > ANSWER_BYTES_MAX {
            return Err(JobEnd::failed(FailureKind::Permanent, "the lock file is too large"));
        }
        let said = String::from_utf8_lossy(&stderr);
        if !status.success() {
            let error = format!("locking flake reference '{url}' failed: {}", said.trim());
            return Err(JobEnd::failed(classify(&said), error));
        }
        let metadata: Metadata = serde_json::from_slice(&stdout).map_err(|error| {
            JobEnd::failed(
                FailureKind::Permanent,
                format!("Nix's answer on '{url}' is not understood: {error}"),
            )
        })?;
        Ok(Fetched { source: metadata.path, locked_url: metadata.url })
    }
}

/// What a program said before it ended.
struct Answer {
    status: ExitStatus,
    /// At most one byte over [`ANSWER_BYTES_MAX`].
    stdout: Vec<u8>,
    /// The last [`SAID_BYTES_MAX`].
    stderr: Vec<u8>,
}

/// Runs a program; it is killed when its answer is too large.
async fn answer(command: &mut Command) -> io::Result<Answer> {
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (Some(out), Some(err)) = (out, err) else {
        return Err(io::Error::other("it has no output"));
    };
    let answered = async {
        let mut stdout = Vec::new();
        let read = out.take(ANSWER_BYTES_MAX as u64 + 1).read_to_end(&mut stdout).await;
        if stdout.len() > ANSWER_BYTES_MAX {
            child.start_kill()?;
        }
        read.map(|_| stdout)
    };
    let (stdout, stderr) = tokio::try_join!(answered, tail(err))?;
    Ok(Answer { status: child.wait().await?, stdout, stderr })
}

/// Reads to the end and keeps the last [`SAID_BYTES_MAX`].
async fn tail(mut from: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    while from.read_buf(&mut kept).await? > 0 {
        if kept.len() > 2 * SAID_BYTES_MAX {
            kept.drain(..kept.len() - SAID_BYTES_MAX);
        }
    }
    kept.drain(..kept.len().saturating_sub(SAID_BYTES_MAX));
    Ok(kept)
}

/// Whether another attempt at the reference may succeed, by what Nix said.
fn classify(said: &str) -> FailureKind {
    let said = said.to_lowercase();
    match PASSING.iter().any(|words| said.contains(words)) {
        true => FailureKind::Transient,
        false => FailureKind::Permanent,
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
    use super::*;

    #[test]
    fn hashes_survive_in_a_reference() {
        assert_eq!(percent("sha256-a+b/c="), "sha256-a%2Bb/c%3D");
        assert_eq!(percent("sub dir/x&y"), "sub%20dir/x%26y");
    }

    #[test]
    fn what_the_network_does_passes() {
        for (said, kind) in [
            (
                "error: unable to download 'https://api.github.com/x': Could not resolve hostname (6) Could not resolve host: api.github.com",
                FailureKind::Transient,
            ),
            ("error: unable to download 'https://x': HTTP error 503", FailureKind::Transient),
            (
                "fatal: unable to access 'https://x/': The requested URL returned error: 502",
                FailureKind::Transient,
            ),
            ("ssh: connect to host x port 22: Connection timed out", FailureKind::Transient),
            ("error: unable to download 'https://x': HTTP error 404", FailureKind::Permanent),
            ("error: 'abc' is not a commit hash", FailureKind::Permanent),
            ("error: flake does not provide attribute", FailureKind::Permanent),
        ] {
            assert_eq!(classify(said), kind, "{said}");
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    #[tokio::test]
    async fn answers_have_a_limit() {
        let mut fails = shell("echo answer; yes | head -c 1000000 >&2; echo end >&2; exit 3");
        let said = answer(&mut fails).await.expect("it runs");
        assert_eq!((said.status.code(), said.stdout.as_slice()), (Some(3), &b"answer\n"[..]));
        assert!(said.stderr.len() == SAID_BYTES_MAX && said.stderr.ends_with(b"y\nend\n"));

        let said = answer(&mut shell("exec yes")).await.expect("it runs");
        assert_eq!(said.stdout.len(), ANSWER_BYTES_MAX + 1);
        assert!(!said.status.success(), "it is killed");
    }
}
