//! The closed lists that events speak in: states, verdicts, reasons.

use gradient_domain::Requirement;
use serde::{Deserialize, Serialize};

use crate::job::FailureKind;

/// States of an evaluation (reference 3.1).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationState {
    /// Waits for a worker.
    Queued,
    /// The source is being fetched.
    Fetching,
    /// The flake is being opened.
    EvaluatingFlake,
    /// Derivations are being found; builds begin.
    EvaluatingDerivations,
    /// All derivations are known.
    Building,
    /// Parked with a reason.
    Waiting,
    /// Every needed build succeeded.
    Completed,
    /// A build or an attribute failed.
    Failed,
    /// Stopped.
    Aborted,
}

impl EvaluationState {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            EvaluationState::Completed | EvaluationState::Failed | EvaluationState::Aborted => true,
            EvaluationState::Queued
            | EvaluationState::Fetching
            | EvaluationState::EvaluatingFlake
            | EvaluationState::EvaluatingDerivations
            | EvaluationState::Building
            | EvaluationState::Waiting => false,
        }
    }

    /// The name used in text and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EvaluationState::Queued => "queued",
            EvaluationState::Fetching => "fetching",
            EvaluationState::EvaluatingFlake => "evaluating_flake",
            EvaluationState::EvaluatingDerivations => "evaluating_derivations",
            EvaluationState::Building => "building",
            EvaluationState::Waiting => "waiting",
            EvaluationState::Completed => "completed",
            EvaluationState::Failed => "failed",
            EvaluationState::Aborted => "aborted",
        }
    }
}

/// How an evaluation ended by itself.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every needed build succeeded and no attribute failed.
    Completed,
    /// Something failed.
    Failed,
}

/// What an evaluation waits for (reference 3.11).
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WaitingReason {
    /// No connected worker can evaluate.
    EvalWorkers {
        /// How many are connected at all.
        connected_workers: u32,
    },
    /// No connected worker fits any build that is left.
    Workers {
        /// What nobody offers.
        unmet: Vec<UnmetRequirement>,
        /// How many are connected.
        connected_workers: u32,
    },
}

/// A requirement that no connected worker satisfies.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct UnmetRequirement {
    /// The requirement.
    pub requirement: Requirement,
    /// How many builds have it.
    pub build_count: u32,
}

/// How a hand-out ended.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum JobResult {
    /// With `JobCompleted`.
    Completed,
    /// With `JobFailed`.
    Failed(FailureKind),
}

/// Why a running job is to stop.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum AbortCause {
    /// A user canceled this very job.
    Canceled,
    /// No live evaluation wants it any more.
    Unwanted,
}

impl AbortCause {
    /// What a person reads.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            AbortCause::Canceled => "canceled by a user",
            AbortCause::Unwanted => "no evaluation wants it any more",
        }
    }
}

/// Why a hand-out ended without a report.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum AbandonReason {
    /// The worker was silent too long.
    WorkerLost,
    /// The worker left, or came back as a new session without this job.
    WorkerLeft,
    /// No `AssignJobResponse` in time.
    NotAccepted,
    /// No report in time after `AbortJob`.
    AbortUnconfirmed,
}

impl AbandonReason {
    /// The name used in text and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AbandonReason::WorkerLost => "worker_lost",
            AbandonReason::WorkerLeft => "worker_left",
            AbandonReason::NotAccepted => "not_accepted",
            AbandonReason::AbortUnconfirmed => "abort_unconfirmed",
        }
    }
}

/// Why a report was not believed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// No such hand-out is open: it ended before, or never was.
    NotOpen,
    /// The hand-out is open, but another worker or session has it.
    NotYours,
}

/// Why a job went back to the queue.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RequeueReason {
    /// The worker declined it.
    Declined,
    /// The hand-out was abandoned.
    Abandoned,
    /// A retryable failure.
    Retry,
    /// The worker stopped.
    Canceled,
}

impl RequeueReason {
    /// The name used in text and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequeueReason::Declined => "declined",
            RequeueReason::Abandoned => "abandoned",
            RequeueReason::Retry => "retry",
            RequeueReason::Canceled => "canceled",
        }
    }
}
