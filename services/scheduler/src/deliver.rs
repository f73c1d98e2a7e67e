//! Deliveries: what is owed goes out when it becomes owed, after a hello, and every 5 s until it is
//! acknowledged (ADR 4).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gradient_domain::WorkerId;
use gradient_events::{Entry, Event, Input, ServerMessage, WorkerMessage};
use gradient_log::jetstream::{Broker, StreamLimits};
use gradient_scheduler_core::outstanding::{Owed, message};
use gradient_scheduler_core::{State, outstanding_for};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::{MintToken, metrics};

/// Time after which an unacknowledged delivery is repeated.
const REPEAT: Duration = Duration::from_secs(5);
/// Most deliveries that wait to be published.
const WAITING_MAX: usize = 4_096;

/// The memory of what was sent, and the way out.
pub(crate) struct Deliverer {
    sent: BTreeMap<WorkerId, BTreeMap<Owed, Instant>>,
    touched: BTreeSet<WorkerId>,
    out: mpsc::Sender<(WorkerId, ServerMessage)>,
    mint_token: MintToken,
}

impl Deliverer {
    pub(crate) fn new(broker: Broker, streams: StreamLimits, mint_token: MintToken) -> Self {
        let deliveries = broker.deliveries();
        let (out, mut waiting) = mpsc::channel::<(WorkerId, ServerMessage)>(WAITING_MAX);
        tokio::spawn(async move {
            while let Some((worker, message)) = waiting.recv().await {
                // A lost delivery is still owed and comes again.
                if let Err(error) = deliveries.send(worker, &message).await {
                    tracing::warn!(%worker, %error, "a delivery was not sent");
                    if let Err(error) = broker.ensure_streams(&streams).await {
                        tracing::debug!(%error, "the streams cannot be made");
                    }
                }
            }
        });
        Self { sent: BTreeMap::new(), touched: BTreeSet::new(), out, mint_token }
    }

    /// Notes whom an entry concerns.
    pub(crate) fn note(&mut self, state: &State, entry: &Entry) {
        if let Input::Worker { worker, message, .. } = &entry.input {
            self.touched.insert(*worker);
            if let WorkerMessage::Hello(_) = message {
                self.sent.remove(worker);
            }
        }
        for event in &entry.events {
            match event {
                Event::OffersSent { worker, .. } | Event::JobAssigned { worker, .. } => {
                    self.touched.insert(*worker);
                }
                Event::AbortRequested { assignment, .. } => {
                    self.touched
                        .extend(state.assignments().get(assignment).map(|open| open.worker));
                }
                _ => {}
            }
        }
    }

    /// Looks at every worker again, for repeats.
    pub(crate) fn note_all(&mut self, state: &State) {
        self.touched.extend(state.workers().keys());
    }

    /// Sends what the noted workers are owed.
    pub(crate) async fn flush(&mut self, state: &State) {
        for worker in std::mem::take(&mut self.touched) {
            let owed = outstanding_for(state, worker);
            let sent = self.sent.entry(worker).or_default();
            sent.retain(|known, _| owed.iter().any(|effect| effect.owed == *known));
            for effect in owed {
                if sent.get(&effect.owed).is_some_and(|at| at.elapsed() < REPEAT) {
                    continue;
                }
                sent.insert(effect.owed, Instant::now());
                if let Some(message) = message(state, effect, |job, id| (self.mint_token)(job, id))
                {
                    metrics::delivered();
                    if self.out.send((worker, message)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Forgets everything: the state was replaced.
    pub(crate) fn reset(&mut self, state: &State) {
        self.sent.clear();
        self.note_all(state);
    }
}
