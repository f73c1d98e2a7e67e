//! Closed lists and their names in tables and JSON.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name in a table that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is no {what}")]
pub struct UnknownName {
    /// What was found.
    pub name: String,
    /// What was expected.
    pub what: &'static str,
}

macro_rules! names {
    (
        $(#[$doc:meta])* $type:ident, $what:literal,
        $($(#[$variant_doc:meta])* $variant:ident = $name:literal),+ $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $type {
            $($(#[$variant_doc])* $variant),+
        }

        impl $type {
            /// Every one of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in tables and JSON.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                let found = Self::ALL.iter().copied().find(|known| known.name() == name);
                found.ok_or_else(|| UnknownName { name: name.to_owned(), what: $what })
            }
        }
    };
}

names! {
    /// How far a build is (reference 3.2).
    BuildState, "state of a build",
    /// Something below it is missing, it is not recorded, or nobody wants it.
    Created = "created",
    /// In the queue.
    Queued = "queued",
    /// Handed out; the worker has not begun.
    Assigned = "assigned",
    /// A worker builds it.
    Building = "building",
    /// Built.
    Completed = "completed",
    /// The outputs were there already.
    Substituted = "substituted",
    /// Failed in a way that another try may mend; it comes back.
    FailedTransient = "failed_transient",
    /// Failed by its own fault or too often.
    FailedPermanent = "failed_permanent",
    /// Ran or was silent too long.
    FailedTimeout = "failed_timeout",
    /// Something below it failed.
    DependencyFailed = "dependency_failed",
    /// Stopped.
    Aborted = "aborted",
    /// Not needed any more before it ran.
    Skipped = "skipped",
}

impl BuildState {
    /// Whether its outputs can be fetched.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Completed | Self::Substituted)
    }

    /// Whether it ended without success.
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::FailedPermanent
            | Self::FailedTimeout
            | Self::DependencyFailed
            | Self::Aborted
            | Self::Skipped => true,
            Self::Created
            | Self::Queued
            | Self::Assigned
            | Self::Building
            | Self::Completed
            | Self::Substituted
            | Self::FailedTransient => false,
        }
    }
}

names! {
    /// How bad a text of an evaluation is.
    MessageLevel, "level of a message",
    /// It fails the evaluation.
    Error = "error",
    /// It does not.
    Warning = "warning",
}

names! {
    /// How a hand-out ended.
    Outcome, "outcome of a hand-out",
    /// With `JobCompleted`.
    Completed = "completed",
    /// With `JobFailed`.
    Failed = "failed",
    /// The worker did not take it.
    Declined = "declined",
    /// Without a report.
    Abandoned = "abandoned",
}

names! {
    /// Whether a worker is here.
    Presence, "presence of a worker",
    /// It takes jobs.
    Connected = "connected",
    /// It takes no new jobs.
    Draining = "draining",
    /// It was silent too long.
    Lost = "lost",
    /// It said goodbye.
    Left = "left",
    /// It was never let in.
    Refused = "refused",
}

names! {
    /// What was not as it should be.
    AnomalyKind, "kind of anomaly",
    /// A report under an id that is not open for its sender.
    ReportDropped = "report_dropped",
    /// A message or command that cannot be done.
    InputRefused = "input_refused",
    /// A session that was not let in.
    WorkerRejected = "worker_rejected",
    /// A sweep found what the rules should have done: a bug of ours.
    SweepFound = "sweep_found",
}
