//! Simulated workers: the agent's rules without its machinery.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{AssignmentId, Capabilities, Feature, Kind, SessionId, System, WorkerId};
use gradient_events::score::CandidateScore;
use gradient_events::server::JobCandidate;
use gradient_events::worker::{
    BuiltOutput, EvalMessage, EvalResult, Hello, JobUpdate, OpenAssignment,
};
use gradient_events::{FailureKind, Job, ServerMessage, WorkerMessage};

use crate::plan::{Behaviour, Plan, path};
use crate::rng::Rng;

/// A job under way: what it will still say, and when.
#[derive(Clone, Debug)]
struct Running {
    open: OpenAssignment,
    /// Times and messages, in order.
    script: Vec<(u64, WorkerMessage)>,
}

/// A worker process, or the place of one.
#[derive(Clone, Debug)]
pub struct SimWorker {
    /// Who.
    pub id: WorkerId,
    /// What it offers.
    pub capabilities: Capabilities,
    /// Whether the process runs.
    pub alive: bool,
    /// Whether it stops and takes nothing new.
    pub draining: bool,
    session: SessionId,
    greeting: u32,
    welcomed: bool,
    running: BTreeMap<AssignmentId, Running>,
    /// Ends that are on disk and not known to have arrived.
    outbox: Vec<WorkerMessage>,
    store: BTreeSet<usize>,
}

/// Evaluations at a time.
const EVALUATIONS_MAX: usize = 1;

impl SimWorker {
    /// A worker that does not run yet.
    #[must_use]
    pub fn new(number: u64, rng: &mut Rng) -> Self {
        let mut capabilities = Capabilities {
            architectures: BTreeSet::from([System("x86_64-linux".into())]),
            max_concurrent_builds: 1 + u32::try_from(rng.below(3)).expect("small"),
            ..Capabilities::default()
        };
        // The first worker can do everything, so that every plan can be finished.
        if number == 0 || rng.chance(300) {
            capabilities.architectures.insert(System("aarch64-linux".into()));
            capabilities.system_features.insert(Feature("big-parallel".into()));
        }
        Self {
            id: WorkerId(rng.id()),
            capabilities,
            alive: false,
            draining: false,
            session: SessionId::default(),
            greeting: 0,
            welcomed: false,
            running: BTreeMap::new(),
            outbox: Vec::new(),
            store: BTreeSet::new(),
        }
    }

    /// The session of the process that runs.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Starts a process: a new session, nothing running, the outbox of the one before.
    pub fn start(&mut self, rng: &mut Rng) -> Vec<WorkerMessage> {
        self.session = SessionId(rng.id());
        (self.alive, self.draining, self.welcomed) = (true, false, false);
        let mut said = vec![self.hello()];
        said.append(&mut self.outbox);
        said
    }

    /// The process dies at once; running jobs are gone with it.
    pub fn kill(&mut self) {
        self.alive = false;
        self.running.clear();
    }

    /// The process is told to stop: it drains, every job reports that it was canceled, it leaves.
    pub fn stop(&mut self) -> Vec<WorkerMessage> {
        let mut said = vec![WorkerMessage::Draining];
        for running in std::mem::take(&mut self.running).into_values() {
            said.push(failed(running.open, FailureKind::Canceled, "worker draining"));
        }
        said.push(WorkerMessage::Goodbye);
        self.alive = false;
        said
    }

    /// Says hello again: after a reconnect, or because nobody answered.
    pub fn hello(&mut self) -> WorkerMessage {
        self.welcomed = false;
        self.greeting += 1;
        let open_assignments = self.running.values().map(|running| running.open);
        let reported = self.outbox.iter().filter_map(|message| match message {
            WorkerMessage::JobCompleted { job, assignment, .. }
            | WorkerMessage::JobFailed { job, assignment, .. } => {
                Some(OpenAssignment { job: *job, assignment: *assignment })
            }
            _ => None,
        });
        WorkerMessage::Hello(Hello {
            greeting: self.greeting,
            name: "sim".into(),
            fetch: true,
            eval: true,
            build: true,
            protocol_oldest: 1,
            protocol_newest: 1,
            open_assignments: open_assignments.chain(reported).collect(),
        })
    }

    /// What it says every ten seconds.
    pub fn idle(&mut self) -> Vec<WorkerMessage> {
        if self.welcomed { self.requests() } else { vec![self.hello()] }
    }

    fn requests(&self) -> Vec<WorkerMessage> {
        let free = |kind| self.welcomed && !self.draining && self.free(kind);
        let kinds = [Kind::Evaluate, Kind::Build].into_iter().filter(|kind| free(*kind));
        kinds.map(|kind| WorkerMessage::RequestJob { kind }).collect()
    }

