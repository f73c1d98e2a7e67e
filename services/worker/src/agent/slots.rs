//! Slots: what runs, and what more may run.

use std::collections::{BTreeMap, VecDeque};

use gradient_domain::{AssignmentId, Kind};
use gradient_events::worker::OpenAssignment;

use crate::job::{Running, Stop};

/// Hand-outs that are remembered as over, of each kind of end.
const PAST_MAX: usize = 4_096;

/// The jobs of a worker.
#[derive(Debug)]
pub(super) struct Slots {
    evaluations_max: usize,
    builds_max: usize,
    running: BTreeMap<AssignmentId, Running>,
    ended: Recent,
    aborted: Recent,
}

/// The last hand-outs of some kind; the oldest is forgotten first.
#[derive(Debug, Default)]
struct Recent(VecDeque<AssignmentId>);

impl Recent {
    fn remember(&mut self, assignment: AssignmentId) {
        if self.0.contains(&assignment) {
            return;
        }
        if self.0.len() == PAST_MAX {
            self.0.pop_front();
        }
        self.0.push_back(assignment);
    }
}

/// How a hand-out got over before a delivery of it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// It ran here, or an earlier run of the worker reported its end.
    Ended,
    /// It was aborted before it began, or after it had ended.
    Aborted,
}

impl Slots {
    pub(super) fn new(evaluations_max: usize, builds_max: usize) -> Self {
        Self {
            evaluations_max,
            builds_max,
            running: BTreeMap::new(),
            ended: Recent::default(),
            aborted: Recent::default(),
        }
    }

    /// Running jobs and limit of a kind.
    pub(super) fn load(&self, kind: Kind) -> (usize, usize) {
        let active = self.running.values().filter(|running| running.job.kind() == kind).count();
        let limit = match kind {
            Kind::Evaluate => self.evaluations_max,
            Kind::Build => self.builds_max,
        };
        (active, limit)
    }

    pub(super) fn has_free(&self, kind: Kind) -> bool {
        let (active, limit) = self.load(kind);
        active < limit
    }

    pub(super) fn holds(&self, assignment: AssignmentId) -> bool {
        self.running.contains_key(&assignment)
    }

    /// The same job under another hand-out.
    pub(super) fn other(&self, open: OpenAssignment) -> Option<&Running> {
        self.running
            .values()
            .find(|running| running.job == open.job && running.assignment != open.assignment)
    }

    pub(super) fn started(&mut self, running: Running) {
        self.running.insert(running.assignment, running);
    }

    /// A hand-out is over; a late delivery of it starts nothing.
    pub(super) fn ended(&mut self, assignment: AssignmentId) {
        self.running.remove(&assignment);
        self.ended.remember(assignment);
    }

    /// How a hand-out got over, if it did.
    pub(super) fn over(&self, assignment: AssignmentId) -> Option<Over> {
        if self.aborted.0.contains(&assignment) {
            Some(Over::Aborted)
        } else {
            self.ended.0.contains(&assignment).then_some(Over::Ended)
        }
    }

    pub(super) fn open(&self) -> Vec<OpenAssignment> {
        let running = self.running.values();
        running
            .map(|running| OpenAssignment { job: running.job, assignment: running.assignment })
            .collect()
    }

    /// Stops whatever the server does not believe in.
    pub(super) fn keep_only(&self, open: &[OpenAssignment]) {
        for running in self.running.values() {
            if !open.iter().any(|open| open.assignment == running.assignment) {
                tracing::warn!(job = %running.job, assignment = %running.assignment,
                    "this hand-out is not open any more; stopping the job");
                running.stop(Stop::Forgotten);
            }
        }
    }

    /// Stops a job; whether it runs. One that does not will not start any more: the abort may have
    /// overtaken its hand-out.
    pub(super) fn abort(&mut self, assignment: AssignmentId, reason: &str) -> bool {
        let Some(running) = self.running.get(&assignment) else {
            self.aborted.remember(assignment);
            return false;
        };
        tracing::info!(job = %running.job, %assignment, reason, "aborting");
        running.stop(Stop::Aborted(reason.to_owned()));
        true
    }

    pub(super) fn cancel_all(&self) {
        for running in self.running.values() {
            running.stop(Stop::Canceled);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use gradient_domain::{BuildId, JobId, SessionId, WorkerId};
    use gradient_log::memory::MemoryInbox;

    use super::*;
    use crate::outbox::Outbox;
    use crate::voice::Voice;

    fn running(assignment: AssignmentId) -> Running {
        let dir = tempfile::tempdir().expect("a folder");
        let outbox = Outbox::open(dir.path()).expect("opened");
        let inbox = MemoryInbox::default();
        let voice = Voice::start(inbox, WorkerId([2; 16]), SessionId([1; 16]), outbox);
        Running::new(JobId::Build(BuildId(3)), assignment, "token".into(), voice)
    }

    #[tokio::test]
    async fn what_is_over_does_not_start_again() {
        let mut slots = Slots::new(0, 1);
        let (ran, early) = (AssignmentId(5), AssignmentId(6));
        slots.started(running(ran));
        assert!(!slots.has_free(Kind::Build) && slots.over(ran).is_none());
        assert!(slots.abort(ran, "why"), "it runs");
        assert!(slots.over(ran).is_none(), "its own end is to come");
        slots.ended(ran);
        assert!(slots.has_free(Kind::Build));
        assert_eq!(slots.over(ran), Some(Over::Ended));
        assert!(!slots.abort(early, "why"), "it does not run");
        assert_eq!(slots.over(early), Some(Over::Aborted), "the abort came first and wins");
        assert_eq!(slots.over(AssignmentId(4)), None, "a smaller number says nothing");
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let mut recent = Recent::default();
        let ids = || (0..=PAST_MAX as u64).map(AssignmentId);
        ids().chain(ids().skip(1)).for_each(|assignment| recent.remember(assignment));
        assert_eq!(recent.0.len(), PAST_MAX);
        assert!(!recent.0.contains(&AssignmentId(0)));
    }
}
