//! A small fleet around the real scheduler core: workers that build, fail, decline, vanish and come
//! back, users that submit and cancel. One seed makes one history.

use std::collections::BTreeMap;

use gradient_domain::{
    AssignmentId, AttrPath, Capabilities, EvaluationId, Feature, JobId, Kind, Requirement,
    SessionId, StorePath, System, Timestamp, WorkerId,
};
use gradient_events::event::EvaluationState;
use gradient_events::job::Output;
use gradient_events::score::CandidateScore;
use gradient_events::worker::{
    BuiltOutput, Dependency, DiscoveredDerivation, EvalMessage, EvalResult, Hello, JobUpdate,
    WorkerMetrics,
};
use gradient_events::{
    Cause, Command, Entry, Event, FailureKind, FlakeSource, Input, Settings, WorkerMessage,
};
use gradient_scheduler_core::{State, decide};
use rand::prelude::*;

/// Derivations that flakes of these histories share.
const DERIVATIONS: usize = 40;

pub struct World {
    pub state: State,
    pub entries: Vec<Entry>,
    at: u64,
    commands: u64,
    random: StdRng,
    sessions: BTreeMap<WorkerId, SessionId>,
    /// How far the work of each hand-out is.
    steps: BTreeMap<AssignmentId, u32>,
    submitted: u8,
}

pub fn store_path(n: usize, name: &str) -> StorePath {
    let mut hash = [7; 20];
    hash[..8].copy_from_slice(&(n as u64).to_le_bytes());
    StorePath::from_parts(&hash, name).unwrap()
}

pub fn drv_path(n: usize) -> StorePath {
    store_path(n, &format!("package-{n}.drv"))
}

pub fn worker(n: u8) -> WorkerId {
    WorkerId([n; 16])
}

pub fn evaluation(n: u8) -> EvaluationId {
    let mut id = [0xe0; 16];
    id[15] = n;
    EvaluationId(id)
}

/// A derivation depends on some with smaller numbers.
pub fn dependencies(n: usize) -> Vec<usize> {
    (1..=3).filter_map(|k| n.checked_sub(k * k + n % 3)).collect()
}

pub fn discovered(n: usize, attrs: Vec<AttrPath>) -> DiscoveredDerivation {
    let features: Vec<String> = if n % 11 == 5 { vec!["kvm".into()] } else { vec![] };
    let dependencies = dependencies(n)
        .into_iter()
        .map(|d| Dependency { drv_path: drv_path(d), outputs: vec!["out".into()] })
        .collect();
    DiscoveredDerivation {
        attrs,
        drv_path: drv_path(n),
        outputs: vec![Output { name: "out".into(), path: Some(store_path(n + 1_000, "out")) }],
        dependencies,
        requirement: Requirement::new("x86_64-linux", features),
        is_fixed_output: n.is_multiple_of(7),
        prefer_local_build: n.is_multiple_of(5),
        timeout_secs: None,
        max_silent_secs: None,
        pname: n.is_multiple_of(2).then(|| format!("package-{n}")),
    }
}

