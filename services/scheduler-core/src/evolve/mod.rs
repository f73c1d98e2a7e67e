//! The fold: applies decided facts. Nothing is checked again; an event that cannot follow the state
//! means that the log is corrupt or newer than this build, and going on would be worse than stopping.

mod build;
mod evaluation;
mod job;
mod worker;

use gradient_domain::Timestamp;
use gradient_events::{Cause, Entry, Event, Input};

use crate::state::State;

/// Folds one entry.
///
/// # Panics
/// If the entry cannot follow the state: a corrupt log.
pub fn evolve(state: &mut State, entry: &Entry) {
    begin(state, entry.at, entry.cause);
    for event in &entry.events {
        apply(state, &entry.input, event);
    }
}

/// Takes over time and position of an entry. An input without events is no entry and leaves no trace.
pub(crate) fn begin(state: &mut State, at: Timestamp, cause: Cause) {
    state.now = state.now.max(at);
    if let Cause::Command(sequence) = cause {
        state.commands_position = state.commands_position.max(sequence);
    }
}

/// Folds one event of an entry with this input.
pub(crate) fn apply(state: &mut State, input: &Input, event: &Event) {
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
        | Event::WorkerLeft { .. } => worker::apply(state, input, event),
        Event::EvaluationRequested { .. }
        | Event::EvaluationAdvanced { .. }
        | Event::DerivationsRecorded { .. }
        | Event::MessagesRecorded { .. }
        | Event::EvaluationParked { .. }
        | Event::EvaluationResumed { .. }
        | Event::EvaluationFinished { .. }
        | Event::EvaluationAborted { .. } => evaluation::apply(state, input, event),
        Event::JobQueued { .. }
        | Event::JobAssigned { .. }
        | Event::AssignmentAccepted { .. }
        | Event::AssignmentDeclined { .. }
        | Event::AbortRequested { .. }
        | Event::UpdateRecorded { .. }
        | Event::AssignmentAbandoned { .. }
        | Event::JobRequeued { .. }
        | Event::JobFinished { .. } => job::apply(state, input, event),
        Event::BuildsCreated { .. }
        | Event::BuildsReady { .. }
        | Event::BuildStarted { .. }
        | Event::BuildSucceeded { .. }
        | Event::BuildFailed { .. }
        | Event::DependencyFailed { .. }
        | Event::BuildAborted { .. }
        | Event::BuildsSkipped { .. }
        | Event::BuildsThawed { .. } => build::apply(state, input, event),
        Event::ReportDropped { .. } | Event::InputRefused { .. } => {}
        Event::SweepFound { .. } => state.sweep_found += 1,
    }
}

/// Stops at an event that cannot follow the state.
fn corrupt(input: &Input, event: &Event) -> ! {
    panic!(
        "the log is corrupt or newer than this build: {event:?} cannot follow here (input {input:?})"
    )
}
