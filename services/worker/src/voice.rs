//! What the worker says: one queue, in order, each message sent until the inbox has it.

use std::time::Duration;

use gradient_domain::{SessionId, WorkerId};
use gradient_events::{Envelope, FromWorker, Wire, WorkerMessage, subject};
use gradient_log::jetstream::Broker;
use gradient_log::{Inbox, SendError};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::outbox::{Outbox, ended};

/// Most messages that wait to be sent; whoever reports more waits.
const WAITING_MAX: usize = 256;
/// First and longest pause before a message is sent again.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

enum Item {
    Say(WorkerMessage),
    Flush(oneshot::Sender<()>),
}

/// Speaks for the worker. Clones speak through the same queue.
#[derive(Clone, Debug)]
pub struct Voice {
    queue: mpsc::Sender<Item>,
    session: SessionId,
    outbox: Outbox,
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Item::Say(message) => f.debug_tuple("Say").field(message).finish(),
            Item::Flush(_) => f.write_str("Flush"),
        }
    }
}

impl Voice {
    /// Starts the queue of a session.
    #[must_use]
    pub fn start(broker: &Broker, worker: WorkerId, session: SessionId, outbox: Outbox) -> Self {
        let (queue, mut items) = mpsc::channel(WAITING_MAX);
        let (inbox, kept) = (broker.inbox(), outbox.clone());
        tokio::spawn(async move {
            let subject = subject::command(worker);
            while let Some(item) = items.recv().await {
                match item {
                    Item::Say(message) => {
                        let end = ended(&message);
                        send(&inbox, &subject, FromWorker { session, message }).await;
                        if let Some(end) = end {
                            kept.forget(end.assignment);
                        }
                    }
                    Item::Flush(done) => drop(done.send(())),
                }
            }
        });
        Self { queue, session, outbox }
    }

    /// Says something. An end is on disk before this returns.
    pub async fn say(&self, message: WorkerMessage) {
        if let Some(end) = ended(&message) {
            let report = FromWorker { session: self.session, message: message.clone() };
            if let Err(error) = self.outbox.keep(end.assignment, &report) {
                tracing::error!(assignment = %end.assignment, %error, "a report cannot be kept on disk");
            }
        }
        if self.queue.send(Item::Say(message)).await.is_err() {
            tracing::error!("the worker's queue of messages is gone");
        }
    }

    /// Waits until everything said so far has arrived.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Item::Flush(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

async fn send(inbox: &impl Inbox, subject: &str, message: FromWorker) {
    let body = message.to_body();
    let envelope = Envelope::of::<FromWorker>(Uuid::now_v7(), &body, None);
    let (mut pause, longest) = RETRY;
    loop {
        match inbox.send(subject.to_owned(), envelope.clone(), body.clone()).await {
            Ok(()) => return,
            Err(SendError::TooLarge { bytes, limit }) => {
                tracing::error!(
                    bytes,
                    limit,
                    "a message is too large and cannot be sent: a fault of ours"
                );
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "a message was not acknowledged; sending it again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    }
}
