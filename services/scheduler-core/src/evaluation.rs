//! Evaluations: one run of patterns over a flake, and the builds it wants.

use gradient_domain::flake::FetchOptions;
use gradient_domain::{AssignmentId, BuildId, EvaluationId, Timestamp};
use gradient_events::FlakeSource;
use gradient_events::event::{EvaluationState, WaitingReason};

/// Position of an evaluation in the order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvaluationIndex(pub u32);

/// One evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Its id.
    pub id: EvaluationId,
    /// The flake.
    pub flake: FlakeSource,
    /// Include and exclude patterns.
    pub patterns: Vec<String>,
    /// How the flake is fetched and locked.
    pub fetch: Box<FetchOptions>,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// How far it is.
    pub state: EvaluationState,
    /// What it waits for, and since when; set exactly while the state is `Waiting`.
    pub waiting: Option<(WaitingReason, Timestamp)>,
    /// The open hand-out of its job.
    pub assignment: Option<AssignmentId>,
    /// Hand-outs of its job that a worker accepted, so far.
    pub accepted: u32,
    /// Retryable failures of its job so far.
    pub failures: u32,
    /// When its job comes back after such a failure.
    pub backoff_until: Option<Timestamp>,
    /// Whether its job is over: everything it will ever want is recorded.
    pub discovered: bool,
    /// Error texts so far: any one fails it in the end.
    pub errors: u32,
    /// Why its job failed as a whole.
    pub job_error: Option<String>,
    /// Every build it wants, in order of discovery.
    pub builds: Vec<BuildId>,
    /// Those of them that are not over.
    pub open: u32,
    /// Those of them that ended without success.
    pub failed: u32,
}

impl Evaluation {
    /// Whether its end can be told: all is found and nothing is left to build.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.state.is_terminal() && self.discovered && self.open == 0
    }
}
