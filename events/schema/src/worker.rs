//! Worker → scheduler: `gradient.cmd.worker.<id>` and `gradient.hb.<id>` (reference 2.3, 2.6).

use gradient_domain::{
    AssignmentId, AttrPath, Capabilities, JobId, Kind, Requirement, SessionId, StorePath,
};
use serde::{Deserialize, Serialize};

use crate::envelope::wire_v1;
use crate::job::{FailureKind, Output};
use crate::score::{CandidateScore, OfferNumber};

/// A message with the session that sent it.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct FromWorker {
    /// The run of the worker process that speaks; older sessions are stale.
    pub session: SessionId,
    /// What it says.
    pub message: WorkerMessage,
}
wire_v1!(FromWorker, "worker");

/// What a worker says.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(tag = "type")]
pub enum WorkerMessage {
    /// First message of a session, and again after a reconnect or a gap in deliveries.
    Hello(Hello),
    /// What the worker offers; a later one replaces the fields (spec, Capabilities).
    WorkerCapabilities {
        /// The whole set.
        capabilities: Capabilities,
    },
    /// Asks for the full list of candidates.
    RequestJobList,
    /// Scores for offered candidates (spec, Offers).
    RequestJobChunk {
        /// At most 1,000.
        scores: Vec<CandidateScore>,
        /// Every offer up to this one is answered by this chunk and those before it.
        up_to: OfferNumber,
        /// Whether this was the last chunk of its answer.
        is_final: bool,
    },
    /// Asks for one job for one free slot.
    RequestJob {
        /// Of which kind.
        kind: Kind,
    },
    /// Takes or declines an assignment.
    AssignJobResponse {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// Whether the worker runs it.
        accepted: bool,
        /// Why not.
        reason: Option<String>,
    },
    /// A step of a running job.
    JobUpdate {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// The step.
        update: JobUpdate,
    },
    /// The job is done and its results can be fetched by others.
    JobCompleted {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// Time spent on it by the worker's own clock, in milliseconds.
        elapsed_ms: u64,
    },
    /// The job failed.
    JobFailed {
        /// The job.
        job: JobId,
        /// The hand-out.
        assignment: AssignmentId,
        /// How.
        kind: FailureKind,
        /// What happened; at most 8 KiB.
        error: String,
        /// Inputs that could not be had.
        missing_paths: Vec<StorePath>,
        /// Time spent on it by the worker's own clock, in milliseconds.
        elapsed_ms: u64,
    },
    /// No new jobs, please.
    Draining,
    /// The session ends now.
    Goodbye,
}

impl WorkerMessage {
    /// The hand-out that it reports on, if it is a report.
    #[must_use]
    pub fn reported(&self) -> Option<OpenAssignment> {
        match self {
            WorkerMessage::AssignJobResponse { job, assignment, .. }
            | WorkerMessage::JobUpdate { job, assignment, .. }
            | WorkerMessage::JobCompleted { job, assignment, .. }
            | WorkerMessage::JobFailed { job, assignment, .. } => {
                Some(OpenAssignment { job: *job, assignment: *assignment })
            }
            WorkerMessage::Hello(_)
            | WorkerMessage::WorkerCapabilities { .. }
            | WorkerMessage::RequestJobList
            | WorkerMessage::RequestJobChunk { .. }
            | WorkerMessage::RequestJob { .. }
            | WorkerMessage::Draining
            | WorkerMessage::Goodbye => None,
        }
    }
}

/// Opens a session.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct Hello {
    /// Counted by the session; the answer to this very hello echoes it.
    pub greeting: u32,
    /// Name shown to people, at most 64 characters.
    pub name: String,
    /// May fetch sources.
    pub fetch: bool,
    /// May evaluate.
    pub eval: bool,
    /// May build.
    pub build: bool,
    /// Oldest protocol version spoken.
    pub protocol_oldest: u16,
    /// Newest protocol version spoken.
    pub protocol_newest: u16,
    /// Assignments that the worker believes it runs, or whose end it could not report yet.
    pub open_assignments: Vec<OpenAssignment>,
}

