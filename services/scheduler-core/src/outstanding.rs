//! What every worker is owed, derived from the state and never from "the event just written" (ADR 4).
//!
//! The shell sends what is owed when it becomes owed, again after a `Hello`, and again every 5 s,
//! until an input acknowledges it. Bodies are made at delivery, so that secrets are never logged.

use std::ops::Bound;

use gradient_domain::{AssignmentId, BuildId, JobId, SessionId, StorePath, WorkerId};
use gradient_events::job::{BuildJob, EvaluateJob, Job};
use gradient_events::score::OfferNumber;
use gradient_events::server::{JobCandidate, RequiredPath, ServerMessage};
use gradient_events::worker::OpenAssignment;
use gradient_events::{PAGE_BYTES_MAX, PAGE_ITEMS_MAX};

use crate::assignment::Phase;
use crate::graph::{BuildState, Node, Recipe};
use crate::queue::Need;
use crate::state::State;
use crate::worker::{Page, Worker};

/// Something that a worker has to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effect {
    /// Who.
    pub worker: WorkerId,
    /// What.
    pub owed: Owed,
}

/// What a worker has to hear. Equal values are the same delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owed {
    /// That its session is refused.
    Reject(SessionId),
    /// That its session is open; acknowledged by the next message of the session.
    Welcome(SessionId),
    /// That it shall stop a job; acknowledged by the end of the hand-out.
    Abort(AssignmentId),
    /// That it has a job; acknowledged by its answer or any report.
    Assign(AssignmentId),
    /// Candidates; acknowledged by their scores.
    Page(OfferNumber),
}

/// Everything that anybody is owed.
#[must_use]
pub fn outstanding(state: &State) -> Vec<Effect> {
    state.workers.keys().flat_map(|worker| outstanding_for(state, *worker)).collect()
}

/// Everything that one worker is owed, most urgent first.
#[must_use]
pub fn outstanding_for(state: &State, id: WorkerId) -> Vec<Effect> {
    let Some(worker) = state.workers.get(&id) else {
        return Vec::new();
    };
    let mut owed = Vec::new();
    owed.extend(worker.rejection.as_ref().map(|rejection| Owed::Reject(rejection.session)));
    if worker.presence.is_here() {
        owed.extend(worker.welcome_owed.then_some(Owed::Welcome(worker.session)));
        owed.extend(worker.assignments.iter().filter_map(|id| match state.assignments[id].phase {
            Phase::Claimed => Some(Owed::Assign(*id)),
            Phase::Aborting { .. } => Some(Owed::Abort(*id)),
            Phase::Accepted => None,
        }));
        owed.extend(worker.page.map(|page| Owed::Page(page.up_to)));
    }
    owed.into_iter().map(|owed| Effect { worker: id, owed }).collect()
}

/// The message of a delivery, or `None` if it is not owed any more.
///
/// `upload_token` is minted now and only if the delivery carries one.
pub fn message(
    state: &State,
    effect: Effect,
    upload_token: impl FnOnce(JobId, AssignmentId) -> String,
) -> Option<ServerMessage> {
    let worker = state.workers.get(&effect.worker)?;
    match effect.owed {
        Owed::Reject(session) => {
            let rejection = worker.rejection.as_ref().filter(|r| r.session == session)?;
            let (code, reason) = (rejection.code, rejection.reason.clone());
            Some(ServerMessage::Reject { session, code, reason })
        }
        Owed::Welcome(session) => (worker.session == session).then(|| welcome(state, worker)),
        Owed::Abort(assignment_id) => match &state.assignments.get(&assignment_id)?.phase {
            Phase::Aborting { cause, .. } => Some(ServerMessage::AbortJob {
                job_id: state.assignments[&assignment_id].job,
                assignment_id,
                reason: cause.text().into(),
            }),
            Phase::Claimed | Phase::Accepted => None,
        },
        Owed::Assign(assignment_id) => {
            let job_id = state.assignments.get(&assignment_id)?.job;
            let job = job(state, job_id);
            let upload_token = upload_token(job_id, assignment_id).into();
            Some(ServerMessage::AssignJob { job_id, assignment_id, job, upload_token })
        }
        Owed::Page(up_to) => {
            let page = worker.page.filter(|page| page.up_to == up_to)?;
            Some(page_message(state, worker, page))
        }
    }
}

fn welcome(state: &State, worker: &Worker) -> ServerMessage {
    let open_assignments = worker
        .assignments
        .iter()
        .map(|id| OpenAssignment { job: state.assignments[id].job, assignment: *id })
        .collect();
    ServerMessage::Welcome {
        session: worker.session,
        greeting: worker.greeting,
        protocol: worker.protocol,
        fetch: worker.fetch,
        eval: worker.eval,
        build: worker.build,
        open_assignments,
    }
}

