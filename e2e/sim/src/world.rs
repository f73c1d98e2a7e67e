//! The world: chance decides what happens next; invariants are checked after every message.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::flake::FetchOptions;
use gradient_domain::{BuildId, EvaluationId, StorePath, Timestamp, WorkerId};
use gradient_events::{Cause, Command, FlakeSource, Input, ServerMessage, WorkerMessage};
use gradient_scheduler_core::outstanding::message;
use gradient_scheduler_core::replay::Verifier;

use crate::invariant::Watch;
use crate::plan::{Plan, path};
use crate::rng::Rng;
use crate::scheduler::{Log, Scheduler, Turn};
use crate::tally::Tally;
use crate::worker::{Flaky, SimWorker};

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Print what happens.
    pub trace: bool,
}

/// Steps with faults, steps without until everything has to be over.
const STEPS: (u64, u64) = (400, 6_000);
/// Silence after which a worker is lost, in milliseconds.
const HEARTBEAT_TIMEOUT_MS: u64 = 120_000;
/// Time between two ticks, heartbeats and idle requests, in milliseconds.
const TICK_MS: u64 = 5_000;

mod faults;
mod verdicts;

struct World {
    rng: Rng,
    now_ms: u64,
    /// What the clock of the schedulers is off by.
    skew_ms: u64,
    plan: Plan,
    log: Log,
    schedulers: Vec<Scheduler>,
    workers: Vec<SimWorker>,
    seen_ms: BTreeMap<WorkerId, u64>,
    /// COMMANDS.
    commands: Vec<Input>,
    /// Messages on the way to COMMANDS, in order per worker.
    to_server: Vec<(u64, WorkerId, Input)>,
    to_workers: Vec<(u64, usize, ServerMessage)>,
    evaluations: Vec<(EvaluationId, usize)>,
    submitted: usize,
    canceled: Vec<EvaluationId>,
    canceled_builds: BTreeSet<BuildId>,
    flaky: Flaky,
    watch: Watch,
    watched: usize,
    tally: Tally,
    trace: bool,
    faults: bool,
    next_tick_ms: u64,
}

/// Runs a seed to its end.
///
/// # Errors
/// The invariant that broke, with the step.
pub fn run(seed: u64, options: Options) -> Result<Tally, String> {
    let mut world = World::new(seed, options.trace);
    for step in 0..STEPS.0 {
        world.step().map_err(|what| format!("step {step}: {what}"))?;
    }
    world.calm();
    for step in 0..STEPS.1 {
        if world.is_over() {
            return world.verdicts().map(|()| world.tally);
        }
        world.step().map_err(|what| format!("calm step {step}: {what}"))?;
    }
    Err(format!("not over {} steps after the faults stopped: {}", STEPS.1, world.leftovers()))
}

