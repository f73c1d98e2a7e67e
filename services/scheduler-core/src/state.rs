//! Everything the scheduler knows: a fold of the log and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{AssignmentId, BuildId, EvaluationId, JobId, Timestamp, WorkerId};
use gradient_events::Settings;
use gradient_events::score::OfferNumber;

use crate::assignment::Assignment;
use crate::evaluation::{Evaluation, EvaluationIndex};
use crate::graph::Graph;
use crate::queue::{ClassId, Need, Queue};
use crate::worker::Worker;

/// The folded log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Settings in force.
    pub(crate) settings: Settings,
    /// Time of the newest entry.
    pub(crate) now: Timestamp,
    /// Highest sequence in COMMANDS that an entry was made of: where to read on (protocol page).
    pub(crate) commands_position: u64,
    /// Derivations, edges and the build of each.
    pub(crate) graph: Graph,
    /// Evaluations in order of their request.
    pub(crate) evaluations: Vec<Evaluation>,
    /// Position of each evaluation.
    pub(crate) evaluation_index: BTreeMap<EvaluationId, EvaluationIndex>,
    /// Those that are not over.
    pub(crate) live_evaluations: BTreeSet<EvaluationIndex>,
    /// Builds under way that no live evaluation wants any more, to be let go of.
    pub(crate) unwanted: BTreeSet<BuildId>,
    /// Failed builds that a new evaluation wants, about to start over.
    pub(crate) frozen: BTreeSet<BuildId>,
    /// Whether a decision left builds over that could go on.
    pub(crate) leftovers: bool,
    /// Builds in backoff, by the end of it.
    pub(crate) backoffs: BTreeSet<(Timestamp, BuildId)>,
    /// Every worker ever seen, lost and left ones included.
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    /// Open hand-outs; an ended one is gone from here.
    pub(crate) assignments: BTreeMap<AssignmentId, Assignment>,
    /// Jobs that may be handed out.
    pub(crate) queue: Queue,
    /// The assignment handed out last.
    pub(crate) last_assignment: AssignmentId,
    /// The offer made last.
    pub(crate) last_offer: OfferNumber,
    /// Finds of the sweep so far: each is a bug of ours.
    pub(crate) sweep_found: u64,
}

impl State {
    /// Time of the newest entry.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Highest sequence in COMMANDS that is folded in.
    #[must_use]
    pub fn commands_position(&self) -> u64 {
        self.commands_position
    }

    /// Derivations and builds.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// All evaluations, oldest first.
    #[must_use]
    pub fn evaluations(&self) -> &[Evaluation] {
        &self.evaluations
    }

    /// One evaluation.
    #[must_use]
    pub fn evaluation(&self, id: EvaluationId) -> Option<&Evaluation> {
        self.evaluation_index.get(&id).map(|index| &self.evaluations[index.0 as usize])
    }

    /// All workers, by id.
    #[must_use]
    pub fn workers(&self) -> &BTreeMap<WorkerId, Worker> {
        &self.workers
    }

    /// Open hand-outs.
    #[must_use]
    pub fn assignments(&self) -> &BTreeMap<AssignmentId, Assignment> {
        &self.assignments
    }

    /// Jobs that may be handed out.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Finds of the sweep so far.
    #[must_use]
    pub fn sweep_found(&self) -> u64 {
        self.sweep_found
    }

    /// The open hand-out of a job, if it has one.
    #[must_use]
    pub fn open_assignment(&self, job: JobId) -> Option<(AssignmentId, &Assignment)> {
        let id = match job {
            JobId::Build(build) => self.graph.get(build)?.state.assignment()?,
            JobId::Evaluate(evaluation) => self.evaluation(evaluation)?.assignment?,
        };
        self.assignments.get(&id).map(|assignment| (id, assignment))
    }

    pub(crate) fn evaluation_mut(&mut self, id: EvaluationId) -> &mut Evaluation {
        let index = self.evaluation_index[&id];
        &mut self.evaluations[index.0 as usize]
    }

    /// The class of a need. Workers learn of a new class at once.
    pub(crate) fn intern_class(&mut self, need: Need) -> ClassId {
        let known = self.queue.all_classes().count();
        let class = self.queue.intern(need);
        if class.0 as usize == known {
            let need = &self.queue.class(class).need;
            for worker in self.workers.values_mut().filter(|worker| need.fits(worker)) {
                worker.classes.push(class);
            }
        }
        class
    }

    pub(crate) fn worker_mut(&mut self, id: WorkerId) -> &mut Worker {
        self.workers.get_mut(&id).expect("events name workers that joined before")
    }
}
