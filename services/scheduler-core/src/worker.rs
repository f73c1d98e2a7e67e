//! Workers as the log knows them.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{AssignmentId, Capabilities, JobId, Kind, SessionId, Timestamp};
use gradient_events::score::OfferNumber;
use gradient_events::worker::WorkerMetrics;

/// Most unscored or waiting candidates that a worker is owed at a time (protocol page).
pub const WINDOW_MAX: usize = 5_000;

/// One worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Name shown to people.
    pub name: String,
    /// The run of it that counts.
    pub session: SessionId,
    /// Whether and how it is here.
    pub presence: Presence,
    /// May fetch sources.
    pub fetch: bool,
    /// May evaluate.
    pub eval: bool,
    /// May build.
    pub build: bool,
    /// The newest hello of the session.
    pub greeting: u32,
    /// Protocol version agreed on.
    pub protocol: u16,
    /// What it offers, once it said so.
    pub capabilities: Option<Capabilities>,
    /// Counted with each `WorkerCapabilities`.
    pub capabilities_version: u32,
    /// Its newest figures.
    pub metrics: Option<WorkerMetrics>,
    /// Whether this session asked for the list; offers follow from there.
    pub listed: bool,
    /// Offers up to here were sent.
    pub cursor: OfferNumber,
    /// The page that waits for its scores.
    pub page: Option<Page>,
    /// Its answers; those to offers that are gone are void and dropped now and then.
    pub scores: BTreeMap<JobId, WorkerScore>,
    /// When a request of it last found no job, by kind.
    pub idle: BTreeMap<Kind, Timestamp>,
    /// Its open hand-outs.
    pub assignments: BTreeSet<AssignmentId>,
    /// Whether the session still has to hear that it is open.
    pub welcome_owed: bool,
    /// A session that has to hear that it is refused.
    pub rejection: Option<Rejection>,
}

/// Whether and how a worker is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It works.
    Connected,
    /// It finishes what it has and takes nothing new.
    Draining,
    /// It was silent too long.
    Lost,
    /// It said goodbye.
    Left,
    /// It was refused before it ever worked.
    Refused,
}

impl Presence {
    /// Whether its messages count.
    #[must_use]
    pub fn is_here(self) -> bool {
        match self {
            Presence::Connected | Presence::Draining => true,
            Presence::Lost | Presence::Left | Presence::Refused => false,
        }
    }
}

/// A page of candidates on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Offers after this one.
    pub after: OfferNumber,
    /// Offers up to this one.
    pub up_to: OfferNumber,
    /// Whether it answers `RequestJobList`.
    pub list: bool,
    /// Whether the list ends with it.
    pub is_final: bool,
}

/// What a worker said of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerScore {
    /// The offer that was answered; void once the job has another.
    pub offer: OfferNumber,
    /// Required paths that its store lacks.
    pub missing_count: u32,
    /// Their known NAR sizes, in bytes.
    pub missing_nar_size: u64,
    /// Whether all outputs are there.
    pub outputs_present: bool,
}

/// A refusal that a session must hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Which session.
    pub session: SessionId,
    /// Code of reference 2.2.
    pub code: u16,
    /// What a person should know.
    pub reason: String,
}

impl Worker {
    /// Whether it may be given new jobs of a kind.
    #[must_use]
    pub fn takes(&self, kind: Kind) -> bool {
        self.presence == Presence::Connected
            && match kind {
                Kind::Evaluate => self.eval,
                Kind::Build => self.build && self.capabilities.is_some(),
            }
    }

    /// Build slots; 0 without capabilities.
    #[must_use]
    pub fn build_slots(&self) -> usize {
        self.capabilities.as_ref().map_or(0, |c| c.max_concurrent_builds as usize)
    }
}
