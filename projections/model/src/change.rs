//! What becomes of the tables: one variant per kind of change, each kind one bulk statement.
//!
//! Every change touches rows of the keys that [`Change::keys`] names, and reads no others, but for
//! derivations, which never change once recorded. Changes with different keys may therefore be
//! applied in any order; [`Change::is_barrier`] marks the exception.

use gradient_domain::{
    AssignmentId, AttrPath, BuildId, Capabilities, EvaluationId, JobId, Kind, Requirement,
    SessionId, StorePath, Timestamp, WorkerId,
};
use gradient_events::Settings;
use gradient_events::event::{AbortCause, EvaluationState, RequeueReason};
use gradient_events::job::{FailureKind, FlakeSource, Output};
use gradient_events::score::{MilliPoints, OfferNumber, RulePoints, RunnerUp};
use gradient_events::worker::{BuiltOutput, WorkerMetrics};

use crate::Position;
use crate::view::{AnomalyKind, BuildState, MessageLevel, Outcome, Presence, Waiting};

/// Rows that a change reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The rows of an evaluation or a build, its queue entry and its hand-outs.
    Job(JobId),
    /// One hand-out.
    Assignment(AssignmentId),
    /// The entry points of an evaluation.
    EntryPoints(EvaluationId),
    /// A worker.
    Worker(WorkerId),
    /// The settings in force.
    Settings,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each struct says what it is")]
pub enum Change {
    SettingsReplaced(SettingsReplaced),
    EvaluationRequested(Box<EvaluationRequested>),
    EvaluationAdvanced(EvaluationAdvanced),
    EvaluationWaits(Box<EvaluationWaits>),
    EvaluationRetries(EvaluationRetries),
    EvaluationSource(Box<EvaluationSource>),
    EvaluationCounted(EvaluationCounted),
    EvaluationHandedOut(EvaluationHandedOut),
    EvaluationEnded(Box<EvaluationEnded>),
    EvaluationWants(EvaluationWants),
    EntryPoints(EntryPoints),
    Message(Box<Message>),
    DerivationMentioned(DerivationMentioned),
    DerivationRecorded(Box<DerivationRecorded>),
    DependenciesRecorded(DependenciesRecorded),
    BuildReady(BuildReady),
    BuildQueued(BuildQueued),
    BuildAssigned(BuildAssigned),
    BuildReleased(BuildReleased),
    BuildStarted(BuildStarted),
    BuildSucceeded(BuildSucceeded),
    BuildEnded(Box<BuildEnded>),
    BuildThawed(BuildThawed),
    AttemptOpened(AttemptOpened),
    AttemptStarted(AttemptStarted),
    AttemptOutput(Box<AttemptOutput>),
    AttemptEnded(Box<AttemptEnded>),
    JobPending(JobPending),
    JobTaken(JobTaken),
    Dispatched(Box<Dispatched>),
    DispatchAccepted(DispatchAccepted),
    DispatchAborting(DispatchAborting),
    DispatchEnded(Box<DispatchEnded>),
    WorkerJoined(Box<WorkerJoined>),
    WorkerRejected(Box<WorkerRejected>),
    WorkerCapabilities(Box<WorkerCapabilities>),
    WorkerFigures(Box<WorkerFigures>),
    WorkerIdle(WorkerIdle),
    WorkerPresence(WorkerPresence),
    Anomaly(Box<Anomaly>),
    Touched(Touched),
}

/// The settings of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsReplaced {
    /// From here on.
    pub at: Timestamp,
    /// All of them.
    pub settings: Settings,
}

/// A new row in `evaluation`.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationRequested {
    /// Which.
    pub evaluation: EvaluationId,
    /// The flake.
    pub flake: FlakeSource,
    /// Include and exclude patterns.
    pub patterns: Vec<String>,
    /// When.
    pub at: Timestamp,
    /// By which entry; the order of evaluations.
    pub position: Position,
}

/// An evaluation goes on and waits for nothing, except that a retry stays on while it is queued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationAdvanced {
    /// Which.
    pub evaluation: EvaluationId,
    /// Its new state.
    pub state: EvaluationState,
    /// When.
    pub at: Timestamp,
}

/// An evaluation waits. The same reason again keeps the moment it began.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationWaits {
    /// Which.
    pub evaluation: EvaluationId,
    /// Its new state.
    pub state: EvaluationState,
    /// For what.
    pub reason: Waiting,
    /// When.
    pub at: Timestamp,
}

/// An evaluation that waited for its next try is in the queue again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationRetries {
    /// Which.
    pub evaluation: EvaluationId,
}

/// The source of an evaluation was fetched.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationSource {
    /// Which.
    pub evaluation: EvaluationId,
    /// Where it lies.
    pub flake_source: StorePath,
    /// What is evaluated.
    pub locked_url: String,
}

/// More texts of an evaluation: added to its counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationCounted {
    /// Which.
    pub evaluation: EvaluationId,
    /// More errors.
    pub errors: u64,
    /// More warnings.
    pub warnings: u64,
}

