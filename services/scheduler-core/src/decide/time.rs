//! What time alone decides, and the periodic look for what should have been done at once.

use gradient_domain::{AssignmentId, BuildId, EvaluationId, JobId, Timestamp};
use gradient_events::Event;
use gradient_events::event::{AbandonReason, AbortCause, RequeueReason};

use super::Decision;
use super::limits::JOBS_PER_DECISION_MAX;
use crate::assignment::Phase;
use crate::graph::{BuildState, Node};

impl Decision<'_> {
    pub(super) fn tick(&mut self) {
        self.withdraw_unanswered();
        self.retry_due_builds();
        self.retry_due_evaluations();
        self.review_queued_evaluations();
        self.review_building_evaluations();
        self.release_builds();
        self.settle_leftovers();
    }

    fn withdraw_unanswered(&mut self) {
        let now = self.now();
        let settings = &self.state.settings;
        let (accept_ms, abort_ms) = (settings.accept_timeout_ms, settings.abort_timeout_ms);
        let due: Vec<(AssignmentId, AbandonReason)> = self
            .state
            .assignments
            .iter()
            .filter_map(|(id, open)| match open.phase {
                Phase::Claimed if now.since_ms(open.at) >= accept_ms => {
                    Some((*id, AbandonReason::NotAccepted))
                }
                Phase::Aborting { since, .. } if now.since_ms(since) >= abort_ms => {
                    Some((*id, AbandonReason::AbortUnconfirmed))
                }
                Phase::Claimed | Phase::Accepted | Phase::Aborting { .. } => None,
            })
            .take(JOBS_PER_DECISION_MAX)
            .collect();
        for (assignment, reason) in due {
            match (reason, self.state.assignments[&assignment].job) {
                (AbandonReason::AbortUnconfirmed, JobId::Build(build)) => {
                    let job = JobId::Build(build);
                    let canceled = self.is_canceled(assignment);
                    self.emit(Event::AssignmentAbandoned { job, assignment, reason });
                    self.come_back(job, RequeueReason::Abandoned, canceled);
                }
                (AbandonReason::AbortUnconfirmed, job @ JobId::Evaluate(_)) => {
                    self.emit(Event::AssignmentAbandoned { job, assignment, reason });
                }
                _ => self.abandon(assignment, reason),
            }
        }
    }

    fn retry_due_builds(&mut self) {
        let now = self.now();
        let due: Vec<BuildId> = self
            .state
            .backoffs
            .range(..=(now, BuildId(u32::MAX)))
            .map(|(_, build)| *build)
            .take(JOBS_PER_DECISION_MAX)
            .collect();
        for build in due {
            self.retry_build(build);
        }
    }

    fn retry_due_evaluations(&mut self) {
        let now = self.now();
        let is_due = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
        let live = self
            .state
            .live_evaluations
            .iter()
            .map(|index| &self.state.evaluations[index.0 as usize]);
        let due: Vec<EvaluationId> = live
            .filter(|e| is_due(e.backoff_until))
            .map(|e| e.id)
            .take(JOBS_PER_DECISION_MAX)
            .collect();
        for id in due {
            let (job, offer) = (JobId::Evaluate(id), self.next_offer());
            self.emit(Event::JobQueued { job, offer });
            self.note_offer(job);
        }
    }

    /// What a decision left over because it was over the limit of one entry.
    fn settle_leftovers(&mut self) {
        if !self.state.frozen.is_empty() {
            self.thaw_builds();
            self.touched.extend(self.state.live_evaluations.iter().copied());
        }
        if self.state.leftovers {
            let waits =
                |node: &Node| node.state == BuildState::Created && !node.wanted_by.is_empty();
            let waiting = self.state.graph.iter().filter(|(_, node)| waits(node));
            let waiting: Vec<BuildId> = waiting.map(|(build, _)| build).collect();
            self.settle_builds(&waiting);
        }
    }

    /// Asks a worker to stop a job; once is enough, delivery repeats by itself.
    pub(super) fn request_abort(
        &mut self,
        job: JobId,
        assignment: AssignmentId,
        cause: AbortCause,
    ) {
        match self.state.assignments[&assignment].phase {
            Phase::Claimed | Phase::Accepted => {
                self.emit(Event::AbortRequested { job, assignment, cause })
            }
            Phase::Aborting { .. } => {}
        }
    }

    /// Whatever this finds is a bug of ours: it is counted, logged and mended (ADR 6).
    pub(super) fn sweep(&mut self) {
        if self.state.leftovers || !self.state.frozen.is_empty() {
            return;
        }
        let ready: Vec<BuildId> = self
            .state
            .graph
            .iter()
            .filter(|(_, node)| node.state == BuildState::Created && !node.wanted_by.is_empty())
            .filter(|(build, _)| {
                self.state.graph.is_ready(*build)
                    || self.state.graph.failed_below(*build, &self.state.frozen).is_some()
            })
            .map(|(build, _)| build)
            .take(JOBS_PER_DECISION_MAX)
            .collect();
        for build in ready {
            self.emit(Event::SweepFound { what: format!("build {build} could go on and did not") });
            self.settle_builds(&[build]);
        }
        let live = self
            .state
            .live_evaluations
            .iter()
            .map(|index| &self.state.evaluations[index.0 as usize]);
        let settled: Vec<EvaluationId> =
            live.filter(|e| e.is_settled()).map(|e| e.id).take(JOBS_PER_DECISION_MAX).collect();
        for id in settled {
            self.emit(Event::SweepFound { what: format!("evaluation {id} could end and did not") });
            self.touched.insert(self.state.evaluation_index[&id]);
        }
    }
}
