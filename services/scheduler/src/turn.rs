//! One turn: everything that arrived is decided on the running state, one after the other, and goes
//! into the log as one message; what is owed then leaves (ADR 2, 4).

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context as _;
use gradient_events::{Cause, Entry, EntryBatch, Input};
use gradient_log::jetstream::{Broker, JetStreamLog};
use gradient_log::{AppendError, EventLog};
use gradient_runtime::health::Health;
use gradient_scheduler_core::{State, decide};
use tokio::time::Instant;
use uuid::Uuid;

use crate::catch_up::catch_up;
use crate::deliver::Deliverer;
use crate::feed::Incoming;
use crate::input::Waiting;
use crate::presence::Presence;
use crate::{SchedulerSettings, metrics, now};

/// Bytes of inputs after which a message is closed; with the events it stays under 512 KiB.
const BATCH_BYTES: usize = 128 * 1024;
/// About as many bytes as an event takes.
const EVENT_BYTES: usize = 256;
/// A standby acts for inputs that nobody handled for this long (ADR 1).
const STANDBY_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Scheduler {
    log: JetStreamLog,
    state: State,
    last_sequence: u64,
    settings: SchedulerSettings,
    presence: Presence,
    deliverer: Deliverer,
    waiting: VecDeque<Waiting>,
    /// Whether another scheduler leads.
    standby: bool,
    /// Deliveries wait until COMMANDS is read up to here, what lay there at the start: a job that ended
    /// meanwhile must not be handed out again.
    deliver_after: Option<u64>,
    first_command: u64,
    health: Health,
}

impl Scheduler {
    /// Folds the log and takes over.
    pub(crate) async fn recover(
        broker: Broker,
        settings: SchedulerSettings,
        health: Health,
    ) -> anyhow::Result<Self> {
        let log = broker.log();
        let started = Instant::now();
        let mut state = State::default();
        let last_sequence = catch_up(&log, &mut state, 0).await?;
        tracing::info!(
            log = last_sequence,
            derivations = state.graph().len(),
            seconds = started.elapsed().as_secs_f64(),
            "the log is folded"
        );
        let (streams, mint_token) = (settings.streams.clone(), settings.mint_token.clone());
        let mut deliverer = Deliverer::new(broker.clone(), streams, mint_token);
        deliverer.note_all(&state);
        let last_command = broker.inbox().last_sequence().await?;
        let commands_restarted = last_command < state.commands_position();
        if commands_restarted {
            tracing::warn!("COMMANDS was made anew; reading it from its start");
        }
        let position = if commands_restarted { 0 } else { state.commands_position() };
        let settings_now = settings.core.clone();
        let start = Input::Started { settings: settings_now, commands_restarted };
        Ok(Self {
            log,
            state,
            last_sequence,
            presence: Presence::new(settings.heartbeat_timeout),
            deliverer,
            waiting: VecDeque::from([Waiting::internal(start)]),
            standby: false,
            deliver_after: (last_command > position).then_some(last_command),
            first_command: position + 1,
            health,
            settings,
        })
    }

