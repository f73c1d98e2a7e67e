//! What becomes of the tables: one variant per kind of change, each kind one bulk statement.
//!
//! Every change touches rows of the keys that [`Change::keys`] names, and reads no others. Changes
//! with different keys may therefore be applied in any order; [`Change::graph`] names the exception,
//! the walk over a graph that other changes grow.

mod build;
mod evaluation;
mod fleet;
mod job;

use gradient_domain::{AssignmentId, BuildId, EvaluationId, JobId, Kind, WorkerId};

pub use build::*;
pub use evaluation::*;
pub use fleet::*;
pub use job::*;

/// Rows that a change reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The rows of an evaluation or a build, its queue entry and its hand-outs.
    Job(JobId),
    /// One hand-out.
    Assignment(AssignmentId),
    /// The entry points of an evaluation.
    EntryPoints(EvaluationId),
    /// The builds that an evaluation wants.
    Wants(EvaluationId),
    /// A worker.
    Worker(WorkerId),
    /// One kind of slot of a worker: since when it is idle.
    Slot(WorkerId, Kind),
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

impl Change {
    /// The rows that it reads or writes; none for a row that only this change ever touches.
    #[must_use]
    pub fn keys(&self) -> [Option<Key>; 3] {
        let slots = |id: WorkerId| {
            let slot = |kind| Some(Key::Slot(id, kind));
            [Some(Key::Worker(id)), slot(Kind::Evaluate), slot(Kind::Build)]
        };
        let one = |key| [Some(key), None, None];
        let evaluation = |id: EvaluationId| one(Key::Job(JobId::Evaluate(id)));
        let build = |id: BuildId| one(Key::Job(JobId::Build(id)));
        let hand_out =
            |job: JobId, id: AssignmentId| [Some(Key::Job(job)), Some(Key::Assignment(id)), None];
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
            Change::EvaluationWants(c) => one(Key::Wants(c.evaluation)),
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
            Change::WorkerJoined(c) => slots(c.worker),
            Change::WorkerRejected(c) => slots(c.worker),
            Change::WorkerCapabilities(c) => one(Key::Worker(c.worker)),
            Change::WorkerFigures(c) => one(Key::Worker(c.worker)),
            Change::WorkerIdle(c) => one(Key::Slot(c.worker, c.kind)),
            Change::WorkerPresence(c) => slots(c.worker),
            Change::Message(_) | Change::Anomaly(_) | Change::Touched(_) => [None, None, None],
        }
    }

    /// What it has to do with the graph of builds as a whole, if anything: a walk sees what grew
    /// before it, and nothing that grows after it.
    #[must_use]
    pub fn graph(&self) -> Option<Graph> {
        match self {
            Change::EvaluationWants(_) => Some(Graph::Walks),
            // Whether a build is done is all that a walk asks of its state, and success is for ever.
            Change::DerivationMentioned(_)
            | Change::DependenciesRecorded(_)
            | Change::BuildSucceeded(_) => Some(Graph::Grows),
            _ => None,
        }
    }

    /// Whether it leaves nothing of an earlier change of the same kind with the same keys.
    #[must_use]
    pub fn overwrites(&self) -> bool {
        matches!(
            self,
            Change::WorkerIdle(_) | Change::WorkerFigures(_) | Change::SettingsReplaced(_)
        )
    }
}

/// How a change depends on the graph of builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// It adds nodes or edges, or ends walks at a build that is done.
    Grows,
    /// It walks along edges to builds that it does not name.
    Walks,
}
