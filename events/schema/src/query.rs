//! Queries that change nothing: core NATS request/reply, answered from the scheduler's state and not
//! logged. No answer means "nothing known", never an error of a job.

use gradient_domain::StorePath;

use crate::envelope::wire_v1;

/// Which of these derivations are recorded whole, with everything below them?
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct QueryKnownDerivations {
    /// At most 1,000.
    pub drv_paths: Vec<StorePath>,
}
wire_v1!(QueryKnownDerivations, "query.known_derivations");

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct KnownDerivations {
    /// Those of the query that are known; they need not be sent or descended into.
    pub known: Vec<StorePath>,
}
wire_v1!(KnownDerivations, "answer.known_derivations");
