//! Hand-outs: one job given to one worker under one id.

use gradient_domain::{JobId, Timestamp, WorkerId};
use gradient_events::event::AbortCause;
use gradient_events::worker::BuiltOutput;

/// An open hand-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The job.
    pub job: JobId,
    /// Who has it.
    pub worker: WorkerId,
    /// When it was claimed.
    pub at: Timestamp,
    /// How far it is.
    pub phase: Phase,
    /// Outputs reported ahead of `JobCompleted`.
    pub built: Option<Built>,
}

/// How far a hand-out is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Claimed; no answer yet.
    Claimed,
    /// The worker runs it.
    Accepted,
    /// The worker was asked to stop it.
    Aborting {
        /// When.
        since: Timestamp,
        /// Why.
        cause: AbortCause,
    },
}

/// What a build made, before the worker said that others can fetch it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// Every output.
    pub outputs: Vec<BuiltOutput>,
    /// Nothing was built: the outputs were there.
    pub substituted: bool,
}
