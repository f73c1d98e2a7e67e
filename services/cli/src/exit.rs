//! How commands end: documented exit codes, one clear line, a hint what to do.

use std::process::ExitCode;

use gradient_fetch::{FetchError, Retry};

use crate::say;

/// An ending that is not success.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) error: anyhow::Error,
    pub(crate) hint: Option<String>,
}

/// Exit codes (README, Exit codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The evaluation or build failed, or a check did not hold.
    Failed = 1,
    /// The input is wrong; clap uses the same code.
    Usage = 2,
    /// A server, file or program is not there or does not answer.
    Unavailable = 3,
    /// No such evaluation, build or job.
    NotFound = 4,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
}

impl Failure {
    pub(crate) fn new(code: Code, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into(), hint: None }
    }

    pub(crate) fn usage(text: impl std::fmt::Display) -> Self {
        Self::new(Code::Usage, anyhow::anyhow!("{text}"))
    }

    pub(crate) fn unavailable(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Code::Unavailable, error)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prints the failure and answers with its exit code.
    pub(crate) fn report(&self) -> ExitCode {
        say::note(format_args!("error: {:#}", self.error));
        if let Some(hint) = &self.hint {
            say::note(format_args!("hint: {hint}"));
        }
        ExitCode::from(self.code as u8)
    }
}

/// How a command ends that could not fetch a flake.
impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        let code = match (&error, error.retry()) {
            (FetchError::Refused { .. }, _) => Code::Usage,
            (_, Retry::Backoff) => Code::Unavailable,
            (_, Retry::Never) => Code::Failed,
        };
        Self::new(code, error)
    }
}

/// Whatever is not said otherwise is something that is not there or does not work.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Failure>() {
            Ok(failure) => failure,
            Err(error) => Self::new(Code::Unavailable, error),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failure {}
