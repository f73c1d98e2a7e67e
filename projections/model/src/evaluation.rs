//! `evaluation` and `evaluation_build`.

use gradient_domain::{BuildId, EvaluationId, JobId};
use gradient_events::event::{EvaluationState, Verdict, WaitingReason};
use gradient_events::score::OfferNumber;
use gradient_events::worker::{JobUpdate, WorkerMessage};
use gradient_events::{Command, Input};

use crate::Projection;
use crate::change::{
    Change, EvaluationAdvanced, EvaluationEnded, EvaluationHandedOut, EvaluationRequested,
    EvaluationRetries, EvaluationSource, EvaluationWaits, EvaluationWants,
};
use crate::dispatched_job::Report;
use crate::view::Waiting;

pub(crate) fn requested(projection: &mut Projection<'_>, evaluation: EvaluationId) {
    let (at, position) = (projection.entry.at, projection.position);
    let change = match &projection.entry.input {
        Input::Command { command: Command::Submit { flake, patterns, .. } } => {
            let (flake, patterns) = (flake.clone(), patterns.clone());
            EvaluationRequested { evaluation, flake, patterns, at, position }
        }
        Input::Command { .. }
        | Input::Started { .. }
        | Input::Worker { .. }
        | Input::Metrics { .. }
        | Input::WorkerSilent { .. }
        | Input::Unreadable { .. }
        | Input::Tick
        | Input::Sweep => return,
    };
    projection.push(Change::EvaluationRequested(Box::new(change)));
}

pub(crate) fn advanced(
    projection: &mut Projection<'_>,
    evaluation: EvaluationId,
    state: EvaluationState,
) {
    let at = projection.entry.at;
    projection.push(Change::EvaluationAdvanced(EvaluationAdvanced { evaluation, state, at }));
}

pub(crate) fn parked(
    projection: &mut Projection<'_>,
    evaluation: EvaluationId,
    reason: &WaitingReason,
) {
    let reason = match reason {
        WaitingReason::EvalWorkers { connected_workers } => {
            Waiting::EvalWorkers { connected_workers: *connected_workers }
        }
        WaitingReason::Workers { unmet, connected_workers } => {
            Waiting::Workers { unmet: unmet.clone(), connected_workers: *connected_workers }
        }
    };
    waits(projection, evaluation, EvaluationState::Waiting, reason);
}

/// An evaluation whose job failed and comes back later says so, with what went wrong.
pub(crate) fn requeued(projection: &mut Projection<'_>, job: JobId, offer: Option<OfferNumber>) {
    if let (JobId::Evaluate(evaluation), None) = (job, offer) {
        let error = Report::of(&projection.entry.input).error.unwrap_or_default().to_owned();
        waits(projection, evaluation, EvaluationState::Queued, Waiting::Retry { error });
    }
}

pub(crate) fn retries(projection: &mut Projection<'_>, evaluation: EvaluationId) {
    let position = projection.position;
    projection.push(Change::EvaluationRetries(EvaluationRetries { evaluation, position }));
}

fn waits(
    projection: &mut Projection<'_>,
    evaluation: EvaluationId,
    state: EvaluationState,
    reason: Waiting,
) {
    let at = projection.entry.at;
    let change = EvaluationWaits { evaluation, state, reason, at };
    projection.push(Change::EvaluationWaits(Box::new(change)));
}

pub(crate) fn source(projection: &mut Projection<'_>) {
    let Some(WorkerMessage::JobUpdate {
        job: JobId::Evaluate(evaluation),
        update: JobUpdate::FetchResult { flake_source, locked_url },
        ..
    }) = projection.entry.input.message()
    else {
        return;
    };
    let change = EvaluationSource {
        evaluation: *evaluation,
        flake_source: flake_source.clone(),
        locked_url: locked_url.clone(),
    };
    projection.push(Change::EvaluationSource(Box::new(change)));
}

pub(crate) fn handed_out(projection: &mut Projection<'_>, evaluation: EvaluationId) {
    let at = projection.entry.at;
    projection.push(Change::EvaluationHandedOut(EvaluationHandedOut { evaluation, at }));
}

pub(crate) fn wants(projection: &mut Projection<'_>, evaluation: EvaluationId, builds: &[BuildId]) {
    let builds = builds.to_vec();
    projection.push(Change::EvaluationWants(EvaluationWants { evaluation, builds }));
}

pub(crate) fn state_of(verdict: Verdict) -> EvaluationState {
    match verdict {
        Verdict::Completed => EvaluationState::Completed,
        Verdict::Failed => EvaluationState::Failed,
    }
}

pub(crate) fn ended(
    projection: &mut Projection<'_>,
    evaluation: EvaluationId,
    state: EvaluationState,
    error: Option<String>,
) {
    let at = projection.entry.at;
    let change = EvaluationEnded { evaluation, state, error, at };
    projection.push(Change::EvaluationEnded(Box::new(change)));
}
