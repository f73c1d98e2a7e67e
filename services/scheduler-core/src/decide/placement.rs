//! Placement: the job for a slot (spec, Assignment).

use std::cmp::Reverse;

use gradient_domain::{AssignmentId, JobId, Kind, WorkerId};
use gradient_events::Event;
use gradient_events::score::{MilliPoints, RunnerUp};

use super::Decision;
use crate::policy::{ASSIGNMENT_FLOOR, Candidate, Policy};
use crate::queue::Class;
use crate::state::State;
use crate::worker::Worker;

/// Most losers named in a `JobAssigned`.
const RUNNERS_UP_MAX: usize = 64;

/// What one look over the queue found.
struct Ranking {
    /// The best candidates, best first; the first one wins.
    best: Vec<(Reverse<MilliPoints>, JobId)>,
    considered: u32,
}

impl Decision<'_> {
    /// Hands the best job of a kind to a worker. False if there is none for it.
    pub(super) fn place(&mut self, worker: WorkerId, kind: Kind) -> bool {
        let known = &self.state.workers[&worker];
        let policy = Policy::named(&self.state.settings.policy);
        let ranking = rank(self.state, known, kind, policy, self.now());
        let Some(&(Reverse(total), job)) = ranking.best.first() else {
            return false;
        };
        let pending = self.state.queue.get(job).expect("ranked jobs are in the queue");
        let candidate = Candidate {
            kind,
            ready_at: pending.ready_at,
            answer: answer(known, job, pending.offer),
            now: self.now(),
        };
        let event = Event::JobAssigned {
            job,
            assignment: AssignmentId(self.state.last_assignment.0 + 1),
            worker,
            session: known.session,
            total,
            breakdown: policy.breakdown(&candidate),
            capabilities_version: known.capabilities_version,
            considered: ranking.considered,
            runners_up: ranking.best[1..]
                .iter()
                .map(|&(Reverse(total), job)| RunnerUp { job, total })
                .collect(),
        };
        self.emit(event);
        true
    }
}

fn answer(
    worker: &Worker,
    job: JobId,
    offer: gradient_events::score::OfferNumber,
) -> Option<&crate::worker::WorkerScore> {
    worker.scores.get(&job).filter(|answer| answer.offer == offer)
}

/// Scores the jobs that a worker can run: total descending, then job id ascending.
///
/// Jobs are looked at in the order of their waiting, so that a class is left as soon as nothing in it
/// can reach the best any more.
fn rank(
    state: &State,
    worker: &Worker,
    kind: Kind,
    policy: Policy,
    now: gradient_domain::Timestamp,
) -> Ranking {
    let mut ranking = Ranking { best: Vec::new(), considered: 0 };
    for class in state.queue.classes_for(worker, kind) {
        rank_class(state, worker, class, policy, now, &mut ranking);
    }
    ranking.best.sort_unstable();
    ranking.best.truncate(1 + RUNNERS_UP_MAX);
    ranking
}

fn rank_class(
    state: &State,
    worker: &Worker,
    class: &Class,
    policy: Policy,
    now: gradient_domain::Timestamp,
    ranking: &mut Ranking,
) {
    let mut best = ranking.best.iter().map(|(Reverse(total), _)| *total).max();
    for &(ready_at, job) in &class.waiting {
        if best.is_some_and(|best| policy.bound(ready_at, now) < best) {
            break;
        }
        let offer = state.queue.get(job).expect("a class holds queued jobs").offer;
        let candidate = Candidate {
            kind: class.need.kind(),
            ready_at,
            answer: answer(worker, job, offer),
            now,
        };
        let total = policy.total(&candidate);
        ranking.considered += 1;
        if total < ASSIGNMENT_FLOOR {
            continue;
        }
        best = best.max(Some(total));
        ranking.best.push((Reverse(total), job));
        if ranking.best.len() > 8 * RUNNERS_UP_MAX {
            ranking.best.sort_unstable();
            ranking.best.truncate(1 + RUNNERS_UP_MAX);
        }
    }
}
