//! How fetching fails, and whether another attempt may succeed.

use std::io;
use std::path::PathBuf;

/// Whether another attempt may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The reference or the flake is wrong.
    Never,
    /// The network or the machine failed.
    Backoff,
}

/// Why a flake cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A reference that is not allowed here, or that names nothing.
    #[error("{reason}")]
    Refused {
        /// What is wrong, with the reference.
        reason: String,
    },
    /// Its `flake.lock`, or what its inputs follow, is broken.
    #[error("locking flake reference '{reference}' failed: {problem}")]
    Lock {
        /// The reference.
        reference: String,
        /// Names the lock file or the cycle.
        problem: String,
    },
    /// A complete lock file was asked for.
    #[error(
        "{problem}, and a complete lock file is asked for: run `nix flake lock` and commit flake.lock"
    )]
    NotLocked {
        /// Names the inputs.
        problem: String,
    },
    /// Nix refused the reference.
    #[error("locking flake reference '{reference}' failed: {said}")]
    Reference {
        /// The reference.
        reference: String,
        /// What Nix said.
        said: String,
    },
    /// The network or the machine failed.
    #[error("locking flake reference '{reference}' failed: {said}")]
    Passing {
        /// The reference.
        reference: String,
        /// What Nix said.
        said: String,
    },
    /// It took too long.
    #[error("fetching '{reference}' took longer than {limit_secs} s")]
    Timeout {
        /// The reference.
        reference: String,
        /// The limit.
        limit_secs: u64,
    },
    /// Nix's answer is over the limit.
    #[error("the lock of '{reference}' has more than {limit_bytes} bytes")]
    TooLarge {
        /// The reference.
        reference: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// Nix answered something else than expected.
    #[error("Nix's answer on '{reference}' is not understood")]
    Answer {
        /// The reference.
        reference: String,
        /// Where it differs.
        #[source]
        source: serde_json::Error,
    },
    /// A program cannot be run.
    #[error("{} cannot be run", program.display())]
    Program {
        /// Which.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of ours cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl FetchError {
    /// Whether another attempt may succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            FetchError::Refused { .. }
            | FetchError::Lock { .. }
            | FetchError::NotLocked { .. }
            | FetchError::Reference { .. }
            | FetchError::Timeout { .. }
            | FetchError::TooLarge { .. }
            | FetchError::Answer { .. } => Retry::Never,
            FetchError::Passing { .. } | FetchError::Program { .. } | FetchError::File { .. } => {
                Retry::Backoff
            }
        }
    }

    /// What Nix's words on a failure mean.
    pub(crate) fn said(reference: &str, said: &str) -> Self {
        let is_said = |line: &&str| !line.starts_with(NOISE);
        let said = said.trim().lines().filter(is_said).collect::<Vec<&str>>().join("\n");
        let reference = reference.to_owned();
        let lower = said.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|words| lower.contains(words));
        if has(&BROKEN_LOCK) {
            let problem = if lower.contains("json.exception") {
                format!("a flake.lock is not JSON (are merge markers in it?): {said}")
            } else {
                said
            };
            return FetchError::Lock { reference, problem };
        }
        match has(&PASSING) {
            true => FetchError::Passing { reference, said },
            false => FetchError::Reference { reference, said },
        }
    }
}

/// Said by every `nix` on a machine without users for builds.
const NOISE: &str = "warning: the group ";

/// The lock itself is wrong, whatever the network does.
const BROKEN_LOCK: [&str; 3] =
    ["json.exception", "has unsupported version", "follow cycle detected"];

/// The network or the machine failed, not the reference.
const PASSING: [&str; 27] = [
    "could not resolve host",
    "couldn't resolve host",
    "name resolution",
    "name or service not known",
    "could not connect",
    "couldn't connect",
    "failed to connect",
    "connection refused",
    "connection reset",
    "connection closed by",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_network_does_passes() {
        for (said, retry) in [
            (
                "error: unable to download 'https://api.github.com/x': Could not resolve hostname (6) Could not resolve host: api.github.com",
                Retry::Backoff,
            ),
            ("error: unable to download 'https://x': HTTP error 503", Retry::Backoff),
            (
                "fatal: unable to access 'https://x/': The requested URL returned error: 502",
                Retry::Backoff,
            ),
            ("ssh: connect to host x port 22: Connection timed out", Retry::Backoff),
            ("Connection closed by 192.0.2.1 port 22", Retry::Backoff),
            ("git@host: Permission denied (publickey).", Retry::Never),
            ("error: unable to download 'https://x': HTTP error 404", Retry::Never),
            ("error: 'abc' is not a commit hash", Retry::Never),
            ("error: flake does not provide attribute", Retry::Never),
        ] {
            assert_eq!(FetchError::said("r", said).retry(), retry, "{said}");
        }
    }

    #[test]
    fn a_broken_lock_is_named() {
        for said in [
            "error: [json.exception.parse_error.101] parse error at line 1, column 1",
            "error: lock file '/nix/store/x/flake.lock' has unsupported version 99",
            "error: follow cycle detected: [b -> a -> b]\nwarning: connection refused",
        ] {
            let error = FetchError::said("r", said);
            assert!(matches!(error, FetchError::Lock { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("flake.lock") || text.contains("cycle"), "{text}");
        }
    }
}
