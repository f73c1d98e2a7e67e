//! Why a job runs where it runs, or why it does not run yet.

use gradient_domain::{AssignmentId, BuildId, JobId, Timestamp, WorkerId};
use gradient_events::event::EvaluationState;

use crate::assignment::Phase;
use crate::graph::BuildState;
use crate::queue::Pending;
use crate::state::State;

/// Most dependencies named in an explanation.
const NAMED_MAX: usize = 20;

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// No such job.
    Unknown,
    /// It runs.
    Running {
        /// Under this id.
        assignment: AssignmentId,
        /// Where.
        worker: WorkerId,
        /// Since when.
        since: Timestamp,
        /// How far.
        phase: Phase,
    },
    /// It could be handed out; what each worker says to that.
    Queued {
        /// Since when it could run.
        since: Timestamp,
        /// Each worker that is here.
        workers: Vec<(WorkerId, Standing)>,
    },
    /// It waits for its inputs.
    Blocked {
        /// How many direct inputs are not there.
        missing: u32,
        /// Some of them.
        inputs: Vec<BuildId>,
    },
    /// It is mentioned, but not recorded yet.
    NotRecorded,
    /// Nobody wants it.
    Unwanted,
    /// It failed in a way that another try may mend.
    Backoff {
        /// When it comes back.
        until: Timestamp,
    },
    /// It is over.
    Over {
        /// How.
        how: String,
    },
}

/// What stands between a worker and a queued job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It lacks the system, a feature or the capability.
    DoesNotFit,
    /// It takes nothing new.
    Draining,
    /// All its slots are taken.
    Full,
    /// It has a free slot and did not ask yet.
    NotAsked,
    /// It has a free slot and asked when the job was not there or lost to another.
    Idle,
}

/// Explains one job from the state.
#[must_use]
pub fn explain(state: &State, job: JobId) -> Explanation {
    if let Some((assignment, open)) = state.open_assignment(job) {
        let (worker, since, phase) = (open.worker, open.at, open.phase.clone());
        return Explanation::Running { assignment, worker, since, phase };
    }
    if let Some(pending) = state.queue.get(job) {
        return Explanation::Queued {
            since: pending.ready_at,
            workers: standings(state, job, pending),
        };
    }
    match job {
        JobId::Evaluate(id) => match state.evaluation(id) {
            None => Explanation::Unknown,
            Some(evaluation) => match evaluation.backoff_until {
                Some(until) => Explanation::Backoff { until },
                None => Explanation::Over { how: over(evaluation.state) },
            },
        },
        JobId::Build(build) => explain_build(state, build),
    }
}

fn over(state: EvaluationState) -> String {
    match state {
        EvaluationState::Building => "everything is found; its builds go on".into(),
        state => state.name().into(),
    }
}

fn explain_build(state: &State, build: BuildId) -> Explanation {
    let Some(node) = state.graph.get(build) else {
        return Explanation::Unknown;
    };
    match &node.state {
        BuildState::Created | BuildState::Queued | BuildState::Assigned { .. } => {
            match &node.recipe {
                None => Explanation::NotRecorded,
                Some(_) if node.wanted_by.is_empty() => Explanation::Unwanted,
                Some(recipe) => {
                    let open = |build: &BuildId| !state.graph.node(*build).state.is_success();
                    let inputs = recipe.dependencies.iter().map(|edge| edge.build).filter(open);
                    Explanation::Blocked {
                        missing: node.blocking,
                        inputs: inputs.take(NAMED_MAX).collect(),
                    }
                }
            }
        }
        BuildState::Backoff { until } => Explanation::Backoff { until: *until },
        BuildState::Succeeded { substituted: true, .. } => {
            over_build("succeeded: its outputs were there")
        }
        BuildState::Succeeded { substituted: false, .. } => over_build("succeeded"),
        BuildState::Failed { kind } => over_build(&format!("failed ({})", kind.name())),
        BuildState::DependencyFailed { cause } => {
            over_build(&format!("build {cause}, which it needs, failed"))
        }
        BuildState::Aborted => over_build("aborted"),
        BuildState::Skipped => over_build("skipped: nobody wants it any more"),
    }
}

fn over_build(how: &str) -> Explanation {
    Explanation::Over { how: how.to_owned() }
}

fn standings(state: &State, job: JobId, pending: &Pending) -> Vec<(WorkerId, Standing)> {
    let need = &state.queue.class(pending.class).need;
    let here = state.workers.iter().filter(|(_, worker)| worker.presence.is_here());
    here.map(|(id, worker)| {
        let running =
            worker.assignments.iter().filter(|id| state.assignments[id].job.kind() == job.kind());
        let full = matches!(job, JobId::Build(_)) && running.count() >= worker.build_slots();
        let standing = if worker.presence == crate::worker::Presence::Draining {
            Standing::Draining
        } else if !need.is_met_by(worker) {
            Standing::DoesNotFit
        } else if full {
            Standing::Full
        } else if worker.idle.contains_key(&job.kind()) {
            Standing::Idle
        } else {
            Standing::NotAsked
        };
        (*id, standing)
    })
    .collect()
}
