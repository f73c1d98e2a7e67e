//! Slots: what runs, and what more may run.

use std::collections::BTreeMap;

use gradient_domain::{AssignmentId, Kind};
use gradient_events::worker::OpenAssignment;

use crate::job::{Running, Stop};

/// The jobs of a worker.
#[derive(Debug)]
pub(super) struct Slots {
    evaluations_max: usize,
    builds_max: usize,
    running: BTreeMap<AssignmentId, Running>,
}

impl Slots {
    pub(super) fn new(evaluations_max: usize, builds_max: usize) -> Self {
        Self { evaluations_max, builds_max, running: BTreeMap::new() }
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

    pub(super) fn ended(&mut self, assignment: AssignmentId) {
        self.running.remove(&assignment);
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

    pub(super) fn abort(&self, assignment: AssignmentId, reason: String) {
        if let Some(running) = self.running.get(&assignment) {
            tracing::info!(job = %running.job, %assignment, reason, "aborting");
            running.stop(Stop::Aborted(reason));
        }
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
