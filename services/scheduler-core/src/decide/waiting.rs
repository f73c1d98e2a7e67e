//! Evaluations that can only wait: typed reasons that a person can read (reference 3.11).

use std::collections::BTreeMap;

use gradient_events::Event;
use gradient_events::event::{EvaluationState, UnmetRequirement, WaitingReason};

use super::Decision;
use super::limits::{PARKED_PER_DECISION_MAX, UNMET_NAMED_MAX};
use crate::evaluation::{Evaluation, EvaluationIndex};
use crate::graph::BuildState;
use crate::queue::{ClassId, Need};
use crate::state::State;

impl Decision<'_> {
    /// Says of every building evaluation whether any connected worker fits what is left of it.
    pub(super) fn review_building_evaluations(&mut self) {
        let live: Vec<EvaluationIndex> = self.state.live_evaluations.iter().copied().collect();
        let events = self.events.len();
        for index in live {
            if self.events.len() - events >= PARKED_PER_DECISION_MAX {
                break;
            }
            self.review_building_evaluation(index);
        }
    }

    fn review_building_evaluation(&mut self, index: EvaluationIndex) {
        let evaluation = &self.state.evaluations[index.0 as usize];
        let waits_for_workers =
            matches!(evaluation.waiting, Some((WaitingReason::Workers { .. }, _)));
        if evaluation.state != EvaluationState::Building && !waits_for_workers {
            return;
        }
        let id = evaluation.id;
        let Some(unmet) = unmet(self.state, evaluation) else {
            if waits_for_workers {
                let state = EvaluationState::Building;
                self.emit(Event::EvaluationResumed { evaluation: id, state });
            }
            return;
        };
        let connected =
            self.state.workers.values().filter(|worker| worker.presence.is_here()).count();
        let connected_workers = u32::try_from(connected).unwrap_or(u32::MAX);
        let limit_ms = self.state.settings.unbuildable_timeout_ms;
        match &evaluation.waiting {
            Some((WaitingReason::Workers { unmet: before, .. }, since)) if *before == unmet => {
                if limit_ms > 0 && self.now().since_ms(*since) >= limit_ms {
                    self.abort_evaluation(id, unbuildable(&unmet));
                }
            }
            _ => {
                let reason = WaitingReason::Workers { unmet, connected_workers };
                self.emit(Event::EvaluationParked { evaluation: id, reason });
            }
        }
    }
}

/// What no connected worker offers, if that is all an evaluation waits for.
fn unmet(state: &State, evaluation: &Evaluation) -> Option<Vec<UnmetRequirement>> {
    let mut unmet: BTreeMap<ClassId, u32> = BTreeMap::new();
    for build in &evaluation.builds {
        let node = state.graph.node(*build);
        match (&node.state, &node.recipe) {
            (BuildState::Queued, Some(recipe)) => {
                let count = unmet.entry(recipe.class).or_default();
                let need = &state.queue.class(recipe.class).need;
                let is_new = *count == 0;
                if is_new && state.workers.values().any(|worker| need.is_met_by(worker)) {
                    return None;
                }
                *count += 1;
            }
            (BuildState::Assigned { .. } | BuildState::Backoff { .. }, _) => return None,
            (
                BuildState::Queued
                | BuildState::Created
                | BuildState::Succeeded { .. }
                | BuildState::Failed { .. }
                | BuildState::DependencyFailed { .. }
                | BuildState::Aborted
                | BuildState::Skipped,
                _,
            ) => {}
        }
    }
    let named =
        unmet.into_iter().filter_map(|(class, build_count)| match &state.queue.class(class).need {
            Need::Build(requirement) => {
                Some(UnmetRequirement { requirement: requirement.clone(), build_count })
            }
            Need::Evaluate { .. } => None,
        });
    let unmet: Vec<UnmetRequirement> = named.take(UNMET_NAMED_MAX).collect();
    (!unmet.is_empty()).then_some(unmet)
}

fn unbuildable(unmet: &[UnmetRequirement]) -> String {
    let needs: Vec<String> = unmet.iter().map(|unmet| unmet.requirement.to_string()).collect();
    format!("no connected worker builds {}; connect one and submit again", needs.join(", "))
}
