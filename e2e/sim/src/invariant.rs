//! What must hold after every message of the log.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{AssignmentId, EvaluationId, JobId, Kind};
use gradient_events::{Entry, Event};
use gradient_scheduler_core::State;
use gradient_scheduler_core::graph::BuildState;
use gradient_scheduler_core::queue::Need;
use gradient_scheduler_core::worker::Worker;

use crate::blame::Blame;

/// Watches the log as it grows.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    state: State,
    over: BTreeSet<EvaluationId>,
    /// Evaluations that were aborted because nobody could build what they need.
    unbuildable: BTreeSet<EvaluationId>,
    newest: AssignmentId,
    open: BTreeMap<JobId, AssignmentId>,
    blame: Blame,
}

impl Watch {
    /// Checks one entry and folds it. `Err` says which invariant broke.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), String> {
        for event in &entry.events {
            self.event(event)?;
            self.blame.event(entry, event, self.state.settings())?;
        }
        gradient_scheduler_core::evolve(&mut self.state, entry);
        self.state_holds()
    }

    /// The fold of the log so far.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What builds failed of.
    #[must_use]
    pub fn blame(&self) -> &Blame {
        &self.blame
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::JobAssigned { job, assignment, worker, .. } => {
                if *assignment <= self.newest {
                    return Err(format!("{assignment} was handed out twice"));
                }
                self.newest = *assignment;
                if let Some(before) = self.open.insert(*job, *assignment) {
                    return Err(format!(
                        "{job} was handed out as {assignment} while {before} is open"
                    ));
                }
                let known =
                    self.state.workers().get(worker).ok_or("a job for an unknown worker")?;
                if !known.presence.is_here() {
                    return Err(format!("{job} went to {worker}, which is not here"));
                }
                self.fits(*job, known)
            }
            Event::JobFinished { job, assignment, .. }
            | Event::AssignmentDeclined { job, assignment, .. }
            | Event::AssignmentAbandoned { job, assignment, .. } => match self.open.remove(job) {
                Some(open) if open == *assignment => Ok(()),
                other => Err(format!("{assignment} of {job} ended, open was {other:?}")),
            },
            Event::EvaluationAborted { evaluation, reason }
                if reason.starts_with("no connected worker") =>
            {
                self.unbuildable.insert(*evaluation);
                self.ended(*evaluation)
            }
            Event::EvaluationFinished { evaluation, .. }
            | Event::EvaluationAborted { evaluation, .. } => self.ended(*evaluation),
            Event::SweepFound { what } => Err(format!("the sweep found: {what}")),
            _ => Ok(()),
        }
    }

    fn ended(&mut self, id: EvaluationId) -> Result<(), String> {
        if self.over.insert(id) { Ok(()) } else { Err(format!("{id} ended twice")) }
    }

    /// Whether an evaluation was aborted because nobody could build what it needs.
    #[must_use]
    pub fn is_unbuildable(&self, id: EvaluationId) -> bool {
        self.unbuildable.contains(&id)
    }

    /// Whether a worker can run a job: fitting it is a matter of the moment of the hand-out.
    fn fits(&self, job: JobId, worker: &Worker) -> Result<(), String> {
        let JobId::Build(build) = job else { return Ok(()) };
        let recipe = self.state.graph().get(build).and_then(|node| node.recipe.as_ref());
        let recipe = recipe.ok_or("an unrecorded build is handed out")?;
        match &self.state.queue().class(recipe.class).need {
            Need::Build(need)
                if worker.capabilities.as_ref().is_some_and(|c| c.satisfies(need)) =>
            {
                Ok(())
            }
            need => Err(format!("{job} needs {need:?}, its worker does not fit")),
        }
    }

    fn state_holds(&self) -> Result<(), String> {
        for (id, open) in self.state.assignments() {
            if self.open.get(&open.job) != Some(id) {
                return Err(format!("{id} is open in the state only"));
            }
            if let JobId::Build(build) = open.job {
                let node = self.state.graph().node(build);
                if node.state.assignment() != Some(*id) {
                    return Err(format!("{id} is open, its build is {:?}", node.state));
                }
                if node.blocking > 0 {
                    return Err(format!("{build} runs with {} inputs missing", node.blocking));
                }
            }
        }
        for (id, worker) in self.state.workers() {
            let builds = worker
                .assignments
                .iter()
                .filter(|id| self.state.assignments()[id].job.kind() == Kind::Build);
            if builds.count() > worker.build_slots()
                && worker.presence.is_here()
                && worker.capabilities.is_some()
            {
                return Err(format!("{id} has more builds than slots"));
            }
        }
        self.counters_hold()
    }

    /// The counters in nodes and evaluations equal what they count.
    fn counters_hold(&self) -> Result<(), String> {
        let graph = self.state.graph();
        for (build, node) in graph.iter() {
            if let Some(recipe) = &node.recipe {
                let missing = recipe
                    .dependencies
                    .iter()
                    .filter(|edge| !graph.node(edge.build).state.is_success())
                    .count();
                if missing != node.blocking as usize {
                    return Err(format!(
                        "{build} counts {} missing inputs, there are {missing}",
                        node.blocking
                    ));
                }
            }
            if node.state == BuildState::Queued && node.wanted_by.is_empty() {
                return Err(format!("{build} is queued though nobody wants it"));
            }
            if (node.state == BuildState::Queued)
                != self.state.queue().get(JobId::Build(build)).is_some()
            {
                return Err(format!("{build} is {:?}, the queue disagrees", node.state));
            }
        }
        for evaluation in self.state.evaluations().iter().filter(|e| !e.state.is_terminal()) {
            let open =
                evaluation.builds.iter().filter(|b| !graph.node(**b).state.is_terminal()).count();
            if open != evaluation.open as usize {
                return Err(format!(
                    "{} counts {} open builds, there are {open}",
                    evaluation.id, evaluation.open
                ));
            }
        }
        Ok(())
    }
}
