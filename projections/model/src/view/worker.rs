//! Workers.

use gradient_domain::{AssignmentId, Capabilities, JobId, SessionId, Timestamp, WorkerId};
use gradient_events::worker::WorkerMetrics;
use serde::{Deserialize, Serialize};

use super::Presence;

/// One worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Worker {
    /// Who.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: WorkerId,
    /// Name shown to people.
    pub name: String,
    /// Which run of it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// Whether it is here.
    pub presence: Presence,
    /// May fetch.
    pub fetch: bool,
    /// May evaluate.
    pub eval: bool,
    /// May build.
    pub build: bool,
    /// Protocol version agreed on.
    pub protocol: u32,
    /// What it offers, once it said so.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub capabilities: Option<Capabilities>,
    /// Counted per worker.
    pub capabilities_version: u64,
    /// Its newest figures.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metrics: Option<WorkerMetrics>,
    /// When they came.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub metrics_at: Option<Timestamp>,
    /// When this session began.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub joined_at: Timestamp,
    /// Since when it is present as it is.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub presence_at: Timestamp,
    /// Since when an evaluation slot asks in vain.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub idle_evaluate_since: Option<Timestamp>,
    /// Since when a build slot asks in vain.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub idle_build_since: Option<Timestamp>,
    /// Why a session of it was refused last, if that was after it joined.
    pub rejection: Option<String>,
    /// What it runs, oldest first.
    pub running: Vec<RunningJob>,
}

/// A job that a worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunningJob {
    /// The hand-out.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub assignment: AssignmentId,
    /// The job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub job: JobId,
    /// What to show: name of the derivation, or the flake.
    pub label: String,
    /// When it was handed out.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub assigned_at: Timestamp,
    /// Whether the worker took it.
    pub accepted: bool,
}