/// A job that a worker believes it runs.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct OpenAssignment {
    /// The job.
    pub job: JobId,
    /// The hand-out.
    pub assignment: AssignmentId,
}

/// A step of a running job (reference 2.6).
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(tag = "step")]
pub enum JobUpdate {
    /// The source is being fetched.
    Fetching,
    /// The source is here.
    FetchResult {
        /// Its store path.
        flake_source: StorePath,
        /// The locked reference that is evaluated.
        locked_url: String,
    },
    /// The flake is being locked and its outputs opened.
    EvaluatingFlake,
    /// Attributes are being listed and instantiated.
    EvaluatingDerivations,
    /// A batch of what was found; its `.drv` files and sources are in the cache already.
    EvalResult(EvalResult),
    /// The build begins.
    Building,
    /// What the build made.
    BuildOutput {
        /// Every output.
        outputs: Vec<BuiltOutput>,
        /// Nothing was built: the outputs were there.
        substituted: bool,
        /// Time of the builder itself, in milliseconds.
        build_time_ms: u64,
    },
}

/// A batch of discovered derivations: at most 1,000 and 256 KiB.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct EvalResult {
    /// Derivations with all their edges. An edge may point at one that comes in a later batch.
    pub derivations: Vec<DiscoveredDerivation>,
    /// Warnings of the evaluation.
    pub warnings: Vec<EvalMessage>,
    /// Errors; any one of them fails the evaluation in the end.
    pub errors: Vec<EvalMessage>,
}

/// A text of the evaluation, tied to the attribute that caused it where that is known.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct EvalMessage {
    /// The attribute.
    pub attr: Option<AttrPath>,
    /// The text; at most 16 KiB.
    pub text: String,
}

/// One derivation as the evaluation found it.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct DiscoveredDerivation {
    /// Every attribute that is this derivation; empty for one that is only depended on.
    pub attrs: Vec<AttrPath>,
    /// Its file.
    pub drv_path: StorePath,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// The derivations it needs, with the outputs it uses.
    pub dependencies: Vec<Dependency>,
    /// System and features.
    pub requirement: Requirement,
    /// Whether an output's hash is given in advance.
    pub is_fixed_output: bool,
    /// Whether it prefers a worker that has its inputs.
    pub prefer_local_build: bool,
    /// Wall-clock limit of its own, in seconds.
    pub timeout_secs: Option<u64>,
    /// Silence limit of its own, in seconds.
    pub max_silent_secs: Option<u64>,
    /// Package name without version, if it says one.
    pub pname: Option<String>,
}

/// An edge of the derivation graph.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct Dependency {
    /// What is needed.
    pub drv_path: StorePath,
    /// Which of its outputs.
    pub outputs: Vec<String>,
}

/// An output that exists now.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct BuiltOutput {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: StorePath,
    /// SHA-256 of its NAR, `sha256:<base 32>`.
    pub nar_hash: String,
    /// Size of its NAR in bytes.
    pub nar_size: u64,
}

/// Live figures of a worker, every 10 s (spec, Metrics and Liveness). Whole numbers: the core knows
/// no floats.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct WorkerMetrics {
    /// Processor use of the whole machine, percent.
    pub cpu_usage_pct: u32,
    /// Available memory, MiB.
    pub ram_free_mb: u64,
    /// MiB/s, mean of recent builds.
    pub disk_speed_mbps: Option<u32>,
    /// Mbit/s, mean of recent uploads.
    pub upload_speed_mbps: Option<u32>,
    /// Mbit/s, mean of recent downloads.
    pub download_speed_mbps: Option<u32>,
    /// Peak memory of each running build in MiB, where it can be measured.
    pub build_peak_ram_mb: Option<Vec<(JobId, u64)>>,
}

/// A heartbeat: the session that lives and its metrics.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct Heartbeat {
    /// The session.
    pub session: SessionId,
    /// Its figures.
    pub metrics: WorkerMetrics,
}
wire_v1!(Heartbeat, "heartbeat");
