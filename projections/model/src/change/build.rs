//! Changes of `derivation`, `derivation_dependency`, `build`.

use gradient_domain::{AssignmentId, BuildId, Requirement, StorePath, Timestamp};
use gradient_events::job::Output;

use crate::Position;
use crate::view::BuildState;

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
