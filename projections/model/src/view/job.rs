//! The queue and the hand-outs.

use gradient_domain::{AssignmentId, JobId, Kind, Requirement, SessionId, Timestamp, WorkerId};
use gradient_events::score::{MilliPoints, RulePoints, RunnerUp};
use serde::{Deserialize, Serialize};

use super::Outcome;

/// A job in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PendingJob {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub job: JobId,
    /// Which kind of slot it takes.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: Kind,
    /// What to show: name of the derivation, or the flake.
    pub label: String,
    /// Its place in the order of offers.
    pub offer: u64,
    /// System and features; builds only.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub requirement: Option<Requirement>,
    /// When it was asked for: a build when it was first wanted, an evaluation when it was submitted.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub queued_at: Timestamp,
    /// When it could first run.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub ready_at: Timestamp,
    /// When it took its present place.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub offered_at: Timestamp,
    /// How often it was handed out before.
    pub hand_outs: u64,
    /// Why it came back: `declined`, `abandoned`, `retry`, `canceled`.
    pub requeue_reason: Option<String>,
}

/// A hand-out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DispatchedJob {
    /// The hand-out.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub assignment: AssignmentId,
    /// The job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub job: JobId,
    /// Which kind of slot it takes.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: Kind,
    /// What to show: name of the derivation, or the flake.
    pub label: String,
    /// To whom.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub worker: WorkerId,
    /// Name of the worker.
    pub worker_name: Option<String>,
    /// Of which run of it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// When the job was asked for.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub queued_at: Timestamp,
    /// When it could first run.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub ready_at: Timestamp,
    /// When it was handed out.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub assigned_at: Timestamp,
    /// When the worker took it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub accepted_at: Option<Timestamp>,
    /// When the worker was asked to stop it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub abort_requested_at: Option<Timestamp>,
    /// When it ended.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub finished_at: Option<Timestamp>,
    /// How it ended; `null` while it is open.
    pub outcome: Option<Outcome>,
    /// The kind of failure, the reason of the abandoning or declining.
    pub reason: Option<String>,
    /// The winning total, in thousandths of a point.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub total: MilliPoints,
    /// Each rule's part of it.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub breakdown: Vec<RulePoints>,
    /// How many candidates were scored.
    pub considered: u64,
    /// The best of those that lost.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub runners_up: Vec<RunnerUp>,
    /// Version of the capabilities that were looked at.
    pub capabilities_version: u64,
    /// Sequence of the entry in the log.
    pub log_sequence: u64,
    /// Index of the entry in its message.
    pub log_index: u32,
}
