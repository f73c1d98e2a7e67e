//! Decisions: past tense, append-only, never renamed (protocol page, Entries).
//!
//! An event holds what was *decided*; what was *said* stands once, in the entry's input.

use gradient_domain::{
    AssignmentId, BuildId, EvaluationId, JobId, Kind, Requirement, SessionId, WorkerId,
};
use serde::{Deserialize, Serialize};

use crate::job::FailureKind;
use crate::score::{MilliPoints, OfferNumber, RulePoints, RunnerUp};

/// A decision of the scheduler.
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
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The settings of the input hold from here on.
    SettingsReplaced,

    /// A session was opened (or a known one said hello again).
    WorkerJoined {
        /// Who.
        worker: WorkerId,
        /// Which run.
        session: SessionId,
        /// Protocol version agreed on.
        protocol: u16,
    },
    /// A session was refused; nothing of it is believed.
    WorkerRejected {
        /// Who.
        worker: WorkerId,
        /// Which run.
        session: SessionId,
        /// Code of reference 2.2.
        code: u16,
        /// What a person should know.
        reason: String,
    },
    /// The capabilities of the input replace the worker's.
    CapabilitiesReplaced {
        /// Who.
        worker: WorkerId,
        /// Counted per worker, from 1.
        version: u32,
    },
    /// The metrics of the input replace the worker's.
    MetricsRecorded {
        /// Who.
        worker: WorkerId,
    },
    /// A request found no job: the slot is remembered for a while, the request is not queued.
    SlotIdle {
        /// Who.
        worker: WorkerId,
        /// Which kind of slot.
        kind: Kind,
    },
    /// Offers up to a number are owed to a worker until it scores them.
    OffersSent {
        /// To whom.
        worker: WorkerId,
        /// The last one.
        up_to: OfferNumber,
        /// Whether this is the answer to `RequestJobList`.
        list: bool,
        /// Whether nothing more is to come at the moment.
        is_final: bool,
    },
    /// The scores of the input were taken over.
    ScoresRecorded {
        /// From whom.
        worker: WorkerId,
        /// Offers up to here are answered.
        up_to: OfferNumber,
    },
    /// The worker takes no new jobs.
    WorkerDraining {
        /// Who.
        worker: WorkerId,
    },
    /// The worker was silent too long.
    WorkerLost {
        /// Who.
        worker: WorkerId,
    },
    /// The worker said goodbye, or another session of it took over.
    WorkerLeft {
        /// Who.
        worker: WorkerId,
        /// Which run of it.
        session: SessionId,
    },

    /// An evaluation exists from here on.
    EvaluationRequested {
        /// Which.
        evaluation: EvaluationId,
    },
    /// An evaluation went on.
    EvaluationAdvanced {
        /// Which.
        evaluation: EvaluationId,
        /// Its state from here on.
        state: EvaluationState,
    },
    /// The derivations of the input were recorded.
    DerivationsRecorded {
        /// For which evaluation.
        evaluation: EvaluationId,
        /// The build of each derivation of the input, in its order.
        builds: Vec<BuildId>,
        /// The builds it depends on, in the order of its dependencies.
        dependencies: Vec<Vec<BuildId>>,
    },
    /// Texts of the input were recorded.
    MessagesRecorded {
        /// For which evaluation.
        evaluation: EvaluationId,
    },
    /// An evaluation waits for something that a person can read.
    EvaluationParked {
        /// Which.
        evaluation: EvaluationId,
        /// For what.
        reason: WaitingReason,
    },
    /// What it waited for is there.
    EvaluationResumed {
        /// Which.
        evaluation: EvaluationId,
        /// Its state from here on.
        state: EvaluationState,
    },
    /// An evaluation ended by itself.
    EvaluationFinished {
        /// Which.
        evaluation: EvaluationId,
        /// How.
        verdict: Verdict,
        /// Why, if it failed for a reason of its own (not of a build or an attribute).
        error: Option<String>,
    },
    /// An evaluation was stopped.
    EvaluationAborted {
        /// Which.
        evaluation: EvaluationId,
        /// Why.
        reason: String,
    },

    /// A job may be handed out.
    JobQueued {
        /// Which.
        job: JobId,
        /// Its place in the order of offers.
        offer: OfferNumber,
    },
    /// The claim: from here on the worker runs the job under this assignment.
    JobAssigned {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// To whom.
        worker: WorkerId,
        /// Of which run of it.
        session: SessionId,
        /// The winning total.
        total: MilliPoints,
        /// Each rule's part of it.
        breakdown: Vec<RulePoints>,
        /// Version of the capabilities that were looked at.
        capabilities_version: u32,
        /// How many candidates were scored.
        considered: u32,
        /// The best of those that lost, at most 64.
        runners_up: Vec<RunnerUp>,
    },
    /// The worker runs it.
    AssignmentAccepted {
        /// The hand-out.
        assignment: AssignmentId,
    },
    /// The worker does not run it.
    AssignmentDeclined {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// Why.
        reason: String,
    },
    /// A step of the job was taken over whose data stand in the input (`FetchResult`, `BuildOutput`).
    UpdateRecorded {
        /// The hand-out.
        assignment: AssignmentId,
    },
    /// The worker is asked to stop it.
    AbortRequested {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// Why.
        cause: AbortCause,
    },
    /// The hand-out is over without a report: worker lost, no answer, server's decision.
    AssignmentAbandoned {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// Why.
        reason: AbandonReason,
    },
    /// A report was not believed: its assignment is not the open one.
    ReportDropped {
        /// Who sent it.
        worker: WorkerId,
        /// About what.
        job: JobId,
        /// Under which hand-out.
        assignment: AssignmentId,
        /// Why it is stale.
        reason: DropReason,
    },
    /// A message, command or report was refused for another reason.
    InputRefused {
        /// Why.
        reason: String,
    },
    /// The job goes back to the queue.
    JobRequeued {
        /// The job.
        job: JobId,
        /// Why.
        reason: RequeueReason,
        /// Its new place in the order of offers; `None` while it waits for its backoff.
        offer: Option<OfferNumber>,
    },
    /// The hand-out ended with a report.
    JobFinished {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// How.
        result: JobResult,
    },

    /// Builds exist from here on: the derivations with these ids, first to last.
    BuildsCreated {
        /// The first.
        first: BuildId,
        /// How many.
        count: u32,
    },
    /// Everything below these builds is done and fetchable: they are in the queue.
    BuildsReady {
        /// Which; at most 50,000.
        builds: Vec<BuildId>,
        /// Place of the first one in the order of offers; the others follow one by one.
        first_offer: OfferNumber,
    },
    /// A worker began.
    BuildStarted {
        /// Which.
        build: BuildId,
        /// Under which hand-out.
        assignment: AssignmentId,
    },
    /// Its outputs can be fetched by others.
    BuildSucceeded {
        /// Which.
        build: BuildId,
        /// Nothing was built: the outputs were there.
        substituted: bool,
    },
    /// It failed.
    BuildFailed {
        /// Which.
        build: BuildId,
        /// How.
        kind: FailureKind,
        /// Whether another attempt follows, and when (milliseconds since the epoch).
        retry_at_ms: Option<u64>,
        /// What happened.
        message: String,
    },
    /// Something below these builds failed.
    DependencyFailed {
        /// Which; at most 50,000.
        builds: Vec<BuildId>,
        /// The build whose own failure is the cause.
        cause: BuildId,
    },
    /// It was stopped, or nobody wants it any more and it ran.
    BuildAborted {
        /// Which.
        build: BuildId,
        /// Why.
        reason: String,
    },
    /// Nobody wants these builds any more and they do not run.
    BuildsSkipped {
        /// Which; at most 50,000.
        builds: Vec<BuildId>,
    },
    /// A new evaluation wants builds that had failed or been stopped: they start over.
    BuildsThawed {
        /// Which; at most 50,000.
        builds: Vec<BuildId>,
    },
    /// A sweep found something that the rules should have done at once: a bug of ours.
    SweepFound {
        /// What.
        what: String,
    },
}

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
