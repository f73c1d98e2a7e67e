//! The agent: the worker's side of the conversation with the scheduler (spec, Assignment).
//!
//! One task owns the slots. It hears deliveries, scores offers, takes jobs, asks for more, and says
//! when it drains; jobs run in tasks of their own and speak through the same voice.

mod offers;
mod slots;
mod stop;

use std::time::Duration;

use gradient_domain::{Capabilities, SessionId, WorkerId};
use gradient_events::worker::{Heartbeat, Hello, OpenAssignment};
use gradient_events::{PROTOCOL_VERSIONS, ServerMessage, WorkerMessage};
use gradient_log::jetstream::{Broker, Live, LiveEvent};
use gradient_runtime::shutdown::CancellationToken;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::execute::Executor;
use crate::metrics::Sampler;
use crate::outbox::{Outbox, ended};
use crate::voice::Voice;
use offers::Scored;
use slots::Slots;

/// Time between heartbeats, and between repeated requests while a slot is idle (spec).
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Time after which an unanswered or refused hello is repeated: the first, doubled with each refusal,
/// up to the longest (reference 1.5).
const HELLO_REPEAT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// How often the connection is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Most events of the agent's own tasks that wait.
const EVENTS_WAITING_MAX: usize = 256;

/// What the agent is told at its start.
pub struct AgentSettings {
    /// Who it is.
    pub worker: WorkerId,
    /// Name shown to people.
    pub name: String,
    /// May fetch, evaluate, build.
    pub flags: (bool, bool, bool),
    /// What it offers.
    pub capabilities: Capabilities,
    /// Evaluations at a time.
    pub evaluations_max: usize,
}

/// Something that the agent's own tasks tell it.
enum Own {
    Ended(OpenAssignment),
    Scored(Scored),
}

/// How far the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Said hello at this moment; no answer yet.
    Greeting(Instant),
    Open,
}

/// Hellos that were refused in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Refusals {
    count: u32,
    /// The last of them: a refusal is delivered more than once.
    greeting: u32,
}

impl Refusals {
    fn add(&mut self, greeting: u32) {
        if self.greeting != greeting {
            *self = Self { count: self.count.saturating_add(1), greeting };
        }
    }

    /// How long the next hello waits.
    fn pause(self) -> Duration {
        let (first, longest) = HELLO_REPEAT;
        let doublings = self.count.saturating_sub(1).min(16);
        (first * (1 << doublings)).min(longest)
    }
}

/// The conversation of one run of the worker.
pub struct Agent {
    settings: AgentSettings,
    session: SessionId,
    broker: Broker,
    voice: Voice,
    outbox: Outbox,
    executor: Executor,
    slots: Slots,
    greeting: u32,
    refusals: Refusals,
    phase: Phase,
    was_connected: bool,
    own: (mpsc::Sender<Own>, mpsc::Receiver<Own>),
    sampler: Sampler,
}

impl Agent {
    /// An agent that has not spoken yet.
    #[must_use]
    pub fn new(
        settings: AgentSettings,
        broker: Broker,
        outbox: Outbox,
        executor: Executor,
    ) -> Self {
        let session = SessionId::from(uuid::Uuid::now_v7());
        let voice = Voice::start(broker.inbox(), settings.worker, session, outbox.clone());
        let builds_max = settings.capabilities.max_concurrent_builds as usize;
        let evaluations_max = if settings.flags.1 { settings.evaluations_max } else { 0 };
        Self {
            slots: Slots::new(evaluations_max, builds_max),
            settings,
            session,
            broker,
            voice,
            outbox,
            executor,
            greeting: 0,
            refusals: Refusals::default(),
            phase: Phase::Greeting(Instant::now()),
            was_connected: true,
            own: mpsc::channel(EVENTS_WAITING_MAX),
            sampler: Sampler::default(),
        }
    }