/// One more hand-out of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationHandedOut {
    /// Which.
    pub evaluation: EvaluationId,
    /// When; the first one is its start.
    pub at: Timestamp,
}

/// The end of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationEnded {
    /// Which.
    pub evaluation: EvaluationId,
    /// A terminal state.
    pub state: EvaluationState,
    /// Why, if for a reason of its own.
    pub error: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// An evaluation wants these builds and, below them, all that is not built yet. A barrier: it reads
/// states and dependencies of builds that it does not name.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationWants {
    /// Which.
    pub evaluation: EvaluationId,
    /// Where the walk begins.
    pub builds: Vec<BuildId>,
}

/// Attributes and their builds; a later build of the same attribute replaces the earlier.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryPoints {
    /// Of which evaluation.
    pub evaluation: EvaluationId,
    /// Attribute and build.
    pub points: Vec<(AttrPath, BuildId)>,
}

/// A new row in `evaluation_message`.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Of which evaluation.
    pub evaluation: EvaluationId,
    /// By which entry.
    pub position: Position,
    /// Which of the entry's.
    pub ordinal: u32,
    /// How bad.
    pub level: MessageLevel,
    /// Of which attribute.
    pub attr: Option<AttrPath>,
    /// What.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// New rows in `derivation` and `build`: the path is known, nothing else yet.
#[derive(Clone, Debug, PartialEq)]
pub struct DerivationMentioned {
    /// Its build.
    pub build: BuildId,
    /// Its file.
    pub drv_path: StorePath,
    /// When.
    pub at: Timestamp,
}

/// What a derivation is. Only the first record counts; later ones say the same.
#[derive(Clone, Debug, PartialEq)]
pub struct DerivationRecorded {
    /// Its build.
    pub build: BuildId,
    /// By which entry.
    pub position: Position,
    /// System and features.
    pub requirement: Requirement,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// Whether an output's hash is given in advance.
    pub is_fixed_output: bool,
    /// Whether it prefers a worker that has its inputs.
    pub prefer_local_build: bool,
    /// Package name without version.
    pub pname: Option<String>,
}

/// The edges of a derivation, if the record of this very entry was its first.
#[derive(Clone, Debug, PartialEq)]
pub struct DependenciesRecorded {
    /// Its build.
    pub build: BuildId,
    /// By which entry.
    pub position: Position,
    /// What it needs: build and names of outputs.
    pub dependencies: Vec<(BuildId, Vec<String>)>,
}

/// Everything below a build is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildReady {
    /// Which.
    pub build: BuildId,
    /// When.
    pub at: Timestamp,
}

/// A build is in the queue (again).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildQueued {
    /// Which.
    pub build: BuildId,
}

/// A build was handed out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildAssigned {
    /// Which.
    pub build: BuildId,
    /// Under which id.
    pub assignment: AssignmentId,
}

/// The hand-out of a build ended; what becomes of it is another change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildReleased {
    /// Which.
    pub build: BuildId,
    /// Of which hand-out; another one is left alone.
    pub assignment: AssignmentId,
}

/// A worker began a build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildStarted {
    /// Which.
    pub build: BuildId,
    /// When.
    pub at: Timestamp,
}

/// A build succeeded: its outputs are those that its open hand-out reported, or else those of its
/// derivation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildSucceeded {
    /// Which.
    pub build: BuildId,
    /// Nothing was built.
    pub substituted: bool,
    /// When.
    pub at: Timestamp,
}

/// A build ended without success, or waits for another try.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildEnded {
    /// Which.
    pub build: BuildId,
    /// Its new state.
    pub state: BuildState,
    /// What happened.
    pub message: Option<String>,
    /// The build whose failure is the cause.
    pub cause: Option<BuildId>,
    /// When it comes back.
    pub retry_at: Option<Timestamp>,
    /// When.
    pub at: Timestamp,
}

/// A build starts over for a new evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildThawed {
    /// Which.
    pub build: BuildId,
    /// When.
    pub at: Timestamp,
}

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

/// A session of a worker is open. Another session than the known one starts from nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerJoined {
    /// Who.
    pub worker: WorkerId,
    /// Which run.
    pub session: SessionId,
    /// Name shown to people.
    pub name: String,
    /// May fetch.
    pub fetch: bool,
    /// May evaluate.
    pub eval: bool,
    /// May build.
    pub build: bool,
    /// Protocol version agreed on.
    pub protocol: u16,
    /// When.
    pub at: Timestamp,
}

/// A session was refused; a known worker stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerRejected {
    /// Who.
    pub worker: WorkerId,
    /// Which run.
    pub session: SessionId,
    /// Code of reference 2.2.
    pub code: u16,
    /// What a person should know.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// What a worker offers from here on.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerCapabilities {
    /// Who.
    pub worker: WorkerId,
    /// Counted per worker.
    pub version: u32,
    /// All of it.
    pub capabilities: Capabilities,
}

