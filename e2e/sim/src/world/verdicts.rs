//! How evaluations may end.

use gradient_events::event::EvaluationState;
use gradient_scheduler_core::evaluation::Evaluation;

use super::World;
use crate::plan::Behaviour;

impl World {
    /// Every evaluation ended as its plan says, unless something was done to it that explains the end.
    pub(super) fn verdicts(&self) -> Result<(), String> {
        for build in self.watch.blame().builder() {
            let number = self.plan.find(&self.watch.state().graph().node(*build).drv_path);
            if self.plan.graph[number].behaviour != Behaviour::Bad {
                return Err(format!("{build} failed, its plan is good"));
            }
        }
        for (id, flake) in &self.evaluations {
            let evaluation = self.watch.state().evaluation(*id).expect("all are requested");
            let good = self.plan.is_good(&self.plan.flakes[*flake]);
            match evaluation.state {
                EvaluationState::Aborted
                    if self.canceled.contains(id) || self.watch.is_unbuildable(*id) => {}
                EvaluationState::Completed if good => {}
                EvaluationState::Failed
                    if !good || self.is_worn_out(evaluation) || self.is_stopped(*flake) => {}
                state => {
                    return Err(format!(
                        "{id} ended {state:?}, its plan is {}",
                        if good { "good" } else { "bad" }
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether its job came to nothing as often as it may.
    fn is_worn_out(&self, evaluation: &Evaluation) -> bool {
        evaluation.accepted >= self.watch.state().settings().evaluation_max_hand_outs
    }

    /// Whether a build of a flake was canceled, or used up its attempts or its workers.
    fn is_stopped(&self, flake: usize) -> bool {
        let graph = self.watch.state().graph();
        self.plan.closure(&self.plan.flakes[flake].roots).iter().any(|number| {
            let build = graph.find(&self.plan.graph[*number].derivation.drv_path);
            build.is_some_and(|build| {
                self.canceled_builds.contains(&build) || self.watch.blame().is_used_up(build)
            })
        })
    }
}
