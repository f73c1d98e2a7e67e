//! Workers as the log knows them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{AssignmentId, Capabilities, JobId, Kind, SessionId, Timestamp};
use gradient_events::score::{MilliPoints, OfferNumber};
use gradient_events::worker::WorkerMetrics;

use crate::queue::{ClassId, Pending};

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
    /// Whether the list is under way: its last page is still to come.
    pub listing: bool,
    /// Offers up to here were sent.
    pub cursor: OfferNumber,
    /// The page that waits for its scores.
    pub page: Option<Page>,
    /// Classes of jobs that it can run, in order.
    pub classes: Vec<ClassId>,
    /// Its answers; those to offers that are gone are void and dropped now and then.
    pub answers: Answers,
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

/// The answers of a worker, by job and by their points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    by_job: BTreeMap<JobId, Answer>,
    /// Best first; then who waits longest; then by id.
    by_points: BTreeSet<(Reverse<MilliPoints>, Timestamp, JobId)>,
}

/// One answer and what the policy makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    score: WorkerScore,
    points: MilliPoints,
    ready_at: Timestamp,
}

impl Answers {
    /// How many there are, void ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_job.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    /// The answer to a job's present offer.
    #[must_use]
    pub fn get(&self, job: JobId, pending: &Pending) -> Option<&WorkerScore> {
        let answer = self.by_job.get(&job)?;
        (answer.score.offer == pending.offer).then_some(&answer.score)
    }

    /// Answered jobs, best first; an answer may be void by now.
    pub fn best_first(&self) -> impl Iterator<Item = (MilliPoints, JobId)> {
        self.by_points.iter().map(|(Reverse(points), _, job)| (*points, *job))
    }

    /// How many answers are such.
    pub(crate) fn count(&self, is_such: impl Fn(JobId, &WorkerScore) -> bool) -> usize {
        self.by_job.iter().filter(|(job, answer)| is_such(**job, &answer.score)).count()
    }

    pub(crate) fn insert(
        &mut self,
        job: JobId,
        score: WorkerScore,
        points: MilliPoints,
        ready_at: Timestamp,
    ) {
        self.remove(job);
        self.by_job.insert(job, Answer { score, points, ready_at });
        self.by_points.insert((Reverse(points), ready_at, job));
    }

    pub(crate) fn remove(&mut self, job: JobId) {
        if let Some(Answer { points, ready_at, .. }) = self.by_job.remove(&job) {
            self.by_points.remove(&(Reverse(points), ready_at, job));
        }
    }

    /// Drops void answers from the front, so that the next look finds a good one at once.
    pub(crate) fn drop_void(&mut self, is_void: impl Fn(JobId, &WorkerScore) -> bool) {
        while let Some(&(_, _, job)) = self.by_points.first() {
            if !is_void(job, &self.by_job[&job].score) {
                break;
            }
            self.remove(job);
        }
    }

    /// Drops every void answer.
    pub(crate) fn drop_all_void(&mut self, is_void: impl Fn(JobId, &WorkerScore) -> bool) {
        let void = self.by_job.iter().filter(|(job, answer)| is_void(**job, &answer.score));
        for job in void.map(|(job, _)| *job).collect::<Vec<_>>() {
            self.remove(job);
        }
    }

    /// Counts the points again, by another policy.
    pub(crate) fn rescore(&mut self, points: impl Fn(&WorkerScore) -> MilliPoints) {
        for (job, answer) in std::mem::take(&mut self.by_job) {
            self.by_points.remove(&(Reverse(answer.points), answer.ready_at, job));
            self.insert(job, answer.score, points(&answer.score), answer.ready_at);
        }
    }
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

    /// Whether it knows that it can run the jobs of a class.
    #[must_use]
    pub fn fits(&self, class: ClassId) -> bool {
        self.classes.binary_search(&class).is_ok()
    }

    /// Build slots; 0 without capabilities.
    #[must_use]
    pub fn build_slots(&self) -> usize {
        self.capabilities.as_ref().map_or(0, |c| c.max_concurrent_builds as usize)
    }
}
