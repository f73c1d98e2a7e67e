//! The table of contents: which read models each event touches.
//!
//! No wildcard arm: a new event breaks the build here, so that nobody forgets what it shows.

use gradient_domain::JobId;
use gradient_events::event::EvaluationState;
use gradient_events::{Entry, Event};

use crate::change::Change;
use crate::view::Presence;
use crate::{
    Position, Projection, anomaly, build, dispatched_job, entry_index, entry_point, evaluation,
    message, pending_job, worker,
};

/// What becomes of the tables by one entry, in order.
#[must_use]
pub fn project(entry: &Entry, position: Position) -> Vec<Change> {
    let mut projection = Projection { entry, position, changes: Vec::new() };
    for (ordinal, event) in (0u32..).zip(&entry.events) {
        projection.event(ordinal, event);
    }
    entry_index::project(&mut projection);
    projection.changes
}

impl Projection<'_> {
    fn event(&mut self, ordinal: u32, event: &Event) {
        match event {
            Event::SettingsReplaced
            | Event::WorkerJoined { .. }
            | Event::WorkerRejected { .. }
            | Event::CapabilitiesReplaced { .. }
            | Event::MetricsRecorded { .. }
            | Event::SlotIdle { .. }
            | Event::OffersSent { .. }
            | Event::ScoresRecorded { .. }
            | Event::WorkerDraining { .. }
            | Event::WorkerLost { .. }
            | Event::WorkerLeft { .. } => self.worker_event(ordinal, event),
            Event::EvaluationRequested { .. }
            | Event::EvaluationAdvanced { .. }
            | Event::DerivationsRecorded { .. }
            | Event::MessagesRecorded { .. }
            | Event::EvaluationParked { .. }
            | Event::EvaluationResumed { .. }
            | Event::EvaluationFinished { .. }
            | Event::EvaluationAborted { .. } => self.evaluation_event(event),
            Event::JobQueued { .. }
            | Event::JobAssigned { .. }
            | Event::AssignmentAccepted { .. }
            | Event::AssignmentDeclined { .. }
            | Event::UpdateRecorded { .. }
            | Event::AbortRequested { .. }
            | Event::AssignmentAbandoned { .. }
            | Event::JobRequeued { .. }
            | Event::JobFinished { .. } => self.job_event(event),
            Event::BuildsCreated { .. }
            | Event::BuildsReady { .. }
            | Event::BuildStarted { .. }
            | Event::BuildSucceeded { .. }
            | Event::BuildFailed { .. }
            | Event::DependencyFailed { .. }
            | Event::BuildAborted { .. }
            | Event::BuildsSkipped { .. }
            | Event::BuildsThawed { .. } => self.build_event(event),
            Event::ReportDropped { worker, job, assignment, reason } => {
                anomaly::report_dropped(self, ordinal, (*worker, *job, *assignment), *reason);
            }
            Event::InputRefused { reason } => anomaly::input_refused(self, ordinal, reason),
            Event::SweepFound { what } => anomaly::sweep_found(self, ordinal, what),
        }
    }

    fn worker_event(&mut self, ordinal: u32, event: &Event) {
        match event {
            Event::SettingsReplaced => worker::settings(self),
            Event::WorkerJoined { worker, session, protocol } => {
                worker::joined(self, *worker, *session, *protocol);
            }
            Event::WorkerRejected { worker, session, code, reason } => {
                worker::rejected(self, *worker, *session, *code, reason);
                anomaly::worker_rejected(self, ordinal, *worker, reason);
            }
            Event::CapabilitiesReplaced { worker, version } => {
                worker::capabilities(self, *worker, *version);
            }
            Event::MetricsRecorded { worker } => worker::metrics(self, *worker),
            Event::SlotIdle { worker, kind } => worker::idle(self, *worker, *kind),
            Event::WorkerDraining { worker } => worker::presence(self, *worker, Presence::Draining),
            Event::WorkerLost { worker } => worker::presence(self, *worker, Presence::Lost),
            Event::WorkerLeft { worker, .. } => worker::presence(self, *worker, Presence::Left),
            // Offers and scores are shown by `explain`, from the log; only the index names them.
            _ => {
                debug_assert!(
                    matches!(event, Event::OffersSent { .. } | Event::ScoresRecorded { .. }),
                    "routed by `event`"
                );
            }
        }
    }

    fn evaluation_event(&mut self, event: &Event) {
        match event {
            Event::EvaluationRequested { evaluation } => evaluation::requested(self, *evaluation),
            Event::EvaluationAdvanced { evaluation, state }
            | Event::EvaluationResumed { evaluation, state } => {
                evaluation::advanced(self, *evaluation, *state);
            }
            Event::DerivationsRecorded { evaluation, builds, dependencies } => {
                build::recorded(self, builds, dependencies);
                entry_point::recorded(self, *evaluation, builds);
                evaluation::wants(self, *evaluation, builds);
            }
            Event::MessagesRecorded { evaluation } => message::recorded(self, *evaluation),
            Event::EvaluationParked { evaluation, reason } => {
                evaluation::parked(self, *evaluation, reason);
            }
            Event::EvaluationFinished { evaluation, verdict, error } => {
                let state = evaluation::state_of(*verdict);
                evaluation::ended(self, *evaluation, state, error.clone());
                pending_job::taken(self, JobId::Evaluate(*evaluation));
            }
            Event::EvaluationAborted { evaluation, reason } => {
                let state = EvaluationState::Aborted;
                evaluation::ended(self, *evaluation, state, Some(reason.clone()));
                pending_job::taken(self, JobId::Evaluate(*evaluation));
            }
            _ => debug_assert!(false, "routed by `event`"),
        }
    }

    fn job_event(&mut self, event: &Event) {
        match event {
            Event::JobQueued { job, offer } => pending_job::queued(self, *job, *offer),
            Event::JobAssigned { job, assignment, worker, .. } => {
                dispatched_job::assigned(self, event);
                pending_job::taken(self, *job);
                worker::busy(self, *worker, job.kind());
                match job {
                    JobId::Build(build) => build::assigned(self, *build, *assignment, *worker),
                    JobId::Evaluate(id) => evaluation::handed_out(self, *id),
                }
            }
            Event::AssignmentAccepted { assignment } => dispatched_job::accepted(self, *assignment),
            Event::UpdateRecorded { assignment } => {
                build::output(self, *assignment);
                evaluation::source(self);
            }
            Event::AbortRequested { job, assignment, cause } => {
                dispatched_job::aborting(self, *job, *assignment, *cause);
            }
            Event::AssignmentDeclined { .. }
            | Event::AssignmentAbandoned { .. }
            | Event::JobFinished { .. } => dispatched_job::ended(self, event),
            Event::JobRequeued { job, reason, offer } => {
                pending_job::requeued(self, *job, *reason, *offer);
                evaluation::requeued(self, *job, *offer);
            }
            _ => debug_assert!(false, "routed by `event`"),
        }
    }

    fn build_event(&mut self, event: &Event) {
        match event {
            Event::BuildsCreated { first, count } => build::created(self, *first, *count),
            Event::BuildsReady { builds, first_offer } => {
                build::ready(self, builds);
                pending_job::ready(self, builds, *first_offer);
            }
            Event::BuildStarted { build, assignment } => build::started(self, *build, *assignment),
            Event::BuildSucceeded { build, substituted } => {
                build::succeeded(self, *build, *substituted);
            }
            Event::BuildFailed { build, kind, retry_at_ms, message } => {
                build::failed(self, *build, *kind, *retry_at_ms, message);
            }
            Event::DependencyFailed { builds, cause } => {
                build::dependency_failed(self, builds, *cause);
            }
            Event::BuildAborted { build, reason } => build::aborted(self, *build, reason),
            Event::BuildsSkipped { builds } => build::skipped(self, builds),
            Event::BuildsThawed { builds } => build::thawed(self, builds),
            _ => debug_assert!(false, "routed by `event`"),
        }
    }
}