    fn free(&self, kind: Kind) -> bool {
        let active =
            self.running.values().filter(|running| running.open.job.kind() == kind).count();
        active
            < match kind {
                Kind::Evaluate => EVALUATIONS_MAX,
                Kind::Build => self.capabilities.max_concurrent_builds as usize,
            }
    }

    /// Hears a delivery; says what follows.
    pub fn hear(
        &mut self,
        message: &ServerMessage,
        now_ms: u64,
        plan: &Plan,
        rng: &mut Rng,
        flaky: &mut Flaky,
    ) -> Vec<WorkerMessage> {
        match message {
            ServerMessage::Welcome { session, greeting, open_assignments, .. }
                if *session == self.session && *greeting == self.greeting =>
            {
                if std::mem::replace(&mut self.welcomed, true) {
                    return Vec::new();
                }
                self.running
                    .retain(|id, _| open_assignments.iter().any(|open| open.assignment == *id));
                let capabilities = self.capabilities.clone();
                vec![
                    WorkerMessage::WorkerCapabilities { capabilities },
                    WorkerMessage::RequestJobList,
                ]
            }
            ServerMessage::Reject { session, .. } if *session == self.session && self.welcomed => {
                vec![self.hello()]
            }
            ServerMessage::Welcome { .. }
            | ServerMessage::Reject { .. }
            | ServerMessage::Draining => Vec::new(),
            ServerMessage::JobListChunk { candidates, up_to, .. }
            | ServerMessage::JobOffer { candidates, up_to } => {
                let scores = candidates.iter().map(|candidate| self.score(candidate)).collect();
                let mut said =
                    vec![WorkerMessage::RequestJobChunk { scores, up_to: *up_to, is_final: true }];
                said.extend(self.requests());
                said
            }
            ServerMessage::AssignJob { job_id, assignment_id, job, .. } => {
                let open = OpenAssignment { job: *job_id, assignment: *assignment_id };
                self.assign(open, job, now_ms, plan, rng, flaky)
            }
            ServerMessage::AbortJob { assignment_id, .. } => {
                match self.running.remove(assignment_id) {
                    Some(running) => {
                        let mut said = vec![failed(running.open, FailureKind::Aborted, "aborted")];
                        said.extend(self.requests());
                        said
                    }
                    None => Vec::new(),
                }
            }
        }
    }

    fn score(&self, candidate: &JobCandidate) -> CandidateScore {
        let missing = candidate
            .required_paths
            .iter()
            .filter(|required| !self.store.iter().any(|number| path(*number, "") == required.path));
        CandidateScore {
            job: candidate.job_id,
            missing_count: u32::try_from(missing.clone().count()).expect("small"),
            missing_nar_size: missing.filter_map(|required| required.nar_size).sum(),
            outputs_present: false,
        }
    }

    fn assign(
        &mut self,
        open: OpenAssignment,
        job: &Job,
        now_ms: u64,
        plan: &Plan,
        rng: &mut Rng,
        flaky: &mut Flaky,
    ) -> Vec<WorkerMessage> {
        let OpenAssignment { job: job_id, assignment } = open;
        let answer = |accepted, reason: Option<String>| WorkerMessage::AssignJobResponse {
            job: job_id,
            assignment,
            accepted,
            reason,
        };
        if self.running.contains_key(&assignment) {
            return vec![answer(true, None)];
        }
        let is_running = self.running.values().any(|running| running.open.job == job_id);
        if self.draining || is_running || !self.free(job_id.kind()) || rng.chance(20) {
            // An older run of the job is stopped; a late delivery of an older hand-out stops nothing.
            self.running.retain(|id, running| running.open.job != job_id || *id > assignment);
            return vec![answer(false, Some("at capacity".into()))];
        }
        let script = match job {
            Job::Build(build) => {
                self.build_script(open, plan.find(&build.drv_path), now_ms, plan, flaky)
            }
            Job::Evaluate(evaluate) => {
                let number = evaluate.flake.label().parse().expect("labels are numbers here");
                evaluation_script(open, number, now_ms, plan, rng)
            }
        };
        self.running.insert(assignment, Running { open, script });
        let mut said = vec![answer(true, None)];
        said.extend(self.requests());
        said
    }

