//! Fold of the job events: the queue and the hand-outs.

use gradient_domain::{AssignmentId, JobId, Timestamp};
use gradient_events::event::{AbandonReason, RequeueReason};
use gradient_events::score::OfferNumber;
use gradient_events::worker::JobUpdate;
use gradient_events::{Event, FlakeSource, Input, WorkerMessage};

use super::{build, corrupt, worker};
use crate::assignment::{Assignment, Built, Phase};
use crate::graph::BuildState;
use crate::queue::{ClassId, Need, Pending};
use crate::state::State;

pub(super) fn apply(state: &mut State, input: &Input, event: &Event) {
    match event {
        Event::JobQueued { job, offer } => enqueue(state, *job, *offer),
        Event::JobAssigned { job, assignment, worker, .. } => {
            let claim = Assignment {
                job: *job,
                worker: *worker,
                at: state.now,
                phase: Phase::Claimed,
                built: None,
            };
            assign(state, *assignment, claim);
        }
        Event::AssignmentAccepted { assignment } => match state.assignments.get_mut(assignment) {
            Some(open) => {
                open.phase = Phase::Accepted;
                if let JobId::Evaluate(id) = open.job {
                    state.evaluation_mut(id).accepted += 1;
                }
            }
            None => corrupt(input, event),
        },
        Event::AbortRequested { assignment, cause, .. } => {
            let since = state.now;
            match state.assignments.get_mut(assignment) {
                Some(open) => open.phase = Phase::Aborting { since, cause: *cause },
                None => corrupt(input, event),
            }
        }
        Event::UpdateRecorded { assignment } => match state.assignments.get_mut(assignment) {
            Some(open) => record_update(open, input),
            None => corrupt(input, event),
        },
        Event::AssignmentDeclined { assignment, .. } => close(state, *assignment),
        Event::JobFinished { job, assignment, .. } => {
            close(state, *assignment);
            if let (
                JobId::Evaluate(id),
                Input::Worker { message: WorkerMessage::JobFailed { error, .. }, .. },
            ) = (job, input)
            {
                state.evaluation_mut(*id).job_error = Some(error.clone());
            }
        }
        Event::AssignmentAbandoned { job, assignment, reason } => {
            close(state, *assignment);
            if let (JobId::Build(build), AbandonReason::WorkerLost | AbandonReason::WorkerLeft) =
                (job, reason)
            {
                state.graph.node_mut(*build).losses += 1;
            }
        }
        Event::JobRequeued { job, reason, offer } => requeue(state, *job, *reason, *offer),
        _ => corrupt(input, event),
    }
}

/// Keeps what a build made until its end is reported.
fn record_update(open: &mut Assignment, input: &Input) {
    if let Input::Worker {
        message:
            WorkerMessage::JobUpdate {
                update: JobUpdate::BuildOutput { outputs, substituted, .. }, ..
            },
        ..
    } = input
    {
        open.built = Some(Built { outputs: outputs.clone(), substituted: *substituted });
    }
}

fn class_of(state: &mut State, job: JobId) -> (ClassId, Timestamp) {
    match job {
        JobId::Build(id) => {
            let node = state.graph.node(id);
            let recipe = node.recipe.as_ref().expect("only recorded builds are queued");
            (recipe.class, node.ready_at)
        }
        JobId::Evaluate(id) => {
            let evaluation = state.evaluation_mut(id);
            let options = &evaluation.fetch;
            let fetch = matches!(evaluation.flake, FlakeSource::Reference { .. })
                || options.has_ssh_key
                || !options.overrides.is_empty();
            let ready_at = evaluation.requested_at;
            (state.intern_class(Need::Evaluate { fetch }), ready_at)
        }
    }
}

pub(super) fn enqueue(state: &mut State, job: JobId, offer: OfferNumber) {
    state.last_offer = state.last_offer.max(offer);
    let (class, ready_at) = class_of(state, job);
    match job {
        JobId::Build(id) => build::set_state(state, id, BuildState::Queued),
        JobId::Evaluate(id) => {
            let evaluation = state.evaluation_mut(id);
            evaluation.backoff_until = None;
            evaluation.job_error = None;
            // A new run says again what went wrong.
            evaluation.errors = 0;
        }
    }
    state.queue.insert(job, Pending { class, offer, ready_at });
}

/// Takes a job out of the queue. What workers said of it is void with its offer number.
pub(super) fn dequeue(state: &mut State, job: JobId) {
    state.queue.remove(job);
}

fn assign(state: &mut State, id: AssignmentId, claim: Assignment) {
    dequeue(state, claim.job);
    state.last_assignment = state.last_assignment.max(id);
    match claim.job {
        JobId::Build(build) => {
            build::set_state(state, build, BuildState::Assigned { assignment: id })
        }
        JobId::Evaluate(evaluation) => {
            let evaluation = state.evaluation_mut(evaluation);
            evaluation.assignment = Some(id);
        }
    }
    let worker = state.worker_mut(claim.worker);
    worker.assignments.insert(id);
    worker.idle.remove(&claim.job.kind());
    worker.answers.remove(claim.job);
    worker::drop_void_answers(state, claim.worker);
    state.assignments.insert(id, claim);
}

/// Ends a hand-out; what becomes of its job is the next event's matter.
fn close(state: &mut State, id: AssignmentId) {
    let claim = state.assignments.remove(&id).expect("only open hand-outs end");
    state.worker_mut(claim.worker).assignments.remove(&id);
    match claim.job {
        JobId::Build(build) => {
            if state.graph.node(build).state.assignment() == Some(id) {
                build::set_state(state, build, BuildState::Created);
            }
        }
        JobId::Evaluate(evaluation) => state.evaluation_mut(evaluation).assignment = None,
    }
}

fn requeue(state: &mut State, job: JobId, reason: RequeueReason, offer: Option<OfferNumber>) {
    if let (JobId::Build(build), RequeueReason::Canceled) = (job, reason) {
        state.graph.node_mut(build).losses = 0;
    }
    match (job, offer) {
        (_, Some(offer)) => enqueue(state, job, offer),
        (JobId::Evaluate(id), None) => {
            let backoff_ms = state.settings.build_retry_backoff_ms;
            let until = state.now.plus_ms(backoff_ms);
            let evaluation = state.evaluation_mut(id);
            evaluation.failures += 1;
            evaluation.backoff_until = Some(until);
        }
        // The backoff of a build is part of `BuildFailed`.
        (JobId::Build(_), None) => {}
    }
}