    /// Works until `stop`, then drains and leaves. Whatever it waits for meanwhile ends with `stop`.
    ///
    /// # Errors
    /// If the connection is closed for good.
    pub async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let subscribed = stop.run_until_cancelled(self.broker.live(self.settings.worker)).await;
        let Some(live) = subscribed else { return Ok(()) };
        let mut live = live?;
        if stop.run_until_cancelled(self.work(&mut live)).await.is_some() {
            anyhow::bail!("the connection to the NATS server is closed for good");
        }
        self.leave(&mut live).await;
        Ok(())
    }

    /// Works until the connection is closed for good.
    async fn work(&mut self, live: &mut Live) {
        self.hello().await;
        for report in self.outbox.take_earlier() {
            if let Some(end) = ended(&report) {
                self.slots.ended(end.assignment);
            }
            self.voice.say(report).await;
        }
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                heard = live.next() => match heard {
                    Some(event) => self.hear(event).await,
                    None => return,
                },
                own = self.own.1.recv() => match own {
                    Some(own) => self.on_own(own).await,
                    None => unreachable!("the agent holds a sender"),
                },
                _ = heartbeat.tick() => {
                    self.beat();
                    self.request_all().await;
                }
                _ = look.tick() => self.look().await,
            }
        }
    }

    async fn hello(&mut self) {
        let mut open_assignments = self.slots.open();
        open_assignments.extend(self.outbox.open_assignments());
        open_assignments.sort_by_key(|open| open.assignment);
        open_assignments.dedup();
        self.greeting += 1;
        let greeting = self.greeting;
        let (fetch, eval, build) = self.settings.flags;
        let (protocol_oldest, protocol_newest) = PROTOCOL_VERSIONS;
        let name = self.settings.name.clone();
        let hello = Hello {
            greeting,
            name,
            fetch,
            eval,
            build,
            protocol_oldest,
            protocol_newest,
            open_assignments,
        };
        self.phase = Phase::Greeting(Instant::now());
        self.voice.say(WorkerMessage::Hello(hello)).await;
    }

    async fn hear(&mut self, event: LiveEvent) {
        match event {
            LiveEvent::Message(message) => self.on_message(message).await,
            LiveEvent::Gap => {
                tracing::info!("deliveries were lost; saying hello again");
                self.hello().await;
            }
            LiveEvent::Unreadable(error) => {
                tracing::error!(%error, "a delivery cannot be read");
            }
        }
    }

    async fn on_message(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Welcome { session, greeting, open_assignments, .. }
                if session == self.session && greeting == self.greeting =>
            {
                self.welcome(&open_assignments).await;
            }
            ServerMessage::Reject { session, code, reason } if session == self.session => {
                tracing::warn!(code, reason, "the server refuses this session");
                // 401: it does not know the session any more. Anything else comes again by the clock,
                // more and more rarely.
                if code != 401 {
                    self.refusals.add(self.greeting);
                } else if self.phase == Phase::Open {
                    self.hello().await;
                }
            }
            ServerMessage::Welcome { .. } | ServerMessage::Reject { .. } => {}
            ServerMessage::JobListChunk { candidates, up_to, is_final } => {
                self.score(candidates, up_to, is_final);
            }
            ServerMessage::JobOffer { candidates, up_to } => self.score(candidates, up_to, true),
            ServerMessage::AssignJob { job_id, assignment_id, job, upload_token } => {
                let open = OpenAssignment { job: job_id, assignment: assignment_id };
                self.assign(open, job, upload_token).await;
            }
            ServerMessage::AbortJob { job_id, assignment_id, reason } => {
                let open = OpenAssignment { job: job_id, assignment: assignment_id };
                self.abort(open, &reason).await;
            }
            ServerMessage::Draining => tracing::info!("the server drains; no new jobs come"),
        }
    }

    /// The session is open: drop what the server does not believe in, say what this worker offers,
    /// ask for candidates.
    async fn welcome(&mut self, open: &[OpenAssignment]) {
        if self.phase == Phase::Open {
            return;
        }
        self.phase = Phase::Open;
        self.refusals = Refusals::default();
        self.slots.keep_only(open);
        let capabilities = self.settings.capabilities.clone();
        let is_labelled = capabilities.zone.is_some() || capabilities.endpoint.is_some();
        if self.settings.flags.2 || is_labelled {
            self.voice.say(WorkerMessage::WorkerCapabilities { capabilities }).await;
        }
        self.voice.say(WorkerMessage::RequestJobList).await;
        tracing::info!(session = %self.session, "connected");
    }

    async fn on_own(&mut self, own: Own) {
        match own {
            Own::Ended(open) => {
                self.slots.ended(open.assignment);
                self.request(open.job.kind()).await;
            }
            Own::Scored(scored) => {
                self.voice.say(scored.into_message()).await;
                self.request_all().await;
            }
        }
    }

    /// Presence and figures, without holding up the agent.
    fn beat(&mut self) {
        let metrics = self.sampler.sample();
        let heartbeat = Heartbeat { session: self.session, metrics };
        let (heartbeats, worker) = (self.broker.heartbeats(), self.settings.worker);
        tokio::spawn(async move {
            if let Err(error) = heartbeats.send(worker, &heartbeat).await {
                tracing::debug!(%error, "a heartbeat was not acknowledged");
            }
        });
    }

    /// Says hello again after a reconnect, and while nobody answers.
    async fn look(&mut self) {
        let connected = self.broker.is_connected();
        let came_back = connected && !std::mem::replace(&mut self.was_connected, connected);
        let unanswered = match self.phase {
            Phase::Greeting(since) => since.elapsed() >= self.refusals.pause(),
            Phase::Open => false,
        };
        if connected && (came_back || unanswered) {
            self.hello().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_worker_asks_more_and_more_rarely() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.pause().as_secs(), 5);
        let mut pauses = Vec::new();
        for greeting in 1..=6 {
            refusals.add(greeting);
            refusals.add(greeting);
            pauses.push(refusals.pause().as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    }
}
