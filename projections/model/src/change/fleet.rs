//! Changes of `worker`, `settings`, `anomaly`, `entry_index`.

use gradient_domain::{AssignmentId, Capabilities, JobId, Kind, SessionId, Timestamp, WorkerId};
use gradient_events::Settings;
use gradient_events::worker::WorkerMetrics;

use crate::Position;
use crate::view::{AnomalyKind, Presence};

/// The settings of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsReplaced {
    /// From here on.
    pub at: Timestamp,
    /// All of them.
    pub settings: Settings,
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