    fn build_script(
        &mut self,
        open: OpenAssignment,
        number: usize,
        now_ms: u64,
        plan: &Plan,
        flaky: &mut Flaky,
    ) -> Vec<(u64, WorkerMessage)> {
        let planned = &plan.graph[number];
        let end_ms = now_ms + planned.build_ms;
        let mut script = vec![(now_ms, update(open, JobUpdate::Building))];
        let failures = flaky.entry(number).or_default();
        match planned.behaviour {
            Behaviour::Bad => script.push((end_ms, failed(open, FailureKind::Permanent, "exit 1"))),
            Behaviour::Flaky(times) if *failures < times => {
                *failures += 1;
                script.push((end_ms, failed(open, FailureKind::Transient, "no space left")));
            }
            Behaviour::Good | Behaviour::Flaky(_) => {
                self.store.insert(number);
                let output = BuiltOutput {
                    name: "out".into(),
                    path: path(number, ""),
                    nar_hash: "sha256:0".into(),
                    nar_size: 100,
                };
                let outputs = vec![output];
                script.push((
                    end_ms,
                    update(
                        open,
                        JobUpdate::BuildOutput {
                            outputs,
                            substituted: false,
                            build_time_ms: planned.build_ms,
                        },
                    ),
                ));
                script.push((end_ms, completed(open)));
            }
        }
        script
    }

    /// What running jobs say by now; ends go through the outbox.
    pub fn work(&mut self, now_ms: u64) -> Vec<WorkerMessage> {
        let mut said = Vec::new();
        let mut ended = Vec::new();
        for (id, running) in &mut self.running {
            let due = running.script.iter().take_while(|(at_ms, _)| *at_ms <= now_ms).count();
            said.extend(running.script.drain(..due).map(|(_, message)| message));
            if running.script.is_empty() {
                ended.push(*id);
            }
        }
        for id in &ended {
            self.running.remove(id);
        }
        if !ended.is_empty() {
            said.extend(self.requests());
        }
        said
    }

    /// The process dies before these messages left. An end among them is on disk if everything that
    /// its job had said before has arrived.
    pub fn keep(&mut self, unsent: Vec<WorkerMessage>) {
        let mut incomplete = BTreeSet::new();
        for message in unsent {
            match &message {
                WorkerMessage::JobUpdate { assignment, .. } => drop(incomplete.insert(*assignment)),
                WorkerMessage::JobCompleted { assignment, .. }
                | WorkerMessage::JobFailed { assignment, .. }
                    if !incomplete.contains(assignment) =>
                {
                    self.outbox.push(message);
                }
                _ => {}
            }
        }
    }

    /// The next moment at which a running job says something.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.running
            .values()
            .filter_map(|running| running.script.first())
            .map(|(at_ms, _)| *at_ms)
            .min()
    }

    /// Jobs that really run in this process.
    #[must_use]
    pub fn running(&self, kind: Kind) -> usize {
        self.running.values().filter(|running| running.open.job.kind() == kind).count()
    }
}

/// How often each flaky derivation has failed.
pub type Flaky = BTreeMap<usize, u32>;

fn update(open: OpenAssignment, update: JobUpdate) -> WorkerMessage {
    WorkerMessage::JobUpdate { job: open.job, assignment: open.assignment, update }
}

fn completed(open: OpenAssignment) -> WorkerMessage {
    WorkerMessage::JobCompleted { job: open.job, assignment: open.assignment, elapsed_ms: 1 }
}

fn failed(open: OpenAssignment, kind: FailureKind, error: &str) -> WorkerMessage {
    let (job, assignment) = (open.job, open.assignment);
    WorkerMessage::JobFailed {
        job,
        assignment,
        kind,
        error: error.into(),
        missing_paths: Vec::new(),
        elapsed_ms: 1,
    }
}

/// Batches of random sizes, sometimes with dependents before their inputs.
fn evaluation_script(
    open: OpenAssignment,
    number: usize,
    now_ms: u64,
    plan: &Plan,
    rng: &mut Rng,
) -> Vec<(u64, WorkerMessage)> {
    let flake = &plan.flakes[number];
    let mut order = plan.closure(&flake.roots);
    if rng.chance(300) {
        order.reverse();
    }
    let mut at_ms = now_ms;
    let mut script = vec![
        (at_ms, update(open, JobUpdate::Fetching)),
        (at_ms, update(open, JobUpdate::EvaluatingDerivations)),
    ];
    let mut rest = order.as_slice();
    while !rest.is_empty() {
        let count = (1 + usize::try_from(rng.below(8)).expect("small")).min(rest.len());
        let (batch, more) = rest.split_at(count);
        rest = more;
        at_ms += rng.below(3_000);
        let derivations = batch.iter().map(|n| plan.discovered(flake, *n)).collect();
        let batch = EvalResult { derivations, ..EvalResult::default() };
        script.push((at_ms, update(open, JobUpdate::EvalResult(batch))));
    }
    if flake.throws {
        let errors = vec![EvalMessage { attr: None, text: "it throws".into() }];
        let batch = EvalResult { errors, ..EvalResult::default() };
        script.push((at_ms, update(open, JobUpdate::EvalResult(batch))));
    }
    script.push((at_ms + rng.below(2_000), completed(open)));
    script
}
