//! Building through the daemon.

use std::collections::BTreeSet;

use gradient_domain::{Derivation, StorePath};
use tokio::io::AsyncRead;

use crate::connection::Connection;
use crate::error::{Error, during, strip_colours};
use crate::message::LogEvent;
use crate::wire::{Decoder, Encoder, PATH_LEN_MAX, TEXT_LEN_MAX, WireError};

const BUILD_DERIVATION: u64 = 36;
const BUILD_PATHS_WITH_RESULTS: u64 = 46;
const MODE_NORMAL: u64 = 0;

/// First protocol version whose build results hold CPU times.
const CPU_TIMES_SINCE: u64 = 0x125;

/// How a build ended, in the daemon's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are Nix's own")]
pub enum BuildStatus {
    Built,
    Substituted,
    AlreadyValid,
    PermanentFailure,
    InputRejected,
    OutputRejected,
    TransientFailure,
    CachedFailure,
    TimedOut,
    MiscFailure,
    DependencyFailed,
    LogLimitExceeded,
    NotDeterministic,
    ResolvesToAlreadyValid,
    NoSubstituters,
}

impl BuildStatus {
    /// All of them, in the order of their numbers.
    pub const ALL: [BuildStatus; 15] = [
        BuildStatus::Built,
        BuildStatus::Substituted,
        BuildStatus::AlreadyValid,
        BuildStatus::PermanentFailure,
        BuildStatus::InputRejected,
        BuildStatus::OutputRejected,
        BuildStatus::TransientFailure,
        BuildStatus::CachedFailure,
        BuildStatus::TimedOut,
        BuildStatus::MiscFailure,
        BuildStatus::DependencyFailed,
        BuildStatus::LogLimitExceeded,
        BuildStatus::NotDeterministic,
        BuildStatus::ResolvesToAlreadyValid,
        BuildStatus::NoSubstituters,
    ];

    /// The status behind a number of the wire.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Whether the outputs are there.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(
            self,
            BuildStatus::Built
                | BuildStatus::Substituted
                | BuildStatus::AlreadyValid
                | BuildStatus::ResolvesToAlreadyValid
        )
    }
}

/// Result of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildResult {
    /// How it ended.
    pub status: BuildStatus,
    /// The daemon's explanation of a failure, without colours; may hold the last lines of the log.
    pub message: String,
    /// Start of the builder in seconds since the epoch; 0 if none ran.
    pub started_secs: u64,
    /// End of the builder in seconds since the epoch; 0 if none ran.
    pub stopped_secs: u64,
    /// User CPU time in microseconds, if it is known.
    pub cpu_user_us: Option<u64>,
    /// System CPU time in microseconds, if it is known.
    pub cpu_system_us: Option<u64>,
}

impl BuildResult {
    async fn decode<R: AsyncRead + Unpin>(
        from: &mut Decoder<R>,
        version: u64,
    ) -> Result<Self, WireError> {
        let number = from.number().await?;
        let Some(status) = BuildStatus::from_number(number) else {
            return Err(WireError::invalid("build status", number.to_string()));
        };
        let message = from.text("build error", TEXT_LEN_MAX).await?;
        from.number().await?; // times built
        from.flag().await?; // is not deterministic
        let started_secs = from.number().await?;
        let stopped_secs = from.number().await?;
        let (mut cpu_user_us, mut cpu_system_us) = (None, None);
        if version >= CPU_TIMES_SINCE {
            cpu_user_us = optional_number(from).await?;
            cpu_system_us = optional_number(from).await?;
        }
        from.map("built outputs").await?;
        Ok(BuildResult {
            status,
            message: strip_colours(&message).trim().to_owned(),
            started_secs,
            stopped_secs,
            cpu_user_us,
            cpu_system_us,
        })
    }
}

async fn optional_number<R: AsyncRead + Unpin>(
    from: &mut Decoder<R>,
) -> Result<Option<u64>, WireError> {
    Ok(match from.number().await? {
        0 => None,
        1 => Some(from.number().await?),
        other => return Err(WireError::invalid("optional tag", other.to_string())),
    })
}

