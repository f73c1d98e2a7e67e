//! Decisions: past tense, append-only, never renamed (protocol page, Entries).
//!
//! An event holds what was *decided*; what was *said* stands once, in the entry's input.

mod kinds;

use gradient_domain::{AssignmentId, BuildId, EvaluationId, JobId, Kind, SessionId, WorkerId};
use serde::{Deserialize, Serialize};

pub use kinds::{
    AbandonReason, AbortCause, DropReason, EvaluationState, JobResult, RequeueReason,
    UnmetRequirement, Verdict, WaitingReason,
};

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
#[serde(tag = "event")]
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
