//! Changes of `pending_job`, `dispatched_job`, `build_attempt`.

use gradient_domain::{AssignmentId, BuildId, JobId, SessionId, StorePath, Timestamp, WorkerId};
use gradient_events::event::{AbortCause, RequeueReason};
use gradient_events::job::FailureKind;
use gradient_events::score::{MilliPoints, OfferNumber, RulePoints, RunnerUp};
use gradient_events::worker::BuiltOutput;

use crate::Position;
use crate::view::Outcome;

/// A new row in `build_attempt`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptOpened {
    /// The hand-out.
    pub assignment: AssignmentId,
    /// Of which build.
    pub build: BuildId,
    /// To whom.
    pub worker: WorkerId,
    /// When.
    pub at: Timestamp,
}

/// The worker began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptStarted {
    /// The hand-out.
    pub assignment: AssignmentId,
    /// Of which build.
    pub build: BuildId,
    /// When.
    pub at: Timestamp,
}

/// What an attempt made.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptOutput {
    /// The hand-out.
    pub assignment: AssignmentId,
    /// Of which build.
    pub build: BuildId,
    /// Every output.
    pub outputs: Vec<BuiltOutput>,
    /// Nothing was built.
    pub substituted: bool,
    /// Time of the builder itself, in milliseconds.
    pub build_time_ms: u64,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptEnded {
    /// The hand-out.
    pub assignment: AssignmentId,
    /// Of which build.
    pub build: BuildId,
    /// How.
    pub outcome: Outcome,
    /// How it failed.
    pub failure: Option<FailureKind>,
    /// What happened.
    pub message: Option<String>,
    /// Inputs that could not be had.
    pub missing_paths: Vec<StorePath>,
    /// Time spent on it by the worker's own clock, in milliseconds.
    pub elapsed_ms: Option<u64>,
    /// When.
    pub at: Timestamp,
}

/// The row of a job in `pending_job`, new or again. What the job needs, since when it waits and how
/// often it was handed out before stand in its own rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobPending {
    /// Which.
    pub job: JobId,
    /// Its place.
    pub offer: OfferNumber,
    /// Why it came back.
    pub reason: Option<RequeueReason>,
    /// When.
    pub at: Timestamp,
    /// By which entry.
    pub position: Position,
}

/// A job leaves the queue, if it is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobTaken {
    /// Which.
    pub job: JobId,
}

/// A new row in `dispatched_job`: exactly one per hand-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatched {
    /// The hand-out.
    pub assignment: AssignmentId,
    /// Of which job.
    pub job: JobId,
    /// To whom.
    pub worker: WorkerId,
    /// Of which run of it.
    pub session: SessionId,
    /// When.
    pub at: Timestamp,
    /// The winning total.
    pub total: MilliPoints,
    /// Each rule's part of it.
    pub breakdown: Vec<RulePoints>,
    /// How many candidates were scored.
    pub considered: u32,
    /// The best of those that lost.
    pub runners_up: Vec<RunnerUp>,
    /// Version of the capabilities that were looked at.
    pub capabilities_version: u32,
    /// By which entry.
    pub position: Position,
}

/// The worker runs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchAccepted {
    /// The hand-out.
    pub assignment: AssignmentId,
    /// When.
    pub at: Timestamp,
}

/// The worker is asked to stop it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchAborting {
    /// The hand-out.
    pub assignment: AssignmentId,
    /// Of which job.
    pub job: JobId,
    /// Why.
    pub cause: AbortCause,
    /// When.
    pub at: Timestamp,
}

/// The end of a hand-out.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchEnded {
    /// The hand-out.
    pub assignment: AssignmentId,
    /// Of which job.
    pub job: JobId,
    /// How.
    pub outcome: Outcome,
    /// The kind of failure, the reason of the abandoning or declining.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}
