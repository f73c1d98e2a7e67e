//! Reports on running jobs: steps and ends.

use gradient_domain::{AssignmentId, BuildId, EvaluationId, JobId, WorkerId};
use gradient_events::event::{EvaluationState, JobResult, RequeueReason};
use gradient_events::worker::JobUpdate;
use gradient_events::{Event, FailureKind};

use super::Decision;

impl Decision<'_> {
    pub(super) fn job_update(
        &mut self,
        worker: WorkerId,
        job: JobId,
        assignment: AssignmentId,
        update: &JobUpdate,
    ) {
        if !self.open(worker, job, assignment) {
            return;
        }
        self.accept(assignment);
        match (job, update) {
            (JobId::Evaluate(id), JobUpdate::Fetching) => {
                self.advance(id, EvaluationState::Fetching)
            }
            (JobId::Evaluate(_), JobUpdate::FetchResult { .. }) => self.note_input(assignment),
            (JobId::Evaluate(id), JobUpdate::EvaluatingFlake) => {
                self.advance(id, EvaluationState::EvaluatingFlake);
            }
            (JobId::Evaluate(id), JobUpdate::EvaluatingDerivations) => {
                self.advance(id, EvaluationState::EvaluatingDerivations);
            }
            (JobId::Evaluate(id), JobUpdate::EvalResult(batch)) => self.eval_result(id, batch),
            (JobId::Build(build), JobUpdate::Building) => {
                self.emit(Event::BuildStarted { build, assignment });
            }
            (JobId::Build(_), JobUpdate::BuildOutput { .. }) => self.note_input(assignment),
            (JobId::Evaluate(_), JobUpdate::Building | JobUpdate::BuildOutput { .. })
            | (
                JobId::Build(_),
                JobUpdate::Fetching
                | JobUpdate::FetchResult { .. }
                | JobUpdate::EvaluatingFlake
                | JobUpdate::EvaluatingDerivations
                | JobUpdate::EvalResult(_),
            ) => self.refuse(format!("{job} has no such step")),
        }
    }

    /// Logs an input whose content matters though nothing is decided of it.
    fn note_input(&mut self, assignment: AssignmentId) {
        self.emit(Event::UpdateRecorded { assignment });
    }

    fn advance(&mut self, id: EvaluationId, next: EvaluationState) {
        let state = self.state.evaluation_mut(id).state;
        if !state.is_terminal() && state != next {
            self.emit(Event::EvaluationAdvanced { evaluation: id, state: next });
        }
    }

    pub(super) fn job_completed(&mut self, worker: WorkerId, job: JobId, assignment: AssignmentId) {
        if !self.open(worker, job, assignment) {
            return;
        }
        self.accept(assignment);
        match job {
            JobId::Build(build) => {
                let built = self.state.assignments[&assignment].built.as_ref();
                let substituted = built.is_some_and(|built| built.substituted);
                self.emit(Event::BuildSucceeded { build, substituted });
                self.emit(Event::JobFinished { job, assignment, result: JobResult::Completed });
                self.after_success(build);
            }
            JobId::Evaluate(id) => {
                self.emit(Event::JobFinished { job, assignment, result: JobResult::Completed });
                self.discovery_ended(id);
            }
        }
    }

    pub(super) fn job_failed(
        &mut self,
        worker: WorkerId,
        job: JobId,
        assignment: AssignmentId,
        kind: FailureKind,
        error: &str,
    ) {
        if !self.open(worker, job, assignment) {
            return;
        }
        self.accept(assignment);
        let canceled = self.is_canceled(assignment);
        self.emit(Event::JobFinished { job, assignment, result: JobResult::Failed(kind) });
        match job {
            JobId::Build(build) => self.build_job_failed(build, kind, error, canceled),
            JobId::Evaluate(id) => self.evaluation_job_failed(id, kind),
        }
    }

    fn build_job_failed(&mut self, build: BuildId, kind: FailureKind, error: &str, canceled: bool) {
        if canceled && !kind.is_genuine() {
            return self.abort_build(build, error.to_owned());
        }
        match kind {
            FailureKind::Permanent | FailureKind::Timeout => {
                self.fail_build(build, kind, error.to_owned());
            }
            FailureKind::Transient | FailureKind::InputsUnavailable => {
                self.fail_or_retry_build(build, kind, error.to_owned());
            }
            FailureKind::Aborted | FailureKind::Canceled => {
                self.requeue(JobId::Build(build), RequeueReason::Canceled)
            }
        }
    }

    fn evaluation_job_failed(&mut self, id: EvaluationId, kind: FailureKind) {
        let evaluation = self.state.evaluation_mut(id);
        if evaluation.state.is_terminal() {
            return;
        }
        let tries_left = evaluation.failures + 1 < self.state.settings.build_max_attempts;
        match kind {
            FailureKind::Transient | FailureKind::InputsUnavailable if tries_left => {
                let (job, reason) = (JobId::Evaluate(id), RequeueReason::Retry);
                self.emit(Event::JobRequeued { job, reason, offer: None });
                self.evaluation_waits_again(id);
            }
            FailureKind::Canceled => {
                self.come_back(JobId::Evaluate(id), RequeueReason::Canceled, false);
            }
            FailureKind::Transient
            | FailureKind::InputsUnavailable
            | FailureKind::Permanent
            | FailureKind::Timeout
            | FailureKind::Aborted => self.discovery_ended(id),
        }
    }
}
