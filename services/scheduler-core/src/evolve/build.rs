//! Fold of the build events: the graph and the counters that hang on it.

use gradient_domain::{BuildId, JobId, Timestamp};
use gradient_events::score::OfferNumber;
use gradient_events::{Event, Input};

use super::{corrupt, job};
use crate::decide::BUILDS_PER_EVENT_MAX;
use crate::graph::BuildState;
use crate::state::State;

pub(super) fn apply(state: &mut State, input: &Input, event: &Event) {
    match event {
        Event::BuildsCreated { first, count } => create(state, input, *first, *count),
        Event::BuildsReady { builds, first_offer } => {
            state.leftovers = builds.len() >= BUILDS_PER_EVENT_MAX;
            for (build, offer) in builds.iter().zip(first_offer.0..) {
                let now = state.now;
                state.graph.node_mut(*build).ready_at = now;
                job::enqueue(state, JobId::Build(*build), OfferNumber(offer));
            }
        }
        Event::BuildStarted { .. } => {}
        Event::BuildSucceeded { build, substituted } => succeed(state, *build, *substituted),
        Event::BuildFailed { build, retry_at_ms: Some(until), .. } => {
            state.graph.node_mut(*build).failures += 1;
            set_state(state, *build, BuildState::Backoff { until: Timestamp(*until) });
        }
        Event::BuildFailed { build, kind, retry_at_ms: None, .. } => {
            set_state(state, *build, BuildState::Failed { kind: *kind });
        }
        Event::DependencyFailed { builds, cause } => {
            state.leftovers |= builds.len() >= BUILDS_PER_EVENT_MAX;
            for build in builds {
                job::dequeue(state, JobId::Build(*build));
                set_state(state, *build, BuildState::DependencyFailed { cause: *cause });
            }
        }
        Event::BuildAborted { build, .. } => {
            job::dequeue(state, JobId::Build(*build));
            set_state(state, *build, BuildState::Aborted);
        }
        Event::BuildsSkipped { builds } => {
            for build in builds {
                job::dequeue(state, JobId::Build(*build));
                set_state(state, *build, BuildState::Skipped);
            }
        }
        Event::BuildsThawed { builds } => {
            for build in builds {
                let node = state.graph.node_mut(*build);
                (node.failures, node.losses) = (0, 0);
                state.frozen.remove(build);
                set_state(state, *build, BuildState::Created);
            }
        }
        _ => corrupt(input, event),
    }
}

/// Makes nodes for every derivation that the input mentions first, in the order of mention.
fn create(state: &mut State, input: &Input, first: BuildId, count: u32) {
    let Some(batch) = input.eval_result() else {
        corrupt(input, &Event::BuildsCreated { first, count })
    };
    let before = state.graph.len();
    for derivation in &batch.derivations {
        state.graph.intern(&derivation.drv_path);
        for dependency in &derivation.dependencies {
            state.graph.intern(&dependency.drv_path);
        }
    }
    let made = state.graph.len() - before;
    assert!(
        before == first.index() && made == count as usize,
        "the log is corrupt: {made} derivations from {before} on, the event says {count} from {first}"
    );
}

/// Its outputs are those that the open hand-out reported; without a report, those of the recipe.
fn succeed(state: &mut State, build: BuildId, substituted: bool) {
    let node = state.graph.node(build);
    let built = node.state.assignment().and_then(|id| state.assignments.get_mut(&id)?.built.take());
    let outputs = match built {
        Some(built) => built.outputs.into_iter().map(|o| (o.name, (o.path, o.nar_size))).collect(),
        None => node
            .recipe
            .iter()
            .flat_map(|recipe| &recipe.outputs)
            .filter_map(|output| Some((output.name.clone(), (output.path.clone()?, 0))))
            .collect(),
    };
    let node = state.graph.node_mut(build);
    (node.failures, node.losses) = (0, 0);
    set_state(state, build, BuildState::Succeeded { outputs, substituted });
}

/// Moves a build and keeps the counters of its dependents and of the evaluations that want it.
pub(super) fn set_state(state: &mut State, build: BuildId, next: BuildState) {
    let node = state.graph.node_mut(build);
    let before = std::mem::replace(&mut node.state, next.clone());
    if let BuildState::Backoff { until } = before {
        state.backoffs.remove(&(until, build));
    }
    if let BuildState::Backoff { until } = next {
        state.backoffs.insert((until, build));
    }
    if next.is_terminal() {
        state.unwanted.remove(&build);
    }
    let node = state.graph.node_mut(build);
    let wanted_by = std::mem::take(&mut node.wanted_by);
    if before.is_success() != next.is_success() {
        let dependents = std::mem::take(&mut node.dependents);
        for dependent in &dependents {
            let blocking = &mut state.graph.node_mut(*dependent).blocking;
            *blocking = if next.is_success() { *blocking - 1 } else { *blocking + 1 };
        }
        state.graph.node_mut(build).dependents = dependents;
    }
    for index in &wanted_by {
        let evaluation = &mut state.evaluations[index.0 as usize];
        evaluation.open = shift(evaluation.open, !before.is_terminal(), !next.is_terminal());
        evaluation.failed = shift(evaluation.failed, before.is_failure(), next.is_failure());
    }
    state.graph.node_mut(build).wanted_by = wanted_by;
}

/// A counter of things that have a property, after one of them changed.
fn shift(count: u32, had: bool, has: bool) -> u32 {
    match (had, has) {
        (true, false) => count - 1,
        (false, true) => count + 1,
        (true, true) | (false, false) => count,
    }
}
