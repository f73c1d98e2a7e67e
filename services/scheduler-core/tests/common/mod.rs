//! Given a history, when an input comes, then these events: a fleet in a few words.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;

use gradient_domain::flake::FetchOptions;
use gradient_domain::{
    AssignmentId, BuildId, Capabilities, EvaluationId, Feature, JobId, Kind, Requirement,
    SessionId, StorePath, System, Timestamp, WorkerId,
};
use gradient_events::job::Output;
use gradient_events::score::{CandidateScore, OfferNumber};
use gradient_events::worker::{
    BuiltOutput, Dependency, DiscoveredDerivation, EvalMessage, EvalResult, Hello, JobUpdate,
    OpenAssignment,
};
use gradient_events::{
    Cause, Command, Entry, Event, FailureKind, FlakeSource, Input, ServerMessage, Settings,
    WorkerMessage,
};
use gradient_scheduler_core::outstanding::{Owed, message};
use gradient_scheduler_core::{State, decide, evolve, outstanding_for};

/// A scheduler under test, with its log.
pub(crate) struct Fleet {
    pub(crate) state: State,
    pub(crate) log: Vec<Entry>,
    pub(crate) now_ms: u64,
    commands: u64,
}

pub(crate) fn evaluation(number: u8) -> EvaluationId {
    EvaluationId([number; 16])
}

pub(crate) fn worker(number: u8) -> WorkerId {
    WorkerId([number; 16])
}

pub(crate) fn session(number: u8) -> SessionId {
    SessionId([number; 16])
}

pub(crate) fn drv(name: &str) -> StorePath {
    path(&format!("{name}.drv"))
}

fn path(name: &str) -> StorePath {
    let mut hash = [0; 20];
    for (n, byte) in name.bytes().enumerate() {
        hash[n % 20] ^= byte.rotate_left(u32::try_from(n / 20).expect("short"));
    }
    StorePath::from_parts(&hash, name).expect("a plain name")
}

/// A derivation with one output; `needs` are its inputs.
pub(crate) fn derivation(name: &str, needs: &[&str]) -> DiscoveredDerivation {
    let dependency = |need: &&str| Dependency { drv_path: drv(need), outputs: vec!["out".into()] };
    DiscoveredDerivation {
        attrs: vec![["packages", "x86_64-linux", name].into_iter().collect()],
        drv_path: drv(name),
        outputs: vec![Output { name: "out".into(), path: Some(path(name)) }],
        dependencies: needs.iter().map(dependency).collect(),
        requirement: Requirement::new("x86_64-linux", []),
        is_fixed_output: false,
        prefer_local_build: false,
        timeout_secs: None,
        max_silent_secs: None,
        pname: None,
    }
}

pub(crate) fn needing(name: &str, system: &str, features: &[&str]) -> DiscoveredDerivation {
    let requirement = Requirement::new(system, features.iter().map(ToString::to_string));
    DiscoveredDerivation { requirement, ..derivation(name, &[]) }
}

