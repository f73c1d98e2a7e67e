//! The life of a hand-out up to its report: taken, declined, given up.

use gradient_domain::{AssignmentId, EvaluationId, JobId, WorkerId};
use gradient_events::event::{AbandonReason, AbortCause, DropReason, RequeueReason, Verdict};
use gradient_events::worker::OpenAssignment;
use gradient_events::{Event, FailureKind};

use super::Decision;
use crate::assignment::Phase;

impl Decision<'_> {
    /// The open hand-out that a report of `worker` may speak of; otherwise the report is dropped.
    pub(super) fn open(&mut self, worker: WorkerId, job: JobId, assignment: AssignmentId) -> bool {
        let open = self.state.assignments.get(&assignment);
        if open.is_some_and(|open| open.worker == worker && open.job == job) {
            return true;
        }
        self.drop_report(worker, job, assignment);
        false
    }

    pub(super) fn drop_report(&mut self, worker: WorkerId, job: JobId, assignment: AssignmentId) {
        let reason = match self.state.assignments.get(&assignment) {
            Some(_) => DropReason::NotYours,
            None => DropReason::NotOpen,
        };
        self.emit(Event::ReportDropped { worker, job, assignment, reason });
    }

    pub(super) fn assign_job_response(
        &mut self,
        worker: WorkerId,
        job: JobId,
        assignment: AssignmentId,
        accepted: bool,
        reason: &str,
    ) {
        if !self.open(worker, job, assignment) {
            return;
        }
        if accepted {
            return self.accept(assignment);
        }
        let canceled = self.is_canceled(assignment);
        self.emit(Event::AssignmentDeclined { job, assignment, reason: reason.to_owned() });
        self.come_back(job, RequeueReason::Declined, canceled);
    }

    /// A report under the open id counts as acceptance (protocol page, Assignment 6).
    pub(super) fn accept(&mut self, assignment: AssignmentId) {
        if self.state.assignments[&assignment].phase == Phase::Claimed {
            self.emit(Event::AssignmentAccepted { assignment });
        }
    }

    /// Whether a user canceled this very job.
    pub(super) fn is_canceled(&self, assignment: AssignmentId) -> bool {
        match self.state.assignments[&assignment].phase {
            Phase::Aborting { cause, .. } => cause == AbortCause::Canceled,
            Phase::Claimed | Phase::Accepted => false,
        }
    }

    /// Gives up all hand-outs of a worker but those that it still speaks of.
    pub(super) fn abandon_assignments(
        &mut self,
        worker: WorkerId,
        reason: AbandonReason,
        kept: &[OpenAssignment],
    ) {
        let open: Vec<AssignmentId> =
            self.state.workers[&worker].assignments.iter().copied().collect();
        for assignment in open {
            if !kept.iter().any(|kept| kept.assignment == assignment) {
                self.abandon(assignment, reason);
            }
        }
    }

    /// Ends a hand-out without a report and brings its job back, unless it came to nothing too often.
    pub(super) fn abandon(&mut self, assignment: AssignmentId, reason: AbandonReason) {
        let job = self.state.assignments[&assignment].job;
        let canceled = self.is_canceled(assignment);
        self.emit(Event::AssignmentAbandoned { job, assignment, reason });
        let losses = match job {
            JobId::Build(build) => self.state.graph.node(build).losses,
            JobId::Evaluate(_) => 0,
        };
        match job {
            JobId::Build(build) if losses >= self.state.settings.build_max_losses => {
                let message =
                    format!("{losses} workers in a row were lost while they built this; giving up");
                self.fail_build(build, FailureKind::Permanent, message);
            }
            job => self.come_back(job, RequeueReason::Abandoned, canceled),
        }
    }

    /// Brings back a job whose hand-out came to nothing, unless a user canceled it or its evaluation
    /// was handed out too often.
    pub(super) fn come_back(&mut self, job: JobId, reason: RequeueReason, canceled: bool) {
        match job {
            JobId::Build(build) if canceled => {
                self.abort_build(build, AbortCause::Canceled.text().into());
            }
            JobId::Evaluate(id) if self.is_worn_out(id) => {
                let hand_outs = self.state.evaluation_mut(id).accepted;
                let error = format!(
                    "evaluation was dispatched {hand_outs} times and each worker disconnected before \
                     reporting a result; giving up"
                );
                self.finish_evaluation(id, Verdict::Failed, Some(error));
            }
            job => self.requeue(job, reason),
        }
    }

    fn is_worn_out(&mut self, id: EvaluationId) -> bool {
        let hand_outs_max = self.state.settings.evaluation_max_hand_outs;
        let evaluation = self.state.evaluation_mut(id);
        !evaluation.state.is_terminal() && evaluation.accepted >= hand_outs_max
    }

    /// Brings a job back to the queue at once, if anybody still wants it.
    pub(super) fn requeue(&mut self, job: JobId, reason: RequeueReason) {
        let wanted = match job {
            JobId::Build(build) => !self.state.graph.node(build).wanted_by.is_empty(),
            JobId::Evaluate(id) => !self.state.evaluation_mut(id).state.is_terminal(),
        };
        if !wanted {
            if let JobId::Build(build) = job {
                self.emit(Event::BuildAborted { build, reason: "nobody wants it any more".into() });
            }
            return;
        }
        let offer = Some(self.next_offer());
        self.emit(Event::JobRequeued { job, reason, offer });
        self.note_offer(job);
        if let JobId::Evaluate(id) = job {
            self.evaluation_waits_again(id);
        }
    }
}
