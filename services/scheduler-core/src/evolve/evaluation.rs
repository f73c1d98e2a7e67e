//! Fold of the evaluation events.

use gradient_domain::{BuildId, EvaluationId, JobId};
use gradient_events::event::{EvaluationState, Verdict};
use gradient_events::worker::DiscoveredDerivation;
use gradient_events::{Command, Event, Input};

use super::{corrupt, job};
use crate::evaluation::{Evaluation, EvaluationIndex};
use crate::graph::{Edge, Recipe};
use crate::queue::Need;
use crate::state::State;

pub(super) fn apply(state: &mut State, input: &Input, event: &Event) {
    match event {
        Event::EvaluationRequested { evaluation } => request(state, input, *evaluation),
        Event::EvaluationAdvanced { evaluation, state: next } => {
            let evaluation = state.evaluation_mut(*evaluation);
            evaluation.state = *next;
            evaluation.waiting = None;
            evaluation.discovered |= *next == EvaluationState::Building;
        }
        Event::DerivationsRecorded { evaluation, builds, dependencies } => {
            match input.eval_result() {
                Some(batch) => {
                    for ((derivation, build), edges) in
                        batch.derivations.iter().zip(builds).zip(dependencies)
                    {
                        record(state, derivation, *build, edges);
                    }
                    let index = state.evaluation_index[evaluation];
                    for build in builds {
                        want(state, index, *build);
                    }
                }
                None => corrupt(input, event),
            }
        }
        Event::MessagesRecorded { evaluation } => match input.eval_result() {
            Some(batch) => {
                let errors = u32::try_from(batch.errors.len()).unwrap_or(u32::MAX);
                let evaluation = state.evaluation_mut(*evaluation);
                evaluation.errors = evaluation.errors.saturating_add(errors);
            }
            None => corrupt(input, event),
        },
        Event::EvaluationParked { evaluation, reason } => {
            let now = state.now;
            let evaluation = state.evaluation_mut(*evaluation);
            let since = match &evaluation.waiting {
                Some((before, since)) if before == reason => *since,
                _ => now,
            };
            evaluation.state = EvaluationState::Waiting;
            evaluation.waiting = Some((reason.clone(), since));
        }
        Event::EvaluationResumed { evaluation, state: next } => {
            let evaluation = state.evaluation_mut(*evaluation);
            evaluation.state = *next;
            evaluation.waiting = None;
        }
        Event::EvaluationFinished { evaluation, verdict, error } => {
            let next = match verdict {
                Verdict::Completed => EvaluationState::Completed,
                Verdict::Failed => EvaluationState::Failed,
            };
            state.evaluation_mut(*evaluation).job_error.clone_from(error);
            end(state, *evaluation, next);
        }
        Event::EvaluationAborted { evaluation, .. } => {
            end(state, *evaluation, EvaluationState::Aborted);
        }
        _ => corrupt(input, event),
    }
}

fn request(state: &mut State, input: &Input, id: EvaluationId) {
    let Input::Command { command: Command::Submit { flake, patterns, fetch, .. } } = input else {
        corrupt(input, &Event::EvaluationRequested { evaluation: id })
    };
    let next = u32::try_from(state.evaluations.len()).expect("fewer than 2^32 evaluations");
    state.evaluation_index.insert(id, EvaluationIndex(next));
    state.live_evaluations.insert(EvaluationIndex(next));
    state.evaluations.push(Evaluation {
        id,
        flake: flake.clone(),
        patterns: patterns.clone(),
        fetch: fetch.clone(),
        requested_at: state.now,
        state: EvaluationState::Queued,
        waiting: None,
        assignment: None,
        accepted: 0,
        failures: 0,
        backoff_until: None,
        discovered: false,
        errors: 0,
        job_error: None,
        builds: Vec::new(),
        open: 0,
        failed: 0,
    });
}

/// Fills in a node that was only mentioned so far; a second record of it says the same.
fn record(state: &mut State, derivation: &DiscoveredDerivation, build: BuildId, edges: &[BuildId]) {
    if state.graph.node(build).recipe.is_some() {
        return;
    }
    let class = state.intern_class(Need::Build(derivation.requirement.clone()));
    let (mut blocking, mut gaps) = (0, 0);
    let mut dependencies = Vec::with_capacity(edges.len());
    for (edge, dependency) in edges.iter().zip(&derivation.dependencies) {
        let input = state.graph.node_mut(*edge);
        input.dependents.push(build);
        blocking += u32::from(!input.state.is_success());
        gaps += u32::from(!input.is_whole());
        dependencies.push(Edge { build: *edge, outputs: dependency.outputs.clone() });
    }
    let node = state.graph.node_mut(build);
    node.blocking = blocking;
    node.gaps = gaps;
    node.recipe = Some(Box::new(Recipe {
        outputs: derivation.outputs.clone(),
        dependencies,
        class,
        is_fixed_output: derivation.is_fixed_output,
        timeout_secs: derivation.timeout_secs,
        max_silent_secs: derivation.max_silent_secs,
    }));
    if state.graph.node(build).is_whole() {
        state.graph.became_whole(build);
    }
}

/// Marks a build and all it still needs as wanted by an evaluation.
fn want(state: &mut State, index: EvaluationIndex, build: BuildId) {
    let mut stack = vec![build];
    while let Some(build) = stack.pop() {
        let node = state.graph.node_mut(build);
        let is_new = !node.wanted_by.contains(&index);
        if is_new {
            node.wanted_by.push(index);
            state.unwanted.remove(&build);
            if node.state.is_failure() {
                state.frozen.insert(build);
            }
            let (open, failed) = (!node.state.is_terminal(), node.state.is_failure());
            let evaluation = &mut state.evaluations[index.0 as usize];
            evaluation.builds.push(build);
            evaluation.open += u32::from(open);
            evaluation.failed += u32::from(failed);
        }
        let node = state.graph.node(build);
        if let (Some(recipe), false) = (&node.recipe, node.state.is_success()) {
            let unwanted = |edge: &&Edge| !state.graph.node(edge.build).wanted_by.contains(&index);
            stack.extend(recipe.dependencies.iter().filter(unwanted).map(|edge| edge.build));
        }
    }
}

/// Ends an evaluation: its builds are not wanted by it any more.
fn end(state: &mut State, id: EvaluationId, next: EvaluationState) {
    job::dequeue(state, JobId::Evaluate(id));
    let index = state.evaluation_index[&id];
    state.live_evaluations.remove(&index);
    let evaluation = &mut state.evaluations[index.0 as usize];
    evaluation.state = next;
    evaluation.waiting = None;
    evaluation.backoff_until = None;
    // Nothing looks at them after the end.
    for build in &std::mem::take(&mut evaluation.builds) {
        let node = state.graph.node_mut(*build);
        node.wanted_by.retain(|other| *other != index);
        if node.wanted_by.is_empty() && !node.state.is_terminal() {
            state.unwanted.insert(*build);
        }
    }
}
