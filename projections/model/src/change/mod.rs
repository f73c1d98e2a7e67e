//! What becomes of the tables: one variant per kind of change, each kind one bulk statement.
//!
//! Every change touches rows of the keys that [`Change::keys`] names, and reads no others, but for
//! derivations, which never change once recorded. Changes with different keys may therefore be
//! applied in any order; [`Change::is_barrier`] marks the exception.

mod build;
mod evaluation;
mod fleet;
mod job;

use gradient_domain::{AssignmentId, BuildId, EvaluationId, JobId, WorkerId};

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