/// The fields of `BuildDerivation` between the path of the derivation and the mode.
fn encode_derivation(
    to: Encoder,
    derivation: &Derivation,
    inputs: &BTreeSet<StorePath>,
) -> Encoder {
    let to = derivation.outputs.iter().fold(
        to.number(derivation.outputs.len() as u64),
        |to, (name, output)| {
            to.bytes(name.as_bytes())
                .optional_path(output.path.as_ref())
                .bytes(output.hash_algo.as_bytes())
                .bytes(output.hash.as_bytes())
        },
    );
    let to = to
        .paths(inputs)
        .bytes(derivation.system.0.as_bytes())
        .bytes(&derivation.builder)
        .list(&derivation.args)
        .number(derivation.env.len() as u64);
    derivation.env.iter().fold(to, |to, (name, value)| to.bytes(name).bytes(value))
}

impl Connection {
    /// Builds one derivation and nothing else. `inputs` are all store paths it needs, valid
    /// already. Input-addressed derivations need a daemon that trusts us.
    ///
    /// Dropping the future and the connection kills the builder.
    ///
    /// # Errors
    /// If the daemon refuses or the connection breaks. A failed build is a result, not an error.
    pub async fn build_derivation(
        &mut self,
        path: &StorePath,
        derivation: &Derivation,
        inputs: &BTreeSet<StorePath>,
        log: &mut (dyn FnMut(LogEvent) + Send),
    ) -> Result<BuildResult, Error> {
        const OPERATION: &str = "build derivation";
        let request = Encoder::operation(BUILD_DERIVATION).path(path);
        let request = encode_derivation(request, derivation, inputs).number(MODE_NORMAL);
        self.begin(OPERATION, request, log).await?;
        let result =
            BuildResult::decode(&mut self.from, self.version).await.map_err(during(OPERATION))?;
        self.end();
        Ok(result)
    }

    /// Builds all outputs of a derivation that is in the store with its closure, and whatever of
    /// its inputs is missing (ask [`Connection::query_missing`] first to rule that out).
    ///
    /// # Errors
    /// As [`Connection::build_derivation`].
    pub async fn build_path_with_results(
        &mut self,
        path: &StorePath,
        log: &mut (dyn FnMut(LogEvent) + Send),
    ) -> Result<BuildResult, Error> {
        const OPERATION: &str = "build paths with results";
        let lost = during(OPERATION);
        let wanted = [format!("{path}!*")];
        let request =
            Encoder::operation(BUILD_PATHS_WITH_RESULTS).list(&wanted).number(MODE_NORMAL);
        self.begin(OPERATION, request, log).await?;
        let results =
            self.from.length("build results", wanted.len() as u64).await.map_err(&lost)?;
        if results == 0 {
            return Err(lost(WireError::invalid("build results", "there are none")));
        }
        self.from.bytes("derived path", PATH_LEN_MAX).await.map_err(&lost)?;
        let result = BuildResult::decode(&mut self.from, self.version).await.map_err(&lost)?;
        self.end();
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_numbers_of_the_protocol() {
        let rows = [
            (0, BuildStatus::Built),
            (3, BuildStatus::PermanentFailure),
            (5, BuildStatus::OutputRejected),
            (8, BuildStatus::TimedOut),
            (10, BuildStatus::DependencyFailed),
            (14, BuildStatus::NoSubstituters),
        ];
        for (number, status) in rows {
            assert_eq!(BuildStatus::from_number(number), Some(status));
        }
        assert_eq!(BuildStatus::from_number(15), None);
        let successes = BuildStatus::ALL.iter().filter(|s| s.is_success()).count();
        assert_eq!(successes, 4);
    }

    #[tokio::test]
    async fn results_of_both_versions_are_read() {
        let common = || {
            Encoder::default()
                .number(3)
                .bytes(b"\x1b[31mno\x1b[0m")
                .number(1)
                .flag(false)
                .number(10)
                .number(12)
        };
        let old = common().number(0).finish();
        let new = common().number(1).number(77).number(0);
        let new = new.number(1).bytes(b"sha256:00!out").bytes(b"{}").finish();
        for (bytes, version, cpu) in [(old, 0x123, None), (new, 0x125, Some(77))] {
            let mut from = Decoder(bytes.as_slice());
            let result = BuildResult::decode(&mut from, version).await.expect("reads");
            assert!(from.0.is_empty());
            assert_eq!(result.status, BuildStatus::PermanentFailure);
            assert_eq!(result.message, "no");
            assert_eq!((result.started_secs, result.stopped_secs), (10, 12));
            assert_eq!(result.cpu_user_us, cpu);
        }
    }
}