fn page_message(state: &State, worker: &Worker, page: Page) -> ServerMessage {
    let offers = (Bound::Excluded(page.after), Bound::Included(page.up_to));
    let mut offers: Vec<(OfferNumber, JobId)> = state
        .queue
        .classes()
        .filter(|class| class.need.is_met_by(worker))
        .flat_map(|class| class.offers.range(offers))
        .map(|(offer, job)| (*offer, *job))
        .collect();
    offers.sort_unstable();
    // What was answered meanwhile, and what would be over the limit of a page, is left out; the rest
    // stays owed.
    let is_open = |job: &JobId| {
        let pending = state.queue.get(*job);
        pending.is_some_and(|pending| worker.answers.get(*job, pending).is_none())
    };
    let (mut candidates, mut up_to, mut bytes) = (Vec::new(), page.up_to, 0);
    let mut last = page.after;
    for (offer, job) in offers.into_iter().filter(|(_, job)| page.list || is_open(job)) {
        let candidate = candidate(state, job);
        bytes += candidate_bytes(&candidate);
        let is_full = bytes > PAGE_BYTES_MAX || candidates.len() == PAGE_ITEMS_MAX;
        if is_full && !candidates.is_empty() {
            up_to = last;
            break;
        }
        candidates.push(candidate);
        last = offer;
    }
    if page.list {
        let is_final = page.is_final && up_to == page.up_to;
        ServerMessage::JobListChunk { candidates, up_to, is_final }
    } else {
        ServerMessage::JobOffer { candidates, up_to }
    }
}

/// A job as a candidate: what it requires, makes and needs (spec, Offers).
#[must_use]
pub fn candidate(state: &State, job_id: JobId) -> JobCandidate {
    let JobId::Build(build) = job_id else {
        return JobCandidate {
            job_id,
            required_paths: Vec::new(),
            drv_paths: Vec::new(),
            output_paths: Vec::new(),
            requirement: None,
        };
    };
    let (node, recipe) = recorded(state, build);
    JobCandidate {
        job_id,
        required_paths: required_paths(state, recipe),
        drv_paths: vec![node.drv_path.clone()],
        output_paths: recipe
            .outputs
            .iter()
            .filter_map(|output| output.path.clone())
            .take(OUTPUT_PATHS_MAX)
            .collect(),
        requirement: match &state.queue.class(recipe.class).need {
            Need::Build(requirement) => Some(requirement.clone()),
            Need::Evaluate { .. } => None,
        },
    }
}

/// Most required paths that a candidate names: with more it would not fit a page. The worker's score
/// then counts a part of them, the build itself needs no list.
const REQUIRED_PATHS_MAX: usize = 1_000;
/// Most outputs that a candidate names.
const OUTPUT_PATHS_MAX: usize = 64;

/// The outputs of direct inputs that a build uses, with their sizes where they are cached.
fn required_paths(state: &State, recipe: &Recipe) -> Vec<RequiredPath> {
    let used = recipe.dependencies.iter().flat_map(|edge| {
        let outputs = match &state.graph.node(edge.build).state {
            BuildState::Succeeded { outputs, .. } => Some(outputs),
            _ => None,
        };
        edge.outputs.iter().filter_map(move |name| outputs?.get(name))
    });
    used.take(REQUIRED_PATHS_MAX)
        .map(|(path, size)| RequiredPath {
            path: path.clone(),
            nar_size: (*size > 0).then_some(*size),
        })
        .collect()
}

/// At least as many bytes as the candidate takes on a page.
pub(crate) fn candidate_bytes(candidate: &JobCandidate) -> usize {
    /// Fixed parts of a candidate and of each path or feature in it.
    const FIXED: usize = 128;
    const PER_PART: usize = 40;
    let path = |path: &StorePath| path.base_name().len() + PER_PART;
    let requirement = candidate.requirement.iter().map(|need| {
        let features = need.features.iter().map(|feature| feature.0.len() + PER_PART);
        need.system.0.len() + features.sum::<usize>()
    });
    FIXED
        + candidate.required_paths.iter().map(|required| path(&required.path)).sum::<usize>()
        + candidate.drv_paths.iter().chain(&candidate.output_paths).map(path).sum::<usize>()
        + requirement.sum::<usize>()
}

fn recorded(state: &State, build: BuildId) -> (&Node, &Recipe) {
    let node = state.graph.node(build);
    (node, node.recipe.as_ref().expect("only recorded builds are offered or assigned"))
}

/// What `AssignJob` says of a job.
fn job(state: &State, job: JobId) -> Job {
    match job {
        JobId::Evaluate(id) => {
            let evaluation = state.evaluation(id).expect("an assigned evaluation exists");
            Job::Evaluate(EvaluateJob {
                evaluation: id,
                flake: evaluation.flake.clone(),
                patterns: evaluation.patterns.clone(),
                fetch: evaluation.fetch.clone(),
            })
        }
        JobId::Build(build) => {
            let (node, recipe) = recorded(state, build);
            let requirement = match &state.queue.class(recipe.class).need {
                Need::Build(requirement) => requirement.clone(),
                Need::Evaluate { .. } => unreachable!("a recipe names a class of builds"),
            };
            Job::Build(BuildJob {
                build,
                drv_path: node.drv_path.clone(),
                outputs: recipe.outputs.clone(),
                requirement,
                is_fixed_output: recipe.is_fixed_output,
                timeout_secs: recipe.timeout_secs.unwrap_or(state.settings.build_timeout_secs),
                max_silent_secs: recipe
                    .max_silent_secs
                    .unwrap_or(state.settings.build_max_silent_secs),
            })
        }
    }
}