/// The newest figures of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerFigures {
    /// Who.
    pub worker: WorkerId,
    /// The figures.
    pub metrics: WorkerMetrics,
    /// When.
    pub at: Timestamp,
}

/// Whether a slot of a worker asked in vain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerIdle {
    /// Who.
    pub worker: WorkerId,
    /// Which kind of slot.
    pub kind: Kind,
    /// Since when; `None`: it got a job.
    pub since: Option<Timestamp>,
}

/// Whether a worker is here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerPresence {
    /// Who.
    pub worker: WorkerId,
    /// How.
    pub presence: Presence,
    /// When.
    pub at: Timestamp,
}

/// A new row in `anomaly`: something was not believed, refused or found by a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Anomaly {
    /// By which entry.
    pub position: Position,
    /// Which of the entry's.
    pub ordinal: u32,
    /// What kind.
    pub kind: AnomalyKind,
    /// Who sent it.
    pub worker: Option<WorkerId>,
    /// About what.
    pub job: Option<JobId>,
    /// Under which hand-out.
    pub assignment: Option<AssignmentId>,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// A new row in `entry_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Who or what.
    pub subject: Subject,
    /// By which entry.
    pub position: Position,
}

/// Something that entries are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A build or an evaluation.
    Job(JobId),
    /// A worker.
    Worker(WorkerId),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Job(job) => job.fmt(f),
            Subject::Worker(worker) => write!(f, "worker:{worker}"),
        }
    }
}

impl Change {
    /// The rows that it reads or writes; none for a row that only this change ever touches.
    #[must_use]
    pub fn keys(&self) -> [Option<Key>; 2] {
        let one = |key| [Some(key), None];
        let evaluation = |id: EvaluationId| one(Key::Job(JobId::Evaluate(id)));
        let build = |id: BuildId| one(Key::Job(JobId::Build(id)));
        let hand_out =
            |job: JobId, id: AssignmentId| [Some(Key::Job(job)), Some(Key::Assignment(id))];
        let attempt = |id: BuildId, assignment| hand_out(JobId::Build(id), assignment);
        match self {
            Change::SettingsReplaced(_) => one(Key::Settings),
            Change::EvaluationRequested(c) => evaluation(c.evaluation),
            Change::EvaluationAdvanced(c) => evaluation(c.evaluation),
            Change::EvaluationWaits(c) => evaluation(c.evaluation),
            Change::EvaluationRetries(c) => evaluation(c.evaluation),
            Change::EvaluationSource(c) => evaluation(c.evaluation),
            Change::EvaluationCounted(c) => evaluation(c.evaluation),
            Change::EvaluationHandedOut(c) => evaluation(c.evaluation),
            Change::EvaluationEnded(c) => evaluation(c.evaluation),
            Change::EntryPoints(c) => one(Key::EntryPoints(c.evaluation)),
            Change::DerivationMentioned(c) => build(c.build),
            Change::DerivationRecorded(c) => build(c.build),
            Change::DependenciesRecorded(c) => build(c.build),
            Change::BuildReady(c) => build(c.build),
            Change::BuildQueued(c) => build(c.build),
            Change::BuildAssigned(c) => build(c.build),
            Change::BuildReleased(c) => build(c.build),
            Change::BuildStarted(c) => build(c.build),
            Change::BuildSucceeded(c) => build(c.build),
            Change::BuildEnded(c) => build(c.build),
            Change::BuildThawed(c) => build(c.build),
            Change::AttemptOpened(c) => attempt(c.build, c.assignment),
            Change::AttemptStarted(c) => attempt(c.build, c.assignment),
            Change::AttemptOutput(c) => attempt(c.build, c.assignment),
            Change::AttemptEnded(c) => attempt(c.build, c.assignment),
            Change::JobPending(c) => one(Key::Job(c.job)),
            Change::JobTaken(c) => one(Key::Job(c.job)),
            Change::Dispatched(c) => hand_out(c.job, c.assignment),
            Change::DispatchAccepted(c) => one(Key::Assignment(c.assignment)),
            Change::DispatchAborting(c) => hand_out(c.job, c.assignment),
            Change::DispatchEnded(c) => hand_out(c.job, c.assignment),
            Change::WorkerJoined(c) => one(Key::Worker(c.worker)),
            Change::WorkerRejected(c) => one(Key::Worker(c.worker)),
            Change::WorkerCapabilities(c) => one(Key::Worker(c.worker)),
            Change::WorkerFigures(c) => one(Key::Worker(c.worker)),
            Change::WorkerIdle(c) => one(Key::Worker(c.worker)),
            Change::WorkerPresence(c) => one(Key::Worker(c.worker)),
            Change::EvaluationWants(_)
            | Change::Message(_)
            | Change::Anomaly(_)
            | Change::Touched(_) => [None, None],
        }
    }

    /// Whether it must see everything before it and be seen by everything after it.
    #[must_use]
    pub fn is_barrier(&self) -> bool {
        matches!(self, Change::EvaluationWants(_))
    }
}