impl World {
    fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::random(&mut rng);
        let log = Log::default();
        let workers =
            (0..=1 + rng.below(2)).map(|number| SimWorker::new(number, &mut rng)).collect();
        let evaluations = (0..plan.flakes.len()).map(|n| (EvaluationId(rng.id()), n)).collect();
        Self {
            schedulers: vec![Scheduler::start(&log)],
            rng,
            now_ms: 1_000_000,
            skew_ms: 0,
            plan,
            log,
            workers,
            seen_ms: BTreeMap::new(),
            commands: Vec::new(),
            to_server: Vec::new(),
            to_workers: Vec::new(),
            evaluations,
            submitted: 0,
            canceled: Vec::new(),
            canceled_builds: BTreeSet::new(),
            flaky: Flaky::new(),
            watch: Watch::default(),
            watched: 0,
            tally: Tally::default(),
            trace,
            faults: true,
            next_tick_ms: 0,
        }
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>9} {}", self.now_ms, text());
        }
    }

    /// No more faults: everybody runs, everything is asked for.
    fn calm(&mut self) {
        self.faults = false;
        self.say(|| "-- the faults stop --".into());
    }

    fn step(&mut self) -> Result<(), String> {
        self.pass_time();
        if self.faults {
            self.fault();
        }
        self.users();
        self.workers_act();
        self.arrive();
        self.schedulers_act()?;
        self.deliver();
        self.hear();
        Ok(())
    }

    /// Time goes on to the next thing that happens, or a little further.
    fn pass_time(&mut self) {
        let running = self.workers.iter().filter_map(SimWorker::next_ms).min();
        let on_the_way =
            self.to_server.iter().map(|m| m.0).chain(self.to_workers.iter().map(|m| m.0)).min();
        let next =
            running.into_iter().chain(on_the_way).chain([self.next_tick_ms]).min().unwrap_or(0);
        self.now_ms = self.now_ms.max(next) + self.rng.below(3);
        if self.faults && self.rng.chance(5) {
            self.now_ms += self.rng.below(200_000);
        }
    }

    /// Users submit; dead workers come back sooner or later.
    fn users(&mut self) {
        if self.submitted < self.evaluations.len() && (!self.faults || self.rng.chance(50)) {
            let (evaluation, flake) = self.evaluations[self.submitted];
            self.submitted += 1;
            let flake = FlakeSource::Store {
                path: source(flake),
                nar_hash: String::new(),
                subdir: String::new(),
                label: flake.to_string(),
                commit: None,
            };
            let command = Command::Submit {
                evaluation,
                flake,
                patterns: vec!["packages.*.*".into()],
                fetch: Box::<FetchOptions>::default(),
            };
            self.commands.push(Input::Command { command: command.clone() });
            if self.rng.chance(100) {
                self.commands.push(Input::Command { command });
            }
            self.say(|| format!("submitted {evaluation}"));
        }
        for number in 0..self.workers.len() {
            if !self.workers[number].alive && (!self.faults || self.rng.chance(40)) {
                let said = self.workers[number].start(&mut self.rng);
                self.say(|| format!("worker {number} starts"));
                self.send(number, said);
            }
        }
    }

    fn workers_act(&mut self) {
        for number in 0..self.workers.len() {
            if self.workers[number].alive {
                let said = self.workers[number].work(self.now_ms);
                self.send(number, said);
            }
        }
        if self.now_ms >= self.next_tick_ms {
            for number in 0..self.workers.len() {
                if self.workers[number].alive {
                    self.seen_ms.insert(self.workers[number].id, self.now_ms);
                    let said = self.workers[number].idle();
                    self.send(number, said);
                }
            }
        }
    }

    /// Puts messages on the way, in the order they were said; now and then one twice.
    fn send(&mut self, number: usize, said: Vec<WorkerMessage>) {
        let (worker, session) = (self.workers[number].id, self.workers[number].session());
        let newest = self.to_server.iter().filter(|m| m.1 == worker).map(|m| m.0).max();
        let mut at_ms = self.now_ms.max(newest.unwrap_or(0));
        for message in said {
            if self.faults && self.rng.chance(100) {
                at_ms += self.rng.below(10_000);
            }
            let input = Input::Worker { worker, session, message };
            if self.faults && self.rng.chance(20) {
                self.to_server.push((at_ms, worker, input.clone()));
                self.tally.add("message doubled");
            }
            self.to_server.push((at_ms, worker, input));
        }
    }

    fn arrive(&mut self) {
        let now_ms = self.now_ms;
        let (arrived, rest) =
            std::mem::take(&mut self.to_server).into_iter().partition(|m| m.0 <= now_ms);
        self.to_server = rest;
        let mut arrived: Vec<(u64, WorkerId, Input)> = arrived;
        arrived.sort_by_key(|m| m.0);
        for (_, worker, input) in arrived {
            self.seen_ms.insert(worker, now_ms);
            self.commands.push(input);
        }
    }

    fn schedulers_act(&mut self) -> Result<(), String> {
        let tick = self.now_ms >= self.next_tick_ms;
        if tick {
            self.next_tick_ms = self.now_ms + TICK_MS;
        }
        let active = usize::try_from(self.rng.below(self.schedulers.len() as u64)).expect("small");
        let both = self.faults && self.schedulers.len() > 1 && self.rng.chance(300);
        for number in 0..self.schedulers.len() {
            if number != active && !both {
                self.schedulers[number].catch_up(&self.log);
                continue;
            }
            let inputs = self.inputs_for(number, tick);
            let now = Timestamp(self.now_ms + self.skew_ms);
            let turn = self.schedulers[number].turn(&mut self.log, now, inputs);
            if turn == Turn::Lost {
                self.tally.add("append lost");
            }
            self.check()?;
            if turn == Turn::Appended && self.schedulers[number].state != *self.watch.state() {
                return Err("the live state is not the fold of the log".into());
            }
        }
        Ok(())
    }

    fn inputs_for(&mut self, number: usize, tick: bool) -> Vec<(Cause, Input)> {
        let state = &self.schedulers[number].state;
        let position = usize::try_from(state.commands_position()).expect("small");
        let waiting = self.commands.iter().enumerate().skip(position);
        let mut inputs: Vec<(Cause, Input)> = waiting
            .map(|(index, input)| (Cause::Command(index as u64 + 1), input.clone()))
            .collect();
        if tick {
            let here = state.workers().iter().filter(|(_, worker)| worker.presence.is_here());
            for (id, _) in here {
                let seen_ms = self.seen_ms.get(id).copied().unwrap_or(0);
                if self.now_ms.saturating_sub(seen_ms) >= HEARTBEAT_TIMEOUT_MS {
                    inputs.push((Cause::Internal, Input::WorkerSilent { worker: *id }));
                }
            }
            inputs.push((Cause::Internal, Input::Tick));
            inputs.push((Cause::Internal, Input::Sweep));
        }
        inputs
    }

    /// Watches what was appended; now and then decides it again.
    fn check(&mut self) -> Result<(), String> {
        while self.watched < self.log.messages.len() {
            for entry in &self.log.messages[self.watched] {
                if self.trace {
                    println!("{:>9}   {:?}", self.now_ms, entry.input);
                    for event in &entry.events {
                        println!("{:>9}     -> {event:?}", "");
                    }
                }
                for event in &entry.events {
                    self.tally.event(event);
                }
                if self.rng.chance(10) {
                    let mut verifier = Verifier::from_state(self.watch.state());
                    verifier
                        .entry(entry)
                        .map_err(|deviation| format!("a replay deviates: {deviation:?}"))?;
                    if !verifier.agrees() {
                        return Err("a replay comes to another state".into());
                    }
                }
                self.watch.entry(entry)?;
            }
            self.watched += 1;
        }
        Ok(())
    }

    /// Deliveries leave; some are lost, some are late, some come twice.
    fn deliver(&mut self) {
        for number in 0..self.schedulers.len() {
            if self.schedulers[number].folded != self.log.messages.len() {
                continue;
            }
            for effect in self.schedulers[number].due(self.now_ms) {
                let Some(told) =
                    message(&self.schedulers[number].state, effect, |_, _| String::new())
                else {
                    continue;
                };
                let Some(worker) =
                    self.workers.iter().position(|worker| worker.id == effect.worker)
                else {
                    continue;
                };
                if self.faults && self.rng.chance(50) {
                    self.tally.add("delivery lost");
                    continue;
                }
                let late_ms =
                    if self.faults && self.rng.chance(100) { self.rng.below(20_000) } else { 0 };
                if self.faults && self.rng.chance(50) {
                    self.to_workers.push((
                        self.now_ms + self.rng.below(5_000),
                        worker,
                        told.clone(),
                    ));
                }
                self.to_workers.push((self.now_ms + late_ms, worker, told));
            }
        }
    }

    fn hear(&mut self) {
        let now_ms = self.now_ms;
        let (heard, rest) =
            std::mem::take(&mut self.to_workers).into_iter().partition(|m| m.0 <= now_ms);
        self.to_workers = rest;
        let heard: Vec<(u64, usize, ServerMessage)> = heard;
        for (_, number, told) in heard {
            if self.workers[number].alive {
                let said = self.workers[number].hear(
                    &told,
                    now_ms,
                    &self.plan,
                    &mut self.rng,
                    &mut self.flaky,
                );
                self.send(number, said);
            }
        }
    }

    fn is_over(&self) -> bool {
        let state = self.watch.state();
        let all_over = state.evaluations().iter().all(|evaluation| evaluation.state.is_terminal());
        self.submitted == self.evaluations.len()
            && state.evaluations().len() == self.evaluations.len()
            && all_over
            && state.queue().is_empty()
            && state.assignments().is_empty()
    }

    fn leftovers(&self) -> String {
        let state = self.watch.state();
        let live = state.evaluations().iter().filter(|e| !e.state.is_terminal());
        let live: Vec<String> =
            live.map(|e| format!("{} {:?} open {}", e.id, e.state, e.open)).collect();
        let open: Vec<String> = state
            .assignments()
            .iter()
            .map(|(id, a)| format!("{id} {} {:?}", a.job, a.phase))
            .collect();
        format!("evaluations {live:?}, hand-outs {open:?}, {} queued", state.queue().len())
    }
}

fn source(number: usize) -> StorePath {
    path(number, "-source")
}
