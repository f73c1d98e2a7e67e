//! What becomes of evaluations: batches, the end of discovery, waiting, verdicts.

use gradient_domain::{BuildId, EvaluationId, JobId, Kind};
use gradient_events::event::{AbortCause, EvaluationState, Verdict, WaitingReason};
use gradient_events::worker::EvalResult;
use gradient_events::{Event, PAGE_ITEMS_MAX};

use super::Decision;
use super::limits::PARKED_PER_DECISION_MAX;
use crate::evaluation::EvaluationIndex;
use crate::queue::ClassId;

impl Decision<'_> {
    /// Records a batch of discovered derivations; what is ready starts at once.
    pub(super) fn eval_result(&mut self, id: EvaluationId, batch: &EvalResult) {
        let evaluation = self.state.evaluation_mut(id);
        if evaluation.state.is_terminal() {
            return self.refuse("the evaluation is over");
        }
        if let Some(fault) = batch_fault(batch) {
            let assignment = evaluation.assignment;
            self.refuse(fault.clone());
            // Without this batch the evaluation would look complete.
            self.finish_evaluation(id, Verdict::Failed, Some(fault));
            if let Some(assignment) = assignment {
                self.request_abort(JobId::Evaluate(id), assignment, AbortCause::Unwanted);
            }
            return;
        }
        let wanted_before = self.state.evaluation_mut(id).builds.len();
        if !batch.derivations.is_empty() {
            self.record_derivations(id, batch);
        }
        if !batch.errors.is_empty() || !batch.warnings.is_empty() {
            self.emit(Event::MessagesRecorded { evaluation: id });
        }
        let newly_wanted = self.state.evaluation_mut(id).builds[wanted_before..].to_vec();
        self.thaw_builds();
        let recorded = batch.derivations.iter().filter_map(|d| self.state.graph.find(&d.drv_path));
        let candidates: Vec<BuildId> = newly_wanted.into_iter().chain(recorded).collect();
        self.settle_builds(&candidates);
    }

    fn record_derivations(&mut self, evaluation: EvaluationId, batch: &EvalResult) {
        let first =
            BuildId(u32::try_from(self.state.graph.len()).expect("fewer than 2^32 derivations"));
        let mentions = batch.derivations.iter().flat_map(|derivation| {
            std::iter::once(&derivation.drv_path)
                .chain(derivation.dependencies.iter().map(|dependency| &dependency.drv_path))
        });
        let mut unknown = std::collections::BTreeSet::new();
        unknown.extend(mentions.filter(|path| self.state.graph.find(path).is_none()));
        if !unknown.is_empty() {
            let count = u32::try_from(unknown.len()).expect("a batch is small");
            self.emit(Event::BuildsCreated { first, count });
        }
        let find = |path| self.state.graph.find(path).expect("created above");
        let builds = batch.derivations.iter().map(|d| find(&d.drv_path)).collect();
        let dependencies = batch
            .derivations
            .iter()
            .map(|d| d.dependencies.iter().map(|dependency| find(&dependency.drv_path)).collect())
            .collect();
        self.emit(Event::DerivationsRecorded { evaluation, builds, dependencies });
    }

    /// The job of an evaluation is over, well or not: what was found is built, then the verdict falls.
    pub(super) fn discovery_ended(&mut self, id: EvaluationId) {
        let evaluation = self.state.evaluation_mut(id);
        if evaluation.state.is_terminal() {
            return;
        }
        let builds = evaluation.builds.clone();
        self.emit(Event::EvaluationAdvanced { evaluation: id, state: EvaluationState::Building });
        let hole = builds.into_iter().find(|build| {
            let node = self.state.graph.node(*build);
            node.recipe.is_none() && !node.state.is_terminal()
        });
        if let Some(hole) = hole {
            let path = &self.state.graph.node(hole).drv_path;
            let error = format!("the evaluation ended without recording {path}, which it needs");
            return self.finish_evaluation(id, Verdict::Failed, Some(error));
        }
        self.touched.insert(self.state.evaluation_index[&id]);
    }

    /// Ends an evaluation if nothing is left of it.
    pub(super) fn settle_evaluation(&mut self, index: EvaluationIndex) {
        let evaluation = &self.state.evaluations[index.0 as usize];
        if !evaluation.is_settled() || !self.state.frozen.is_empty() {
            return;
        }
        let failed =
            evaluation.failed > 0 || evaluation.errors > 0 || evaluation.job_error.is_some();
        let verdict = if failed { Verdict::Failed } else { Verdict::Completed };
        let (id, error) = (evaluation.id, evaluation.job_error.clone());
        self.finish_evaluation(id, verdict, error);
    }

    pub(super) fn finish_evaluation(
        &mut self,
        id: EvaluationId,
        verdict: Verdict,
        error: Option<String>,
    ) {
        self.emit(Event::EvaluationFinished { evaluation: id, verdict, error });
        self.release_builds();
    }

    /// Stops an evaluation and whatever only it wants.
    pub(super) fn abort_evaluation(&mut self, id: EvaluationId, reason: String) {
        let evaluation = self.state.evaluation_mut(id);
        if evaluation.state.is_terminal() {
            return;
        }
        let assignment = evaluation.assignment;
        self.emit(Event::EvaluationAborted { evaluation: id, reason });
        if let Some(assignment) = assignment {
            self.request_abort(JobId::Evaluate(id), assignment, AbortCause::Canceled);
        }
        self.release_builds();
    }

    /// An evaluation whose job is back in the queue.
    pub(super) fn evaluation_waits_again(&mut self, id: EvaluationId) {
        let state = self.state.evaluation_mut(id).state;
        if !state.is_terminal() && state != EvaluationState::Queued {
            self.emit(Event::EvaluationAdvanced { evaluation: id, state: EvaluationState::Queued });
        }
        self.review_queued_evaluation(id);
    }

    /// Says of one queued evaluation whether any connected worker could take it.
    pub(super) fn review_queued_evaluation(&mut self, id: EvaluationId) {
        let Some(pending) = self.state.queue.get(JobId::Evaluate(id)) else {
            return;
        };
        let can_run = self.can_run(pending.class);
        self.park_or_resume(id, can_run);
    }

    /// Says of queued evaluations whether any connected worker could take them; what is over the limit
    /// of one entry follows with the next tick.
    pub(super) fn review_queued_evaluations(&mut self) {
        let queue = &self.state.queue;
        let classes = queue.all_classes().filter(|(_, class)| class.need.kind() == Kind::Evaluate);
        let mut changed: Vec<(EvaluationId, bool)> = Vec::new();
        for (id, class) in classes.filter(|(_, class)| !class.waiting.is_empty()) {
            let can_run = self.can_run(id);
            let waiting = class.waiting.iter().filter_map(|(_, job)| evaluation_of(*job));
            let differs = |id: &EvaluationId| {
                let evaluation = self.state.evaluation(*id).expect("a queued evaluation exists");
                evaluation.waiting.is_some() == can_run
            };
            changed.extend(waiting.filter(differs).map(|id| (id, can_run)));
        }
        for (id, can_run) in changed.into_iter().take(PARKED_PER_DECISION_MAX) {
            self.park_or_resume(id, can_run);
        }
    }

    /// Whether any worker takes the jobs of a class now.
    fn can_run(&self, class: ClassId) -> bool {
        let need = &self.state.queue.class(class).need;
        self.state.workers.values().any(|worker| need.is_met_by(worker))
    }

    fn park_or_resume(&mut self, id: EvaluationId, can_run: bool) {
        let evaluation = self.state.evaluation(id).expect("a queued evaluation exists");
        match (evaluation.waiting.is_some(), can_run) {
            (true, true) => {
                let state = EvaluationState::Queued;
                self.emit(Event::EvaluationResumed { evaluation: id, state });
            }
            (false, false) => {
                let here = self.state.workers.values().filter(|worker| worker.presence.is_here());
                let connected_workers = u32::try_from(here.count()).unwrap_or(u32::MAX);
                let reason = WaitingReason::EvalWorkers { connected_workers };
                self.emit(Event::EvaluationParked { evaluation: id, reason });
            }
            (true, false) | (false, true) => {}
        }
    }
}

fn evaluation_of(job: JobId) -> Option<EvaluationId> {
    match job {
        JobId::Evaluate(id) => Some(id),
        JobId::Build(_) => None,
    }
}

/// What is wrong with a batch, if anything.
fn batch_fault(batch: &EvalResult) -> Option<String> {
    if batch.derivations.len() > PAGE_ITEMS_MAX {
        return Some(format!("a batch holds at most {PAGE_ITEMS_MAX} derivations"));
    }
    batch.derivations.iter().find_map(|derivation| {
        let path = &derivation.drv_path;
        let odd = |path: &gradient_domain::StorePath| !path.is_derivation();
        if odd(path) || derivation.dependencies.iter().any(|dependency| odd(&dependency.drv_path)) {
            return Some(format!("{path} or one of its dependencies is not a derivation file"));
        }
        let own = |dependency: &gradient_events::worker::Dependency| dependency.drv_path == *path;
        derivation.dependencies.iter().any(own).then(|| format!("{path} depends on itself"))
    })
}
