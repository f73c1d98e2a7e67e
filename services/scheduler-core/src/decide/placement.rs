//! Placement: the job for a slot (spec, Assignment).
//!
//! A total has two parts: what is common to all workers, falling with the time of readiness, and what
//! the worker's own answer gives. Jobs stand in the order of the first in the queue and in the order
//! of the second in the worker's answers, so that walking both from their best ends finds the winner
//! without looking at the rest: nothing unseen can have more than the sum of the two heads.

use std::cmp::Reverse;
use std::collections::{BTreeSet, btree_set};
use std::iter::Peekable;

use gradient_domain::{AssignmentId, JobId, Kind, Timestamp, WorkerId};
use gradient_events::Event;
use gradient_events::score::{MilliPoints, RunnerUp};

use super::Decision;
use crate::policy::{ASSIGNMENT_FLOOR, Candidate, Policy};
use crate::queue::Queue;
use crate::state::State;
use crate::worker::Worker;

/// Most losers named in a `JobAssigned`.
const RUNNERS_UP_MAX: usize = 64;
/// Candidates that are looked at though the winner is known, to name those behind it.
const LOOK_MIN: usize = 8;
/// Most candidates that are looked at. Only a tie of more than so many totals reaches it; who waits
/// longest among the tied is taken then.
const LOOK_MAX: usize = 1_000;

/// A candidate that was scored: the best first, ties to the smaller id.
type Scored = (Reverse<MilliPoints>, JobId, Timestamp);

impl Decision<'_> {
    /// Hands the best job of a kind to a worker. False if there is none for it.
    pub(super) fn place(&mut self, worker: WorkerId, kind: Kind) -> bool {
        let known = &self.state.workers[&worker];
        let policy = Policy::named(&self.state.settings.policy);
        let look = Look::over(self.state, known, kind, policy, self.now());
        let Some(&(Reverse(total), job, ready_at)) = look.best.first() else {
            return false;
        };
        let pending = self.state.queue.get(job).expect("a candidate is in the queue");
        let answer = known.answers.get(job, pending);
        let candidate = Candidate { ready_at, answer, now: self.now() };
        let runners_up = look.best.iter().skip(1).take(RUNNERS_UP_MAX);
        let event = Event::JobAssigned {
            job,
            assignment: AssignmentId(self.state.last_assignment.0 + 1),
            worker,
            session: known.session,
            total,
            breakdown: policy.breakdown(&candidate),
            capabilities_version: known.capabilities_version,
            considered: u32::try_from(look.seen.len()).unwrap_or(u32::MAX),
            runners_up: runners_up
                .map(|&(Reverse(total), job, _)| RunnerUp { job, total })
                .collect(),
        };
        self.emit(event);
        true
    }
}

/// A look over the queue for one worker.
struct Look<'a> {
    queue: &'a Queue,
    worker: &'a Worker,
    policy: Policy,
    now: Timestamp,
    seen: BTreeSet<JobId>,
    best: BTreeSet<Scored>,
}

impl<'a> Look<'a> {
    fn over(
        state: &'a State,
        worker: &'a Worker,
        kind: Kind,
        policy: Policy,
        now: Timestamp,
    ) -> Self {
        let queue = &state.queue;
        let mut look =
            Self { queue, worker, policy, now, seen: BTreeSet::new(), best: BTreeSet::new() };
        let mut waiting = Waiting::new(queue, worker, kind);
        let stands = |job: &JobId| {
            let pending = queue.get(*job);
            pending.is_some_and(|pending| worker.answers.get(*job, pending).is_some())
        };
        let answered =
            worker.answers.best_first().filter(|(_, job)| job.kind() == kind && stands(job));
        let mut answered = answered.peekable();
        while let Some(oldest) = waiting.peek() {
            let nearest = answered.peek().map(|(points, _)| *points);
            let enough = look.seen.len() >= LOOK_MIN && look.is_decided(oldest, nearest);
            if enough || look.seen.len() >= LOOK_MAX {
                break;
            }
            waiting.next();
            look.score(oldest);
            if let Some((_, job)) = answered.next() {
                look.score(job);
            }
        }
        look
    }

    fn score(&mut self, job: JobId) {
        let Some(pending) = self.queue.get(job).filter(|pending| self.worker.fits(pending.class))
        else {
            return;
        };
        if !self.seen.insert(job) {
            return;
        }
        let answer = self.worker.answers.get(job, pending);
        let candidate = Candidate { ready_at: pending.ready_at, answer, now: self.now };
        let total = self.policy.total(&candidate);
        if total >= ASSIGNMENT_FLOOR {
            self.best.insert((Reverse(total), job, pending.ready_at));
        }
    }

    /// Whether nothing unseen can beat the best, given the heads of both orders. An unseen job with
    /// an equal total and equal parts stands behind the best by its id.
    fn is_decided(&self, oldest: JobId, nearest: Option<MilliPoints>) -> bool {
        let (Some((Reverse(best), job, ready_at)), Some(head)) =
            (self.best.first(), self.queue.get(oldest))
        else {
            return false;
        };
        let common = |ready_at| self.policy.common_part(ready_at, self.now);
        let own = nearest.unwrap_or_default().max(MilliPoints(0));
        let bound = MilliPoints(common(head.ready_at).0 + own.0);
        if *best != bound {
            return *best > bound;
        }
        // Where waiting longer gives no more points, an equal total says nothing of the order of ids.
        let is_strict = common(head.ready_at.plus_ms(1)) < common(head.ready_at);
        let own_of_best = MilliPoints(best.0 - common(*ready_at).0);
        is_strict && *ready_at == head.ready_at && own_of_best == own && *job < oldest
    }
}

/// The jobs of several classes in the order of their waiting.
struct Waiting<'a> {
    classes: Vec<Peekable<btree_set::Iter<'a, (Timestamp, JobId)>>>,
}

impl<'a> Waiting<'a> {
    fn new(queue: &'a Queue, worker: &'a Worker, kind: Kind) -> Self {
        let classes = queue.classes_for(worker, kind).map(|class| class.waiting.iter().peekable());
        Self { classes: classes.collect() }
    }

    fn head(&mut self) -> Option<(usize, (Timestamp, JobId))> {
        let heads = self.classes.iter_mut().enumerate();
        heads
            .filter_map(|(n, class)| class.peek().map(|head| (n, **head)))
            .min_by_key(|(_, head)| *head)
    }

    fn peek(&mut self) -> Option<JobId> {
        self.head().map(|(_, (_, job))| job)
    }

    fn next(&mut self) {
        if let Some((n, _)) = self.head() {
            self.classes[n].next();
        }
    }
}
