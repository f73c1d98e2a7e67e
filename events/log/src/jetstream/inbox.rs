//! COMMANDS as the inbox.

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;
use gradient_events::{Envelope, subject};

use super::log::ordered;
use super::{from_headers, to_headers};
use crate::{BoxStream, Inbox, ReadError, Received, SendError, oversize};

/// The stream COMMANDS.
#[derive(Clone, Debug)]
pub struct CommandInbox {
    context: Context,
}

impl CommandInbox {
    pub(super) fn new(context: Context) -> Self {
        Self { context }
    }
}

impl CommandInbox {
    /// Sequence of the newest message ever, 0 if there was none.
    ///
    /// # Errors
    /// If the stream cannot be read.
    pub async fn last_sequence(&self) -> Result<u64, ReadError> {
        let stream = self.context.get_stream(subject::COMMANDS).await;
        let stream = stream.map_err(|error| ReadError::Transport(error.into()))?;
        Ok(stream.cached_info().state.last_sequence)
    }
}

impl Inbox for CommandInbox {
    async fn send(
        &self,
        subject: String,
        envelope: Envelope,
        body: Vec<u8>,
    ) -> Result<(), SendError> {
        if let Some((bytes, limit)) = oversize(&body) {
            return Err(SendError::TooLarge { bytes, limit });
        }
        let message = PublishMessage::build()
            .headers(to_headers(&envelope))
            .payload(body.into())
            .message_id(envelope.id.to_string())
            .expected_stream(subject::COMMANDS);
        let sent = self.context.send_publish(subject, message).await;
        let answer = match sent {
            Ok(answer) => answer.await,
            Err(error) => Err(error),
        };
        answer.map(|_| ()).map_err(|error| SendError::Unacknowledged(error.into()))
    }

    async fn receive(
        &self,
        first: u64,
    ) -> Result<BoxStream<Result<Received, ReadError>>, ReadError> {
        let stream = self.context.get_stream(subject::COMMANDS).await;
        let stream = stream.map_err(|error| ReadError::Transport(error.into()))?;
        let messages = ordered(&stream, first.max(1)).await?;
        Ok(Box::pin(messages.map(|message| {
            let message = message?;
            let sequence = message.info().map_err(ReadError::Transport)?.stream_sequence;
            Ok(Received {
                sequence,
                subject: message.subject.to_string(),
                envelope: from_headers(message.headers.as_ref()),
                body: message.payload.clone(),
            })
        })))
    }
}