fn closure(roots: &[usize]) -> Vec<usize> {
    let mut found = std::collections::BTreeSet::new();
    let mut stack = roots.to_vec();
    while let Some(n) = stack.pop() {
        if found.insert(n) {
            stack.extend(dependencies(n));
        }
    }
    found.into_iter().collect()
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut world = Self {
            state: State::default(),
            entries: Vec::new(),
            at: 1_700_000_000_000,
            commands: 0,
            random: StdRng::seed_from_u64(seed),
            sessions: BTreeMap::new(),
            steps: BTreeMap::new(),
            submitted: 0,
        };
        let settings = Settings {
            build_retry_backoff_ms: 2_000,
            accept_timeout_ms: 20_000,
            unbuildable_timeout_ms: 60_000,
            ..Settings::default()
        };
        world.input(Cause::Internal, Input::Started { settings, commands_restarted: false });
        world
    }

    pub fn now(&self) -> u64 {
        self.at
    }

    pub fn input(&mut self, cause: Cause, input: Input) -> Vec<Event> {
        self.at += self.random.random_range(1..40);
        let events = decide(&mut self.state, Timestamp(self.at), cause, &input);
        if !events.is_empty() {
            let (at, events) = (Timestamp(self.at), events.clone());
            self.entries.push(Entry { at, cause, input, events });
        }
        events
    }

    fn cause(&mut self) -> Cause {
        self.commands += 1;
        Cause::Command(self.commands)
    }

    pub fn say(&mut self, worker: WorkerId, message: WorkerMessage) -> Vec<Event> {
        let session = self.sessions.get(&worker).copied().unwrap_or_default();
        let cause = self.cause();
        self.input(cause, Input::Worker { worker, session, message })
    }

    pub fn join(&mut self, n: u8, is_new_session: bool) {
        let id = worker(n);
        if is_new_session || !self.sessions.contains_key(&id) {
            self.sessions.insert(id, SessionId(self.random.random()));
        }
        let hello = Hello {
            name: format!("worker-{n}"),
            greeting: 0,
            fetch: true,
            eval: n.is_multiple_of(2),
            build: true,
            protocol_oldest: 1,
            protocol_newest: 1,
            open_assignments: vec![],
        };
        self.say(id, WorkerMessage::Hello(hello));
        let features = if n.is_multiple_of(3) { vec![Feature("kvm".into())] } else { vec![] };
        let capabilities = Capabilities {
            architectures: [System("x86_64-linux".into())].into(),
            system_features: features.into_iter().collect(),
            max_concurrent_builds: 3,
            cpu_count: 8,
            ram_total_mb: 16_384,
            ..Capabilities::default()
        };
        self.say(id, WorkerMessage::WorkerCapabilities { capabilities });
        self.say(id, WorkerMessage::RequestJobList);
    }

    pub fn submit(&mut self) -> EvaluationId {
        self.submitted += 1;
        let id = evaluation(self.submitted);
        let flake = FlakeSource::Reference { url: format!("github:example/{}", self.submitted) };
        let patterns = vec!["packages.*.*".into()];
        let fetch = Box::<gradient_domain::flake::FetchOptions>::default();
        self.command(Command::Submit { evaluation: id, flake, patterns, fetch });
        id
    }

    pub fn command(&mut self, command: Command) {
        let cause = self.cause();
        self.input(cause, Input::Command { command });
    }

    pub fn tick(&mut self, ms: u64) {
        self.at += ms;
        self.input(Cause::Internal, Input::Tick);
    }

    fn scores(&mut self, worker: WorkerId) {
        let Some(page) = self.state.workers()[&worker].page else { return };
        let jobs: Vec<JobId> = self.state.queue().iter().map(|(job, _)| job).take(20).collect();
        let scores = jobs
            .into_iter()
            .map(|job| CandidateScore {
                job,
                missing_count: self.random.random_range(0..5),
                missing_nar_size: self.random.random_range(0..1_000_000),
                outputs_present: false,
            })
            .collect();
        let up_to = page.up_to;
        self.say(worker, WorkerMessage::RequestJobChunk { scores, up_to, is_final: true });
    }

    fn request(&mut self, worker: WorkerId) {
        if self.state.workers().contains_key(&worker) {
            self.scores(worker);
        }
        let kind = if self.random.random_ratio(1, 3) { Kind::Evaluate } else { Kind::Build };
        self.say(worker, WorkerMessage::RequestJob { kind });
    }

    /// The next step of a hand-out, or its failure.
    fn work(&mut self, may_fail: bool) {
        let open: Vec<(AssignmentId, JobId, WorkerId)> = self
            .state
            .assignments()
            .iter()
            .map(|(id, open)| (*id, open.job, open.worker))
            .collect();
        let Some(&(assignment, job, worker)) = open.choose(&mut self.random) else { return };
        let step = self.steps.entry(assignment).or_default();
        *step += 1;
        let step = *step;
        if may_fail && self.random.random_ratio(1, 12) {
            return self.fail(worker, job, assignment);
        }
        match job {
            JobId::Build(_) => self.work_build(worker, job, assignment, step),
            JobId::Evaluate(id) => self.work_evaluation(worker, id, assignment, step),
        }
    }

    fn fail(&mut self, worker: WorkerId, job: JobId, assignment: AssignmentId) {
        if self.random.random_ratio(1, 4) {
            let reason = Some("no space".into());
            let accepted = false;
            let message = WorkerMessage::AssignJobResponse { job, assignment, accepted, reason };
            self.say(worker, message);
            return;
        }
        let kinds = [
            FailureKind::Transient,
            FailureKind::Transient,
            FailureKind::Permanent,
            FailureKind::Timeout,
            FailureKind::InputsUnavailable,
            FailureKind::Canceled,
        ];
        let kind = *kinds.choose(&mut self.random).unwrap();
        let error = format!("it went wrong \0 {kind:?}");
        let missing_paths = vec![store_path(5_000, "input")];
        self.say(
            worker,
            WorkerMessage::JobFailed { job, assignment, kind, error, missing_paths, elapsed_ms: 7 },
        );
    }

    fn work_build(&mut self, worker: WorkerId, job: JobId, assignment: AssignmentId, step: u32) {
        let update = |update| WorkerMessage::JobUpdate { job, assignment, update };
        let message = match step {
            1 => {
                let accepted = true;
                WorkerMessage::AssignJobResponse { job, assignment, accepted, reason: None }
            }
            2 => update(JobUpdate::Building),
            3 => update(JobUpdate::BuildOutput {
                outputs: vec![BuiltOutput {
                    name: "out".into(),
                    path: store_path(9_000, "out"),
                    nar_hash: "sha256:0".into(),
                    nar_size: 4_096,
                }],
                substituted: assignment.0.is_multiple_of(5),
                build_time_ms: 1_234,
            }),
            _ => WorkerMessage::JobCompleted { job, assignment, elapsed_ms: 2_345 },
        };
        self.say(worker, message);
    }

    fn work_evaluation(
        &mut self,
        worker: WorkerId,
        id: EvaluationId,
        assignment: AssignmentId,
        step: u32,
    ) {
        let job = JobId::Evaluate(id);
        let update = |update| WorkerMessage::JobUpdate { job, assignment, update };
        let message = match step {
            1 => update(JobUpdate::Fetching),
            2 => update(JobUpdate::FetchResult {
                flake_source: store_path(8_000, "source"),
                locked_url: "github:example/locked".into(),
            }),
            3 => update(JobUpdate::EvaluatingFlake),
            4 => update(JobUpdate::EvaluatingDerivations),
            5..=7 => update(JobUpdate::EvalResult(self.batch(id, step as usize - 5))),
            _ => WorkerMessage::JobCompleted { job, assignment, elapsed_ms: 99 },
        };
        self.say(worker, message);
    }

    /// A third of the closure of this evaluation's roots, in no useful order.
    fn batch(&mut self, id: EvaluationId, part: usize) -> EvalResult {
        let n = usize::from(id.0[15]);
        let roots = [n * 7 % DERIVATIONS, n * 13 % DERIVATIONS, (n * 5 + 3) % DERIVATIONS];
        let mut all = closure(&roots);
        all.sort_by_key(|n| n.wrapping_mul(2_654_435_761) % 1_009);
        let attrs = |n: usize| -> Vec<AttrPath> {
            let at = roots.iter().enumerate().filter(|(_, root)| **root == n);
            at.map(|(k, _)| ["packages", "x86_64-linux", &format!("p{k}")].into_iter().collect())
                .collect()
        };
        let warning = EvalMessage { attr: None, text: "careful".into() };
        let error = EvalMessage {
            attr: Some(["packages", "broken"].into_iter().collect()),
            text: "bad".into(),
        };
        EvalResult {
            derivations: all
                .iter()
                .enumerate()
                .filter(|(k, _)| k % 3 == part)
                .map(|(_, n)| discovered(*n, attrs(*n)))
                .collect(),
            warnings: if part == 1 { vec![warning] } else { vec![] },
            errors: if part == 2 && n % 6 == 4 { vec![error] } else { vec![] },
        }
    }

    /// One thing that happens.
    pub fn step(&mut self) {
        let n = self.random.random_range(0..4u8);
        match self.random.random_range(0..100) {
            0..35 => self.request(worker(n)),
            35..80 => self.work(true),
            80..82 => {
                self.submit();
            }
            82..84 => self.join(n, true),
            84 => self.join(n, false),
            85 => {
                self.input(Cause::Internal, Input::WorkerSilent { worker: worker(n) });
            }
            86 => {
                self.say(worker(n), WorkerMessage::Goodbye);
                self.join(n, true);
            }
            87 => {
                self.say(worker(n), WorkerMessage::Draining);
            }
            88 => self.stale_report(worker(n)),
            89 => {
                let metrics = WorkerMetrics { cpu_usage_pct: 40, ..WorkerMetrics::default() };
                self.input(Cause::Internal, Input::Metrics { worker: worker(n), metrics });
            }
            90 => self.cancel(),
            91 => {
                let (subject, reason) = ("gradient.cmd.api".into(), "checksum".into());
                let cause = self.cause();
                self.input(cause, Input::Unreadable { subject, reason });
            }
            92 => {
                self.input(Cause::Internal, Input::Sweep);
            }
            _ => {
                let ms = self.random.random_range(1..6_000);
                self.tick(ms);
            }
        }
    }

    fn stale_report(&mut self, worker: WorkerId) {
        let job = JobId::Build(gradient_domain::BuildId(0));
        let assignment = AssignmentId(999_999);
        self.say(worker, WorkerMessage::JobCompleted { job, assignment, elapsed_ms: 1 });
    }

    fn cancel(&mut self) {
        let builds = u32::try_from(self.state.graph().len()).unwrap();
        if builds > 0 && self.random.random() {
            let build = gradient_domain::BuildId(self.random.random_range(0..builds));
            return self.command(Command::CancelBuild { build });
        }
        if self.submitted > 0 {
            let evaluation = evaluation(self.random.random_range(1..=self.submitted));
            self.command(Command::CancelEvaluation { evaluation });
        }
    }

    /// Lets what is under way come to its end, without further trouble.
    pub fn finish(&mut self) {
        for n in 0..4 {
            self.join(n, true);
        }
        for round in 0..20_000u32 {
            let live = self.state.evaluations().iter().any(|e| !e.state.is_terminal());
            if !live && self.state.assignments().is_empty() {
                return;
            }
            let n = self.random.random_range(0..4u8);
            match round % 4 {
                0 => self.request(worker(n)),
                3 if round % 40 == 3 => self.tick(5_000),
                _ => self.work(false),
            }
        }
        panic!("the history does not come to an end");
    }

    /// Whether everything interesting happened at least once.
    pub fn variety(&self) -> BTreeMap<&'static str, usize> {
        let mut seen = BTreeMap::new();
        for event in self.entries.iter().flat_map(|entry| &entry.events) {
            let name = match event {
                Event::JobAssigned { .. } => "assigned",
                Event::AssignmentDeclined { .. } => "declined",
                Event::AssignmentAbandoned { .. } => "abandoned",
                Event::JobRequeued { .. } => "requeued",
                Event::BuildSucceeded { .. } => "built",
                Event::BuildFailed { .. } => "failed",
                Event::DependencyFailed { .. } => "dependency_failed",
                Event::BuildsThawed { .. } => "thawed",
                Event::BuildsSkipped { .. } => "skipped",
                Event::WorkerLost { .. } => "lost",
                Event::ReportDropped { .. } => "dropped",
                Event::EvaluationParked { .. } => "parked",
                Event::EvaluationFinished { .. } => "finished",
                Event::EvaluationAborted { .. } => "aborted",
                _ => continue,
            };
            *seen.entry(name).or_default() += 1;
        }
        seen
    }
}

/// A history of `steps` things that happen, brought to an end.
pub fn history(seed: u64, steps: usize) -> World {
    let mut world = World::new(seed);
    for n in 0..3 {
        world.join(n, true);
    }
    world.submit();
    for _ in 0..steps {
        world.step();
    }
    world
}

pub fn assignments(entries: &[Entry]) -> usize {
    let events = entries.iter().flat_map(|entry| &entry.events);
    events.filter(|event| matches!(event, Event::JobAssigned { .. })).count()
}

/// How often a job was handed out.
pub fn hand_outs_of(entries: &[Entry], of: JobId) -> i64 {
    let events = entries.iter().flat_map(|entry| &entry.events);
    let handed_out = |event: &&Event| matches!(event, Event::JobAssigned { job, .. } if *job == of);
    i64::try_from(events.filter(handed_out).count()).unwrap()
}

pub fn states(world: &World) -> BTreeMap<EvaluationId, EvaluationState> {
    world.state.evaluations().iter().map(|e| (e.id, e.state)).collect()
}
