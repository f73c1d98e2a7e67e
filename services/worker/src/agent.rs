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
use gradient_log::jetstream::{Broker, LiveEvent};
use gradient_runtime::shutdown::CancellationToken;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::execute::Executor;
use crate::metrics::Sampler;
use crate::outbox::Outbox;
use crate::voice::Voice;
use offers::Scored;
use slots::Slots;

/// Time between heartbeats, and between repeated requests while a slot is idle (spec).
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Time after which an unanswered hello is repeated.
const HELLO_REPEAT: Duration = Duration::from_secs(5);
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
        let voice = Voice::start(&broker, settings.worker, session, outbox.clone());
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
            phase: Phase::Greeting(Instant::now()),
            was_connected: true,
            own: mpsc::channel(EVENTS_WAITING_MAX),
            sampler: Sampler::default(),
        }
    }

    /// Works until `stop`, then drains and leaves.
    ///
    /// # Errors
    /// If the connection is closed for good or the outbox cannot be read.
    pub async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut live = self.broker.live(self.settings.worker).await?;
        let kept = self.outbox.kept()?;
        self.hello().await?;
        for (_, report) in kept {
            self.voice.say(report).await;
        }
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(LOOK);
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                heard = live.next() => match heard {
                    Some(event) => self.hear(event).await?,
                    None => anyhow::bail!("the connection to the NATS server is closed for good"),
                },
                own = self.own.1.recv() => match own {
                    Some(own) => self.on_own(own).await,
                    None => unreachable!("the agent holds a sender"),
                },
                _ = heartbeat.tick() => {
                    self.beat();
                    self.request_all().await;
                }
                _ = look.tick() => self.look().await?,
            }
        }
        self.leave(&mut live).await;
        Ok(())
    }

    async fn hello(&mut self) -> anyhow::Result<()> {
        let mut open_assignments = self.slots.open();
        open_assignments.extend(self.outbox.kept()?.into_iter().map(|(open, _)| open));
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
        Ok(())
    }

    async fn hear(&mut self, event: LiveEvent) -> anyhow::Result<()> {
        match event {
            LiveEvent::Message(message) => self.on_message(message).await,
            LiveEvent::Gap => {
                tracing::info!("deliveries were lost; saying hello again");
                self.hello().await
            }
            LiveEvent::Unreadable(error) => {
                tracing::error!(%error, "a delivery cannot be read");
                Ok(())
            }
        }
    }

    async fn on_message(&mut self, message: ServerMessage) -> anyhow::Result<()> {
        match message {
            ServerMessage::Welcome { session, greeting, open_assignments, .. }
                if session == self.session && greeting == self.greeting =>
            {
                self.welcome(&open_assignments).await;
            }
            ServerMessage::Reject { session, code, reason } if session == self.session => {
                tracing::warn!(code, reason, "the server refuses this session");
                // 401: it does not know the session any more. Anything else comes again by the clock.
                if code == 401 && self.phase == Phase::Open {
                    self.hello().await?;
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
            ServerMessage::AbortJob { assignment_id, reason, .. } => {
                self.slots.abort(assignment_id, reason)
            }
            ServerMessage::Draining => tracing::info!("the server drains; no new jobs come"),
        }
        Ok(())
    }

    /// The session is open: drop what the server does not believe in, say what this worker offers,
    /// ask for candidates.
    async fn welcome(&mut self, open: &[OpenAssignment]) {
        if self.phase == Phase::Open {
            return;
        }
        self.phase = Phase::Open;
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
    async fn look(&mut self) -> anyhow::Result<()> {
        let connected = self.broker.is_connected();
        let came_back = connected && !std::mem::replace(&mut self.was_connected, connected);
        let unanswered = match self.phase {
            Phase::Greeting(since) => since.elapsed() >= HELLO_REPEAT,
            Phase::Open => false,
        };
        if connected && (came_back || unanswered) { self.hello().await } else { Ok(()) }
    }
}
