//! The whole at a glance.

use gradient_domain::{AssignmentId, JobId, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use super::{AnomalyKind, BuildCounts};

/// How far the tables are behind the log, and what is in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// Version of the server.
    pub version: String,
    /// Sequence in the log up to which the tables are.
    pub position: u64,
    /// Messages in the log that the tables do not show yet; `null` if the log does not answer.
    pub lag: Option<u64>,
    /// What is in the tables.
    pub counts: Counts,
}

/// What is in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counts {
    /// Evaluations.
    pub evaluations: u64,
    /// Those that are not over.
    pub live_evaluations: u64,
    /// Builds by state.
    pub builds: BuildCounts,
    /// Jobs in the queue.
    pub pending_jobs: u64,
    /// Hand-outs that are open.
    pub open_jobs: u64,
    /// Hand-outs ever.
    pub dispatched_jobs: u64,
    /// Workers that are here.
    pub connected_workers: u64,
    /// Workers ever seen.
    pub workers: u64,
    /// Reports dropped, inputs refused, sessions rejected, finds of the sweep.
    pub anomalies: u64,
}

/// Something that was not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Anomaly {
    /// Sequence of the entry in the log.
    pub log_sequence: u64,
    /// What kind.
    pub kind: AnomalyKind,
    /// Who sent it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub worker: Option<WorkerId>,
    /// About what.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub job: Option<JobId>,
    /// Under which hand-out.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub assignment: Option<AssignmentId>,
    /// Why.
    pub reason: String,
    /// When.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub at: Timestamp,
}
