//! Log and inbox in memory: for tests and the simulator, with the semantics of the contract suite.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream;
use gradient_events::{EntryBatch, Envelope, Wire};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    AppendError, Appended, BoxStream, EventLog, Inbox, LogIdentity, ReadError, Received, SendError,
    oversize,
};

/// Messages in order, with a bell for readers that wait for more.
#[derive(Debug)]
struct Sequence<T> {
    messages: Mutex<Vec<T>>,
    bell: Notify,
}

impl<T> Default for Sequence<T> {
    fn default() -> Self {
        Self { messages: Mutex::new(Vec::new()), bell: Notify::new() }
    }
}

impl<T: Clone + Send + Sync + 'static> Sequence<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message at `index`, as soon as it is there.
    async fn at(&self, index: usize) -> T {
        loop {
            let rung = self.bell.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            if let Some(message) = self.lock().get(index) {
                return message.clone();
            }
            rung.await;
        }
    }
}

/// A log in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    messages: Arc<Sequence<(Uuid, Bytes)>>,
}

impl EventLog for MemoryLog {
    async fn identity(&self) -> Result<LogIdentity, ReadError> {
        Ok(LogIdentity { stream: "memory".into(), created_ns: 0 })
    }

    async fn last_sequence(&self) -> Result<u64, ReadError> {
        Ok(self.messages.lock().len() as u64)
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
        let mut messages = self.messages.lock();
        let last = messages.len() as u64;
        if last != expected_last {
            let own = messages.last().is_some_and(|(newest, _)| *newest == id);
            return if own {
                Ok(last)
            } else {
                Err(AppendError::Conflict { expected: expected_last })
            };
        }
        messages.push((id, body.into()));
        drop(messages);
        self.messages.bell.notify_waiters();
        Ok(last + 1)
    }

    async fn read(&self, first: u64) -> Result<BoxStream<Result<Appended, ReadError>>, ReadError> {
        let messages = self.messages.clone();
        let first = first.max(1);
        Ok(Box::pin(stream::unfold(first, move |sequence| {
            let messages = messages.clone();
            async move {
                let index = usize::try_from(sequence - 1).ok()?;
                let (_, body) = messages.at(index).await;
                let batch = EntryBatch::from_body(EntryBatch::SCHEMA, &body)
                    .map_err(|source| ReadError::Decode { sequence, source });
                Some((batch.map(|batch| Appended { sequence, batch }), sequence + 1))
            }
        })))
    }
}

/// An inbox in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryInbox {
    messages: Arc<Sequence<Received>>,
}

impl Inbox for MemoryInbox {
    async fn send(
        &self,
        subject: String,
        envelope: Envelope,
        body: Vec<u8>,
    ) -> Result<(), SendError> {
        if let Some((bytes, limit)) = oversize(&body) {
            return Err(SendError::TooLarge { bytes, limit });
        }
        let mut messages = self.messages.lock();
        let is_repeat = messages
            .iter()
            .any(|known| known.envelope.as_ref().is_ok_and(|known| known.id == envelope.id));
        if !is_repeat {
            let sequence = messages.len() as u64 + 1;
            messages.push(Received {
                sequence,
                subject,
                envelope: Ok(envelope),
                body: body.into(),
            });
        }
        drop(messages);
        self.messages.bell.notify_waiters();
        Ok(())
    }

    async fn receive(
        &self,
        first: u64,
    ) -> Result<BoxStream<Result<Received, ReadError>>, ReadError> {
        let messages = self.messages.clone();
        Ok(Box::pin(stream::unfold(first.max(1), move |sequence| {
            let messages = messages.clone();
            async move {
                let index = usize::try_from(sequence - 1).ok()?;
                Some((Ok(messages.at(index).await), sequence + 1))
            }
        })))
    }
}
