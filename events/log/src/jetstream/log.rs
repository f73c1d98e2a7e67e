//! EVENTS as the log.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context, ErrorCode};
use futures_util::StreamExt;
use gradient_events::{EntryBatch, Envelope, Wire, subject};
use uuid::Uuid;

use super::{from_headers, to_headers};
use crate::{AppendError, Appended, BoxStream, EventLog, LogIdentity, ReadError, oversize};

/// Tries to find out what became of an append whose answer was lost.
const CONFIRM_TRIES: usize = 5;

/// The stream EVENTS.
#[derive(Clone, Debug)]
pub struct JetStreamLog {
    context: Context,
}

impl JetStreamLog {
    pub(super) fn new(context: Context) -> Self {
        Self { context }
    }

    async fn stream(&self) -> Result<jetstream::stream::Stream, ReadError> {
        self.context
            .get_stream(subject::EVENTS)
            .await
            .map_err(|error| ReadError::Transport(error.into()))
    }

    /// Asks the leader for the newest message: was it ours? (protocol page, Appending)
    async fn confirm(
        &self,
        expected_last: u64,
        id: Uuid,
        error: PublishError,
    ) -> Result<u64, AppendError> {
        for _ in 0..CONFIRM_TRIES {
            if let Ok(stream) = self.stream().await {
                match stream.get_last_raw_message_by_subject(subject::EVENT).await {
                    Ok(newest) => {
                        let is_ours = from_headers(Some(&newest.headers)).is_ok_and(|e| e.id == id);
                        return match (is_ours, newest.sequence > expected_last) {
                            (true, _) => Ok(newest.sequence),
                            (false, true) => Err(AppendError::Conflict { expected: expected_last }),
                            (false, false) => Err(AppendError::Refused(error.into())),
                        };
                    }
                    Err(lookup)
                        if lookup.kind()
                            == jetstream::stream::LastRawMessageErrorKind::NoMessageFound =>
                    {
                        return Err(AppendError::Refused(error.into()));
                    }
                    Err(_) => {}
                }
            }
            tokio::time::sleep(super::RETRY).await;
        }
        Err(AppendError::Unknown(error.into()))
    }
}

/// The two codes of a lost race; the client's own kind knows only one of them.
fn is_conflict(error: &PublishError) -> bool {
    let code = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<jetstream::Error>())
        .map(jetstream::Error::error_code);
    error.kind() == PublishErrorKind::WrongLastSequence
        || code.is_some_and(|code| {
            code == ErrorCode::STREAM_WRONG_LAST_SEQUENCE
                || code == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
        })
}

impl EventLog for JetStreamLog {
    async fn identity(&self) -> Result<LogIdentity, ReadError> {
        let stream = self.stream().await?;
        let info = stream.cached_info();
        let created_ns = i64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(i64::MAX);
        Ok(LogIdentity { stream: info.config.name.clone(), created_ns })
    }

    async fn last_sequence(&self) -> Result<u64, ReadError> {
        Ok(self.stream().await?.cached_info().state.last_sequence)
    }

    async fn append(
        &self,
        expected_last: u64,
        id: Uuid,
        batch: &EntryBatch,
    ) -> Result<u64, AppendError> {
        let body = batch.to_body();
        if let Some((bytes, limit)) = oversize(&body) {
            return Err(AppendError::TooLarge { bytes, limit });
        }
        let envelope = Envelope::of::<EntryBatch>(id, &body, None);
        let message = PublishMessage::build()
            .headers(to_headers(&envelope))
            .payload(body.into())
            .expected_stream(subject::EVENTS)
            .expected_last_sequence(expected_last);
        let sent = self.context.send_publish(subject::EVENT, message).await;
        let answer = match sent {
            Ok(answer) => answer.await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(ack) => Ok(ack.sequence),
            Err(error) if is_conflict(&error) || error.kind() == PublishErrorKind::TimedOut => {
                self.confirm(expected_last, id, error).await
            }
            Err(error) => match error.kind() {
                PublishErrorKind::BrokenPipe => self.confirm(expected_last, id, error).await,
                _ => Err(AppendError::Refused(error.into())),
            },
        }
    }

    async fn read(&self, first: u64) -> Result<BoxStream<Result<Appended, ReadError>>, ReadError> {
        let first = first.max(1);
        let stream = self.stream().await?;
        let state = &stream.cached_info().state;
        if state.first_sequence > first {
            return Err(ReadError::Gone { first: state.first_sequence, wanted: first });
        }
        let messages = ordered(&stream, first).await?;
        Ok(Box::pin(messages.map(|message| {
            let message = message?;
            let sequence = message.info().map_err(ReadError::Transport)?.stream_sequence;
            let decoded = from_headers(message.headers.as_ref())
                .and_then(|envelope| envelope.decode::<EntryBatch>(&message.payload));
            let batch = decoded.map_err(|source| ReadError::Decode { sequence, source })?;
            Ok(Appended { sequence, batch })
        })))
    }
}

/// Messages of a stream in order from `first` on, without acknowledgements.
pub(super) async fn ordered(
    stream: &jetstream::stream::Stream,
    first: u64,
) -> Result<BoxStream<Result<jetstream::Message, ReadError>>, ReadError> {
    let transport = |error: Box<dyn std::error::Error + Send + Sync>| ReadError::Transport(error);
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: first },
        replay_policy: ReplayPolicy::Instant,
        max_expires: Duration::from_secs(30),
        ..OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(|error| transport(error.into()))?;
    let messages = consumer.messages().await.map_err(|error| transport(error.into()))?;
    Ok(Box::pin(
        messages.map(move |message| message.map_err(|error| ReadError::Transport(error.into()))),
    ))
}
