//! Builds and their attempts.

use gradient_domain::{
    AssignmentId, BuildId, EvaluationId, Requirement, StorePath, Timestamp, WorkerId,
};
use serde::{Deserialize, Serialize};

use super::{BuildState, Outcome, Waiting};

/// One build in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BuildSummary {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: BuildId,
    /// Its derivation.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub drv_path: StorePath,
    /// Package name without version, if the derivation says one.
    pub pname: Option<String>,
    /// System and features, once recorded.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub requirement: Option<Requirement>,
    /// How far it is.
    pub state: BuildState,
    /// Hand-outs so far.
    pub attempts: u64,
    /// Retryable failures in this round.
    pub failures: u64,
    /// When it was first wanted, or wanted again.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub wanted_at: Timestamp,
    /// When everything below it was there.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub ready_at: Option<Timestamp>,
    /// When the last attempt began.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub finished_at: Option<Timestamp>,
    /// When it comes back.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub retry_at: Option<Timestamp>,
    /// What went wrong.
    pub message: Option<String>,
    /// The build below it whose failure is the cause.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<BuildId>,
}

/// An output: planned, or made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BuildOutput {
    /// Its name.
    pub name: String,
    /// Its path; `null` while it is not known.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub path: Option<StorePath>,
    /// SHA-256 of its NAR, once it is made.
    #[serde(default)]
    pub nar_hash: Option<String>,
    /// Size of its NAR in bytes, once it is made.
    #[serde(default)]
    pub nar_size: Option<u64>,
}

/// One build with its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BuildDetail {
    /// The build.
    pub build: BuildSummary,
    /// What it waits for, if it waits.
    pub waiting: Option<Waiting>,
    /// What it made or will make.
    pub outputs: Vec<BuildOutput>,
    /// Whether an output's hash is given in advance.
    pub is_fixed_output: bool,
    /// Direct inputs that are derivations.
    pub dependencies: u64,
    /// Builds that need it directly.
    pub dependents: u64,
    /// Evaluations that want it, newest first, at most 100.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub evaluations: Vec<EvaluationId>,
    /// Its hand-outs, oldest first, the last 100.
    pub attempts: Vec<Attempt>,
}

/// One hand-out of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attempt {
    /// The hand-out.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub assignment: AssignmentId,
    /// To whom.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub worker: WorkerId,
    /// Name of the worker.
    pub worker_name: Option<String>,
    /// When it was handed out.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub assigned_at: Timestamp,
    /// When the worker began.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub finished_at: Option<Timestamp>,
    /// How it ended; `null` while it runs.
    pub outcome: Option<Outcome>,
    /// The kind of failure.
    pub failure: Option<String>,
    /// What happened.
    pub message: Option<String>,
    /// Inputs that could not be had.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub missing_paths: Vec<StorePath>,
    /// Nothing was built: the outputs were there.
    pub substituted: Option<bool>,
    /// Time of the builder itself, in milliseconds.
    pub build_time_ms: Option<u64>,
    /// Time spent on it by the worker's own clock, in milliseconds.
    pub elapsed_ms: Option<u64>,
}
