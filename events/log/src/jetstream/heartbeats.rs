//! HEARTBEATS: the newest figures of each worker.

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;
use gradient_domain::WorkerId;
use gradient_events::worker::Heartbeat;
use gradient_events::{Envelope, Wire, subject};
use uuid::Uuid;

use super::log::ordered;
use super::{from_headers, to_headers};
use crate::{BoxStream, ReadError, SendError};

/// A heartbeat that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Whose, by its subject.
    pub worker: WorkerId,
    /// What it says.
    pub heartbeat: Heartbeat,
}

/// The stream HEARTBEATS.
#[derive(Clone, Debug)]
pub struct Heartbeats {
    context: Context,
}

impl Heartbeats {
    pub(super) fn new(context: Context) -> Self {
        Self { context }
    }

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// If it was not acknowledged; the next one is as good.
    pub async fn send(&self, worker: WorkerId, heartbeat: &Heartbeat) -> Result<(), SendError> {
        let body = heartbeat.to_body();
        let envelope = Envelope::of::<Heartbeat>(Uuid::now_v7(), &body, None);
        let publish = PublishMessage::build().headers(to_headers(&envelope)).payload(body.into());
        let sent = self.context.send_publish(subject::heartbeat(worker), publish).await;
        let answer = match sent {
            Ok(answer) => answer.await,
            Err(error) => Err(error),
        };
        answer.map(|_| ()).map_err(|error| SendError::Unacknowledged(error.into()))
    }

    /// Heartbeats from now on, and the newest of each worker before. Unreadable ones are reported and
    /// passed over: they carry nothing but presence.
    ///
    /// # Errors
    /// If the stream cannot be read.
    pub async fn receive(&self) -> Result<BoxStream<Result<Beat, ReadError>>, ReadError> {
        let stream = self.context.get_stream(subject::HEARTBEATS).await;
        let stream = stream.map_err(|error| ReadError::Transport(error.into()))?;
        let messages = ordered(&stream, 1).await?;
        Ok(Box::pin(messages.filter_map(|message| async move {
            let message = match message {
                Ok(message) => message,
                Err(error) => return Some(Err(error)),
            };
            let worker = subject::worker_of(&message.subject)?;
            let decoded = from_headers(message.headers.as_ref())
                .and_then(|envelope| envelope.decode::<Heartbeat>(&message.payload));
            match decoded {
                Ok(heartbeat) => Some(Ok(Beat { worker, heartbeat })),
                Err(error) => {
                    tracing::warn!(%worker, %error, "unreadable heartbeat");
                    None
                }
            }
        })))
    }
}
