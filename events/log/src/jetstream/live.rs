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

/// Where the stream holds a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    sequence: u64,
    /// Sequence of the delivery before it on the same subject, 0 for the first.
    previous: u64,
}

/// How a delivery follows the last one heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    Next,
    /// Something in between is not known.
    AfterGap,
    Repeat,
}

/// A sequence that goes back belongs to a stream that was made anew.
fn follows(last: Option<Place>, heard: Place) -> Follows {
    match last {
        None => Follows::Next,
        Some(last) if last == heard => Follows::Repeat,
        Some(last) if heard.sequence > last.sequence && heard.previous == last.sequence => {
            Follows::Next
        }
        Some(_) => Follows::AfterGap,
    }
}

/// The subscription of one worker.
#[derive(Debug)]
pub struct Live {
    subscriber: Subscriber,
    last: Option<Place>,
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
        Ok(Self { subscriber, last: None, waiting: None })
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
            let place = Place { sequence, previous };
            let follows = follows(self.last, place);
            if follows == Follows::Repeat {
                continue;
            }
            self.last = Some(place);
            let decoded = from_headers(message.headers.as_ref())
                .and_then(|envelope| envelope.decode::<ServerMessage>(&message.payload));
            let event = decoded.map_or_else(LiveEvent::Unreadable, LiveEvent::Message);
            if follows == Follows::AfterGap {
                self.waiting = Some(event);
                return Some(LiveEvent::Gap);
            }
            return Some(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_repeats_and_streams_made_anew() {
        let place = |sequence, previous| Place { sequence, previous };
        let last = place(9, 7);
        for (last, heard, expected) in [
            (None, place(9, 7), Follows::Next),
            (Some(last), place(12, 9), Follows::Next),
            (Some(last), place(9, 7), Follows::Repeat),
            (Some(last), place(12, 11), Follows::AfterGap),
            (Some(last), place(1, 0), Follows::AfterGap),
            (Some(last), place(9, 0), Follows::AfterGap),
            (Some(last), place(12, 0), Follows::AfterGap),
            (Some(place(1, 0)), place(2, 1), Follows::Next),
        ] {
            assert_eq!(follows(last, heard), expected, "{heard:?} after {last:?}");
        }
    }
}
