//! Changes of `evaluation`, `evaluation_build`, `entry_point`, `evaluation_message`.

use gradient_domain::{AttrPath, BuildId, EvaluationId, StorePath, Timestamp};
use gradient_events::event::EvaluationState;
use gradient_events::job::FlakeSource;

use crate::Position;
use crate::view::{MessageLevel, Waiting};

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

/// The job of an evaluation is in the queue, for the first time or again. What an earlier run said is
/// history: a new run says again what went wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationRetries {
    /// Which.
    pub evaluation: EvaluationId,
    /// Which entry queued it.
    pub position: Position,
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

/// An evaluation wants these builds and, below them, all that is not built yet. It walks over the
/// graph: it reads states and dependencies of builds that it does not name.
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