    /// Where to read COMMANDS from.
    pub(crate) fn first_command(&self) -> u64 {
        self.first_command
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Takes in what arrived, then decides and appends all of it.
    pub(crate) async fn turn(
        &mut self,
        incoming: impl Iterator<Item = Incoming>,
    ) -> anyhow::Result<()> {
        for one in incoming {
            self.take(one).await;
        }
        if self.standby && !self.leads_again().await? {
            return Ok(());
        }
        while !self.waiting.is_empty() {
            let batch = self.decide_batch();
            if !batch.entries.is_empty() && !self.append(batch).await? {
                return Ok(());
            }
            if self.deliver_after.is_none() {
                self.deliverer.flush(&self.state).await;
            }
        }
        self.health.good("scheduler", format!("log at {}", self.last_sequence));
        Ok(())
    }

    async fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Received(received) => {
                if let Some(worker) = gradient_events::subject::worker_of(&received.subject) {
                    self.presence.heard(worker);
                }
                if self.deliver_after.is_some_and(|last| received.sequence >= last) {
                    self.deliver_after = None;
                }
                self.waiting.push_back(Waiting::received(&received));
            }
            Incoming::Beat(beat) => {
                let known = self.state.workers().get(&beat.worker);
                if known.is_some_and(|worker| worker.session == beat.heartbeat.session) {
                    self.presence.heard(beat.worker);
                    let (worker, metrics) = (beat.worker, beat.heartbeat.metrics);
                    if self.presence.is_material(worker, &metrics) {
                        self.waiting
                            .push_back(Waiting::internal(Input::Metrics { worker, metrics }));
                    }
                }
            }
            Incoming::Query(query) => {
                let graph = self.state.graph();
                let is_known = |path: &gradient_domain::StorePath| {
                    graph.find(path).is_some_and(|build| graph.is_known_whole(build))
                };
                let known = query.drv_paths.iter().filter(|path| is_known(path)).cloned().collect();
                query.answer(known).await;
            }
            Incoming::CommandsRestarted => {
                let settings = self.settings.core.clone();
                let start = Input::Started { settings, commands_restarted: true };
                self.waiting.push_back(Waiting::internal(start));
            }
            Incoming::Tick => {
                // The last message may have aged out of COMMANDS meanwhile.
                self.deliver_after = None;
                let silent = self.presence.silent(&self.state);
                let silent = silent.into_iter().map(|worker| Input::WorkerSilent { worker });
                self.waiting.extend(silent.map(Waiting::internal));
                self.waiting.push_back(Waiting::internal(Input::Tick));
                self.deliverer.note_all(&self.state);
                metrics::state(&self.state, now());
            }
            Incoming::Sweep => self.waiting.push_back(Waiting::internal(Input::Sweep)),
        }
    }

    /// Decides waiting inputs until the message is full.
    fn decide_batch(&mut self) -> EntryBatch {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.waiting.front() {
            if !entries.is_empty() && bytes + next.bytes > BATCH_BYTES {
                break;
            }
            let Some(Waiting { cause, input, bytes: input_bytes, .. }) = self.waiting.pop_front()
            else {
                break;
            };
            let is_repeat =
                matches!(cause, Cause::Command(n) if n <= self.state.commands_position());
            if is_repeat {
                continue;
            }
            let at = now().max(self.state.now());
            let events = decide(&mut self.state, at, cause, &input);
            if events.is_empty() {
                metrics::no_op();
                continue;
            }
            metrics::entry(&events);
            bytes += input_bytes + events.len() * EVENT_BYTES;
            let entry = Entry { at, cause, input, events };
            self.deliverer.note(&self.state, &entry);
            entries.push(entry);
        }
        EntryBatch { entries }
    }

    /// Appends a message. False: another scheduler was first, and this one now stands by.
    async fn append(&mut self, batch: EntryBatch) -> anyhow::Result<bool> {
        let id = Uuid::now_v7();
        let started = Instant::now();
        match self.log.append(self.last_sequence, id, &batch).await {
            Ok(sequence) => {
                metrics::appended(started.elapsed().as_secs_f64());
                self.last_sequence = sequence;
                Ok(true)
            }
            Err(AppendError::Conflict { expected }) => {
                tracing::warn!(expected, "another scheduler appended first; standing by");
                metrics::conflict();
                self.stand_by(batch).await?;
                Ok(false)
            }
            Err(AppendError::TooLarge { bytes, .. }) if batch.entries.len() > 1 => {
                tracing::debug!(bytes, entries = batch.entries.len(), "a message is cut in two");
                let mut first = batch.entries;
                let second = first.split_off(first.len() / 2);
                if !Box::pin(self.append(EntryBatch { entries: first })).await? {
                    self.put_back(second);
                    return Ok(false);
                }
                Box::pin(self.append(EntryBatch { entries: second })).await
            }
            Err(AppendError::TooLarge { bytes, .. }) => {
                self.refuse_oversize(batch, bytes).await?;
                Ok(true)
            }
            Err(error) => {
                self.health.bad("scheduler", error.to_string());
                Err(error).context(
                    "the scheduler cannot append to its log; its state is not to be trusted",
                )
            }
        }
    }

    /// An entry that no message can hold. Its input is refused under the same cause, so that it does
    /// not come again; what it would have done did not happen.
    async fn refuse_oversize(&mut self, batch: EntryBatch, bytes: usize) -> anyhow::Result<()> {
        self.refold().await?;
        for entry in batch.entries {
            let reason = format!("its entry would have {bytes} bytes, more than a message holds");
            tracing::error!(cause = ?entry.cause, reason, "an input is refused");
            if let Cause::Command(_) = entry.cause {
                let input = Input::Unreadable { subject: "COMMANDS".into(), reason };
                let since = Instant::now();
                self.waiting.push_front(Waiting { cause: entry.cause, input, bytes: 0, since });
            }
        }
        Ok(())
    }

    /// The state holds what never happened: throw it away and fold the truth.
    async fn refold(&mut self) -> anyhow::Result<()> {
        let mut state = State::default();
        self.last_sequence = catch_up(&self.log, &mut state, 0).await?;
        self.state = state;
        self.deliverer.reset(&self.state);
        Ok(())
    }

    /// Inputs whose entries were not appended wait again.
    fn put_back(&mut self, entries: Vec<Entry>) {
        for Entry { cause, input, .. } in entries.into_iter().rev() {
            if let Cause::Command(_) = cause {
                let since = Instant::now();
                self.waiting.push_front(Waiting { cause, input, bytes: 0, since });
            }
        }
    }

    /// Another scheduler was first: fold the truth, keep the inputs.
    async fn stand_by(&mut self, lost: EntryBatch) -> anyhow::Result<()> {
        self.put_back(lost.entries);
        self.refold().await?;
        self.standby = true;
        self.health.good("scheduler", "standing by: another scheduler leads");
        Ok(())
    }

    /// A standby folds what the leader appends and forgets what it handled. Inputs that nobody handled
    /// for 2 s make it lead.
    async fn leads_again(&mut self) -> anyhow::Result<bool> {
        self.last_sequence = catch_up(&self.log, &mut self.state, self.last_sequence).await?;
        let position = self.state.commands_position();
        self.waiting.retain(|waiting| waiting.command_sequence().is_some_and(|n| n > position));
        let overdue = self.first_overdue();
        if overdue {
            tracing::warn!("inputs are left unhandled; this scheduler leads from here on");
            self.standby = false;
            let settings = self.settings.core.clone();
            let start = Input::Started { settings, commands_restarted: false };
            self.waiting.push_front(Waiting::internal(start));
            self.deliverer.reset(&self.state);
        }
        Ok(overdue)
    }

    /// Whether an input that would change something is left unhandled. One that changes nothing is
    /// never logged by anybody and no reason to lead.
    fn first_overdue(&mut self) -> bool {
        while let Some(first) = self.waiting.front() {
            if first.since.elapsed() < STANDBY_PATIENCE {
                return false;
            }
            let mut state = self.state.clone();
            let at = now().max(state.now());
            if !decide(&mut state, at, first.cause, &first.input).is_empty() {
                return true;
            }
            self.waiting.pop_front();
        }
        false
    }
}
