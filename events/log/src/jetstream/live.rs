//! What a worker hears: a core subscription to the republished deliveries, with exact detection of
//! gaps (protocol page, Streams: DELIVERIES).

use async_nats::{Client, Subscriber};
use futures_util::StreamExt;
use gradient_domain::WorkerId;
use gradient_events::{DecodeError, ServerMessage, subject};

use super::from_headers;

/// Something heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveEvent {
    /// A delivery.
    Message(ServerMessage),
    /// Deliveries in between were lost: say hello again.
    Gap,
    /// A delivery that this build cannot read.
    Unreadable(DecodeError),
}

/// The subscription of one worker.
#[derive(Debug)]
pub struct Live {
    subscriber: Subscriber,
    last_sequence: Option<u64>,
    waiting: Option<LiveEvent>,
}

impl Live {
    pub(super) async fn subscribe(
        client: &Client,
        worker: WorkerId,
    ) -> Result<Self, async_nats::SubscribeError> {
        let subscriber = client.subscribe(subject::live(worker)).await?;
        // The subscription counts once the server has it: what is sent next must be heard.
        if let Err(error) = client.flush().await {
            tracing::debug!(%error, "flush after subscribing");
        }
        Ok(Self { subscriber, last_sequence: None, waiting: None })
    }

    /// The next thing heard; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<LiveEvent> {
        if let Some(event) = self.waiting.take() {
            return Some(event);
        }
        loop {
            let message = self.subscriber.next().await?;
            let number = |name: &str| {
                message
                    .headers
                    .as_ref()
                    .and_then(|h| h.get(name))
                    .and_then(|v| v.as_str().parse::<u64>().ok())
            };
            // Without these headers it was not republished by the stream: anybody may have sent it.
            let (Some(sequence), Some(previous)) =
                (number("Nats-Sequence"), number("Nats-Last-Sequence"))
            else {
                tracing::warn!(
                    "a message on the live subject that no stream republished is ignored"
                );
                continue;
            };
            let gap = self.last_sequence.is_some_and(|last| last != previous);
            if self.last_sequence.is_some_and(|last| sequence <= last) {
                continue;
            }
            self.last_sequence = Some(sequence);
            let decoded = from_headers(message.headers.as_ref())
                .and_then(|envelope| envelope.decode::<ServerMessage>(&message.payload));
            let event = decoded.map_or_else(LiveEvent::Unreadable, LiveEvent::Message);
            if gap {
                self.waiting = Some(event);
                return Some(LiveEvent::Gap);
            }
            return Some(event);
        }
    }
}
