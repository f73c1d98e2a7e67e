//! Scheduler → worker: `gradient.in.<id>` (reference 2.4).

use gradient_domain::{AssignmentId, JobId, Requirement, SessionId, StorePath};
use serde::{Deserialize, Serialize};

use crate::envelope::wire_v1;
use crate::job::Job;
use crate::score::OfferNumber;
use crate::worker::OpenAssignment;

/// What a worker is told. Every delivery may come twice; the worker tells by ids.
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
pub enum ServerMessage {
    /// The session is open.
    Welcome {
        /// Which session.
        session: SessionId,
        /// The hello that this answers; an answer to an older one is stale.
        greeting: u32,
        /// Protocol version to speak.
        protocol: u16,
        /// May fetch.
        fetch: bool,
        /// May evaluate.
        eval: bool,
        /// May build.
        build: bool,
        /// The assignments that are open for this worker; it stops whatever else it runs.
        open_assignments: Vec<OpenAssignment>,
    },
    /// The session is refused.
    Reject {
        /// Which session.
        session: SessionId,
        /// A code of reference 2.2.
        code: u16,
        /// What a person should know.
        reason: String,
    },
    /// A page of the full candidate list.
    JobListChunk {
        /// At most 1,000 candidates and 256 KiB.
        candidates: Vec<JobCandidate>,
        /// The last offer on the page.
        up_to: OfferNumber,
        /// Whether the list ends here.
        is_final: bool,
    },
    /// Candidates not sent to this worker yet.
    JobOffer {
        /// At most 1,000 candidates and 256 KiB.
        candidates: Vec<JobCandidate>,
        /// The last offer on the page.
        up_to: OfferNumber,
    },
    /// A job for a slot. Leaves only after its claim is in the log.
    AssignJob {
        /// The job.
        job_id: JobId,
        /// The hand-out; every report echoes it.
        assignment_id: AssignmentId,
        /// What to do.
        job: Job,
        /// Lets this job write to the cache and its log until it expires; never logged.
        upload_token: UploadToken,
    },
    /// Stop this hand-out.
    AbortJob {
        /// The job.
        job_id: JobId,
        /// The hand-out.
        assignment_id: AssignmentId,
        /// Why.
        reason: String,
    },
    /// The server stops assigning.
    Draining,
}
wire_v1!(ServerMessage, "server");

/// Lets one job write to the cache and its log. It goes over the wire and nowhere else: `Debug` and
/// JSON hide it.
#[derive(Clone, PartialEq, Eq, Deserialize, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct UploadToken(String);

/// What is shown instead of a token.
const HIDDEN: &str = "(hidden)";

impl UploadToken {
    /// The token itself, for the service that asks for it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for UploadToken {
    fn from(token: String) -> Self {
        Self(token)
    }
}

impl From<&str> for UploadToken {
    fn from(token: &str) -> Self {
        Self(token.to_owned())
    }
}

impl std::fmt::Debug for UploadToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for UploadToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// A job shown to a worker (spec, Offers).
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
pub struct JobCandidate {
    /// The job.
    pub job_id: JobId,
    /// Outputs of direct input derivations that the build uses.
    pub required_paths: Vec<RequiredPath>,
    /// The derivation; empty for evaluations.
    pub drv_paths: Vec<StorePath>,
    /// What it makes, where known.
    pub output_paths: Vec<StorePath>,
    /// System and features; builds only.
    pub requirement: Option<Requirement>,
}

/// A path that a job needs.
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
pub struct RequiredPath {
    /// The path.
    pub path: StorePath,
    /// Size of its NAR in bytes, when cached.
    pub nar_size: Option<u64>,
}
