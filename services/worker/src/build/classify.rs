//! From the daemon's words to the closed list of failures (reference 2.7; ADR 7).

use gradient_daemon::BuildStatus;
use gradient_events::FailureKind;

/// Longest message of a failure, in bytes; a longer one is cut.
const MESSAGE_LEN_MAX: usize = 8 << 10;

/// What stands in front of the tail of a builder's log in the daemon's message.
const LOG_TAIL_MARKS: [&str; 2] = ["last ", "For full logs"];

/// Memory ran out. The kernel kills with signal 9; nothing in a build does so on its own.
const MEMORY: [&str; 5] =
    ["out of memory", "cannot allocate memory", "oom-killer", "signal 9", "killed"];

/// Disk, network or daemon failed.
const INFRASTRUCTURE: [&str; 10] = [
    "no space left on device",
    "cannot connect to daemon",
    "unexpected end-of-file",
    "input/output error",
    "connection reset by peer",
    "broken pipe",
    "too many open files",
    "database is locked",
    "read-only file system",
    "unable to start build process",
];

/// An input is not there.
const INPUTS: [&str; 2] = ["does not exist", "is not valid"];

/// The worker is not the right one; the scheduler gives it to another.
const ELSEWHERE: [&str; 2] = ["is required to build", "cannot build on this platform"];

/// Kind of failure of a build that ended with this status and message; `None` if it succeeded.
#[must_use]
pub fn classify(status: BuildStatus, message: &str) -> Option<FailureKind> {
    let head = head(message).to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| head.contains(word));
    Some(match status {
        BuildStatus::Built
        | BuildStatus::Substituted
        | BuildStatus::AlreadyValid
        | BuildStatus::ResolvesToAlreadyValid => return None,
        BuildStatus::TimedOut => FailureKind::Timeout,
        BuildStatus::DependencyFailed | BuildStatus::NoSubstituters => {
            FailureKind::InputsUnavailable
        }
        BuildStatus::TransientFailure => FailureKind::Transient,
        BuildStatus::MiscFailure if says(&INPUTS) => FailureKind::InputsUnavailable,
        BuildStatus::MiscFailure => FailureKind::Transient,
        BuildStatus::InputRejected if says(&ELSEWHERE) => FailureKind::Transient,
        BuildStatus::PermanentFailure
        | BuildStatus::InputRejected
        | BuildStatus::OutputRejected
            if says(&MEMORY) || says(&INFRASTRUCTURE) =>
        {
            FailureKind::Transient
        }
        BuildStatus::PermanentFailure
        | BuildStatus::InputRejected
        | BuildStatus::OutputRejected
        | BuildStatus::CachedFailure
        | BuildStatus::LogLimitExceeded
        | BuildStatus::NotDeterministic => FailureKind::Permanent,
    })
}

/// Kind of failure when the daemon refused the build, or the connection to it broke.
#[must_use]
pub fn classify_refusal(error: &gradient_daemon::Error) -> FailureKind {
    let gradient_daemon::Error::Refused { message, .. } = error else {
        return FailureKind::Transient;
    };
    let message = message.to_lowercase();
    if message.contains("not privileged") {
        FailureKind::Permanent
    } else if message.contains("is not valid") || message.contains("does not exist") {
        FailureKind::InputsUnavailable
    } else {
        FailureKind::Transient
    }
}

/// The daemon's own words, without the lines of the builder's log that it quotes: those are the
/// builder's and prove nothing about the machine.
pub(super) fn head(message: &str) -> &str {
    let quote = message
        .match_indices('\n')
        .map(|(at, _)| at)
        .find(|at| {
            let line = message[at + 1..].trim_start();
            line.starts_with('>') || LOG_TAIL_MARKS.iter().any(|mark| line.starts_with(mark))
        })
        .unwrap_or(message.len());
    let first = &message[..quote];
    // One line: "builder for '...' failed with exit code 1; last 10 log lines:".
    first.split("; last ").next().unwrap_or(first)
}

/// The message, cut at 8 KiB.
#[must_use]
pub(super) fn cut(message: &str) -> String {
    gradient_domain::text::cut(message.to_owned(), MESSAGE_LEN_MAX)
}

#[cfg(test)]
mod tests {
    use BuildStatus as S;
    use FailureKind as K;

    use super::*;

    #[test]
    fn statuses_and_messages() {
        let rows = [
            (S::Built, "", None),
            (S::Substituted, "", None),
            (S::AlreadyValid, "", None),
            (S::ResolvesToAlreadyValid, "", None),
            (S::PermanentFailure, "builder for 'x' failed with exit code 1", Some(K::Permanent)),
            (
                S::PermanentFailure,
                "builder for 'x' failed with exit code 1; last 2 log lines:\n> Killed\n> out of memory",
                Some(K::Permanent),
            ),
            (
                S::PermanentFailure,
                "Cannot build 'x'.\nReason: builder failed with exit code 1.\nLast 1 log lines:\n> no space left on device",
                Some(K::Permanent),
            ),
            (
                S::PermanentFailure,
                "builder for 'x' failed due to signal 9 (Killed)",
                Some(K::Transient),
            ),
            (S::PermanentFailure, "while setting up: No space left on device", Some(K::Transient)),
            (
                S::InputRejected,
                "a 'b' with features {kvm} is required to build 'x'",
                Some(K::Transient),
            ),
            (S::InputRejected, "derivation has bad attributes", Some(K::Permanent)),
            (S::OutputRejected, "hash mismatch in fixed-output derivation 'x'", Some(K::Permanent)),
            (S::TransientFailure, "builder for 'x' failed with exit code 1", Some(K::Transient)),
            (S::CachedFailure, "", Some(K::Permanent)),
            (S::TimedOut, "building of 'x' timed out after 1 seconds", Some(K::Timeout)),
            (
                S::MiscFailure,
                "dependency 'a' of 'b' does not exist, and substitution is disabled",
                Some(K::InputsUnavailable),
            ),
            (S::MiscFailure, "something odd", Some(K::Transient)),
            (S::DependencyFailed, "1 dependency failed", Some(K::InputsUnavailable)),
            (S::LogLimitExceeded, "", Some(K::Permanent)),
            (S::NotDeterministic, "", Some(K::Permanent)),
            (S::NoSubstituters, "", Some(K::InputsUnavailable)),
        ];
        for (status, message, kind) in rows {
            assert_eq!(classify(status, message), kind, "{status:?} {message}");
        }
        for status in S::ALL {
            assert!(rows.iter().any(|(covered, ..)| *covered == status), "{status:?}");
        }
    }

    #[test]
    fn refusals() {
        let refused = |message: &str| gradient_daemon::Error::Refused {
            operation: "build",
            message: message.into(),
        };
        let rows = [
            (refused("you are not privileged to build input-addressed derivations"), K::Permanent),
            (refused("path '/nix/store/x' is not valid"), K::InputsUnavailable),
            (refused("database disk image is malformed"), K::Transient),
            (gradient_daemon::Error::NotADaemon { magic: 0 }, K::Transient),
        ];
        for (error, kind) in rows {
            assert_eq!(classify_refusal(&error), kind, "{error}");
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"ü".repeat(8 << 10));
        assert!(long.ends_with("ü [truncated]") && long.len() < (8 << 10) + 20);
    }
}