pub(crate) fn capabilities(features: &[&str], slots: u32) -> Capabilities {
    Capabilities {
        architectures: BTreeSet::from([System("x86_64-linux".into())]),
        system_features: features.iter().map(|f| Feature((*f).into())).collect(),
        max_concurrent_builds: slots,
        ..Capabilities::default()
    }
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let mut fleet =
            Self { state: State::default(), log: Vec::new(), now_ms: 1_000_000, commands: 0 };
        fleet.internal(Input::Started { settings: Settings::default(), commands_restarted: false });
        fleet
    }

    fn take(&mut self, cause: Cause, input: Input) -> Vec<Event> {
        // Comparing whole states is for small ones.
        let before = (self.state.graph().len() < 200).then(|| self.state.clone());
        let at = Timestamp(self.now_ms);
        let events = decide(&mut self.state, at, cause, &input);
        if events.is_empty() {
            if let Some(before) = before {
                assert_eq!(self.state, before, "an input without events leaves no trace");
            }
            return events;
        }
        let entry = Entry { at, cause, input, events: events.clone() };
        if let Some(mut folded) = before {
            evolve(&mut folded, &entry);
            assert_eq!(folded, self.state, "the fold of the entry is the live state");
        }
        self.log.push(entry);
        events
    }

    pub(crate) fn internal(&mut self, input: Input) -> Vec<Event> {
        self.take(Cause::Internal, input)
    }

    pub(crate) fn received(&mut self, input: Input) -> Vec<Event> {
        self.commands += 1;
        self.take(Cause::Command(self.commands), input)
    }

    pub(crate) fn says(&mut self, number: u8, message: WorkerMessage) -> Vec<Event> {
        self.says_as(number, number, message)
    }

    pub(crate) fn says_as(&mut self, number: u8, run: u8, message: WorkerMessage) -> Vec<Event> {
        self.received(Input::Worker { worker: worker(number), session: session(run), message })
    }

    pub(crate) fn command(&mut self, command: Command) -> Vec<Event> {
        self.received(Input::Command { command })
    }

    pub(crate) fn submit(&mut self, number: u8) -> Vec<Event> {
        let flake = FlakeSource::Store {
            path: path("source"),
            nar_hash: "sha256-x".into(),
            subdir: String::new(),
            label: "path:.".into(),
            commit: None,
        };
        let patterns = vec!["packages.*.*".into()];
        let fetch = Box::<FetchOptions>::default();
        self.command(Command::Submit { evaluation: evaluation(number), flake, patterns, fetch })
    }

    pub(crate) fn hello(
        &mut self,
        number: u8,
        run: u8,
        open_assignments: Vec<OpenAssignment>,
    ) -> Vec<Event> {
        let hello = Hello {
            greeting: 1,
            name: format!("w{number}"),
            fetch: true,
            eval: true,
            build: true,
            protocol_oldest: 1,
            protocol_newest: 1,
            open_assignments,
        };
        self.says_as(number, run, WorkerMessage::Hello(hello))
    }

    /// A worker that joined, said what it offers and asked for the list.
    pub(crate) fn join(&mut self, number: u8, capabilities: Capabilities) -> Vec<Event> {
        let mut events = self.hello(number, number, Vec::new());
        events.extend(self.says(number, WorkerMessage::WorkerCapabilities { capabilities }));
        events.extend(self.says(number, WorkerMessage::RequestJobList));
        events
    }

    /// The worker answers every page it is owed, with these missing bytes for each job.
    pub(crate) fn score(
        &mut self,
        number: u8,
        missing_nar_size: impl Fn(JobId) -> u64,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(
            ServerMessage::JobListChunk { candidates, up_to, .. }
            | ServerMessage::JobOffer { candidates, up_to },
        ) = self.page(number)
        {
            let scores = candidates.iter().map(|candidate| CandidateScore {
                job: candidate.job_id,
                missing_count: u32::from(missing_nar_size(candidate.job_id) > 0),
                missing_nar_size: missing_nar_size(candidate.job_id),
                outputs_present: false,
            });
            let scores = scores.collect();
            let chunk = WorkerMessage::RequestJobChunk { scores, up_to, is_final: true };
            events.extend(self.says(number, chunk));
        }
        events
    }

    /// The page that a worker is owed.
    pub(crate) fn page(&self, number: u8) -> Option<ServerMessage> {
        let effects = outstanding_for(&self.state, worker(number));
        let page = effects.into_iter().find(|effect| matches!(effect.owed, Owed::Page(_)))?;
        message(&self.state, page, |_, _| String::new())
    }

    pub(crate) fn owed(&self, number: u8) -> Vec<Owed> {
        outstanding_for(&self.state, worker(number)).into_iter().map(|effect| effect.owed).collect()
    }

    pub(crate) fn request(&mut self, number: u8, kind: Kind) -> Vec<Event> {
        self.says(number, WorkerMessage::RequestJob { kind })
    }

    /// Asks for a job and takes it.
    pub(crate) fn assign(&mut self, number: u8, kind: Kind) -> (JobId, AssignmentId) {
        let events = self.request(number, kind);
        let (job, assignment) =
            assigned(&events).unwrap_or_else(|| panic!("no {kind} for {number}: {events:?}"));
        self.answer(number, job, assignment, true);
        (job, assignment)
    }

    pub(crate) fn answer(
        &mut self,
        number: u8,
        job: JobId,
        assignment: AssignmentId,
        accepted: bool,
    ) -> Vec<Event> {
        self.says(
            number,
            WorkerMessage::AssignJobResponse { job, assignment, accepted, reason: None },
        )
    }

    pub(crate) fn update(
        &mut self,
        number: u8,
        (job, assignment): (JobId, AssignmentId),
        update: JobUpdate,
    ) -> Vec<Event> {
        self.says(number, WorkerMessage::JobUpdate { job, assignment, update })
    }

    pub(crate) fn complete(
        &mut self,
        number: u8,
        (job, assignment): (JobId, AssignmentId),
    ) -> Vec<Event> {
        self.says(number, WorkerMessage::JobCompleted { job, assignment, elapsed_ms: 1 })
    }

    /// Reports the output of a build and its end.
    pub(crate) fn built(&mut self, number: u8, hand_out: (JobId, AssignmentId)) -> Vec<Event> {
        let outputs = vec![BuiltOutput {
            name: "out".into(),
            path: path("built"),
            nar_hash: "sha256:0".into(),
            nar_size: 512,
        }];
        self.update(
            number,
            hand_out,
            JobUpdate::BuildOutput { outputs, substituted: false, build_time_ms: 1 },
        );
        self.complete(number, hand_out)
    }

    pub(crate) fn fail(
        &mut self,
        number: u8,
        (job, assignment): (JobId, AssignmentId),
        kind: FailureKind,
    ) -> Vec<Event> {
        let error = "it broke".to_owned();
        let missing_paths = Vec::new();
        self.says(
            number,
            WorkerMessage::JobFailed { job, assignment, kind, error, missing_paths, elapsed_ms: 1 },
        )
    }

    pub(crate) fn found(
        &mut self,
        number: u8,
        hand_out: (JobId, AssignmentId),
        derivations: Vec<DiscoveredDerivation>,
    ) -> Vec<Event> {
        let batch = EvalResult { derivations, ..EvalResult::default() };
        self.update(number, hand_out, JobUpdate::EvalResult(batch))
    }

    pub(crate) fn erred(
        &mut self,
        number: u8,
        hand_out: (JobId, AssignmentId),
        text: &str,
    ) -> Vec<Event> {
        let errors = vec![EvalMessage { attr: None, text: text.into() }];
        self.update(
            number,
            hand_out,
            JobUpdate::EvalResult(EvalResult { errors, ..EvalResult::default() }),
        )
    }

    /// Evaluation `number` submitted, evaluated by worker `by`, all of it found and reported.
    pub(crate) fn evaluate(
        &mut self,
        number: u8,
        by: u8,
        derivations: Vec<DiscoveredDerivation>,
    ) -> Vec<Event> {
        self.submit(number);
        let hand_out = self.assign(by, Kind::Evaluate);
        let mut events = self.found(by, hand_out, derivations);
        events.extend(self.complete(by, hand_out));
        events
    }

    pub(crate) fn later(&mut self, ms: u64) -> Vec<Event> {
        self.now_ms += ms;
        self.internal(Input::Tick)
    }

    pub(crate) fn build(&self, name: &str) -> BuildId {
        self.state.graph().find(&drv(name)).expect("it was mentioned")
    }

    pub(crate) fn job(&self, name: &str) -> JobId {
        JobId::Build(self.build(name))
    }
}

/// The hand-out among some events.
pub(crate) fn assigned(events: &[Event]) -> Option<(JobId, AssignmentId)> {
    events.iter().find_map(|event| match event {
        Event::JobAssigned { job, assignment, .. } => Some((*job, *assignment)),
        _ => None,
    })
}

/// The offers among some events.
pub(crate) fn offered_to(events: &[Event]) -> Vec<(WorkerId, OfferNumber)> {
    let offers = events.iter().filter_map(|event| match event {
        Event::OffersSent { worker, up_to, .. } => Some((*worker, *up_to)),
        _ => None,
    });
    offers.collect()
}
