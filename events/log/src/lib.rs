//! Ports to the log and the inbox, an in-memory pair of them, and JetStream.
//!
//! Layer: the only crate that knows NATS; it knows neither Postgres nor the scheduler. One contract
//! suite ([`contract`]) runs against every implementation, so that the simulator's log is honest.

pub mod contract;
pub mod jetstream;
pub mod memory;

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use gradient_events::{DecodeError, EntryBatch, Envelope};
use uuid::Uuid;

/// A stream of results that a task may own.
pub type BoxStream<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// Which log this is. A checkpoint or snapshot of another one is refused: sequences of a recreated
/// stream would be taken for those of the old (protocol page, Snapshots).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// Name of the stream.
    pub stream: String,
    /// When it was created, nanoseconds since the epoch.
    pub created_ns: i64,
}

/// One appended message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its sequence.
    pub sequence: u64,
    /// Its entries.
    pub batch: EntryBatch,
}

/// Why an append did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Somebody else appended first: the lost race.
    #[error("another writer appended after sequence {expected}")]
    Conflict {
        /// The sequence that was expected to be the last.
        expected: u64,
    },
    /// The message is larger than the log takes.
    #[error("a message of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The log did not take it; it is not in the log.
    #[error("the log refused the append")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It could not be found out whether it is in the log.
    #[error("the log did not answer; whether the append happened is unknown")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why reading stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A message that this build cannot believe.
    #[error("message {sequence} cannot be read")]
    Decode {
        /// Its sequence.
        sequence: u64,
        /// What is wrong with it.
        #[source]
        source: DecodeError,
    },
    /// The log starts after the position wanted: what was in between is gone.
    #[error("the log starts at {first}, wanted was {wanted}")]
    Gone {
        /// The first sequence that is left.
        first: u64,
        /// The sequence wanted.
        wanted: u64,
    },
    /// The connection or the server failed; reading may be tried again.
    #[error("reading was interrupted")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The log: one total order, appended under an expected last sequence.
pub trait EventLog: Clone + Send + Sync + 'static {
    /// Which log this is.
    fn identity(&self) -> impl Future<Output = Result<LogIdentity, ReadError>> + Send;

    /// Sequence of the newest message, 0 if there is none.
    fn last_sequence(&self) -> impl Future<Output = Result<u64, ReadError>> + Send;

    /// Appends one message if `expected_last` is still the newest. The append is the claim.
    ///
    /// `id` is the same on every retry of the same message.
    fn append(
        &self,
        expected_last: u64,
        id: Uuid,
        batch: &EntryBatch,
    ) -> impl Future<Output = Result<u64, AppendError>> + Send;

    /// All messages from `first` on, and then those to come; ends only with an error.
    fn read(
        &self,
        first: u64,
    ) -> impl Future<Output = Result<BoxStream<Result<Appended, ReadError>>, ReadError>> + Send;
}

/// A message as it lies in the inbox, not decoded yet.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its sequence.
    pub sequence: u64,
    /// Its subject: who may have sent it.
    pub subject: String,
    /// Its headers, or what is wrong with them.
    pub envelope: Result<Envelope, DecodeError>,
    /// Its body.
    pub body: Bytes,
}

/// Why a message could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The message is larger than the inbox takes.
    #[error("a message of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// It is not known to have arrived; sending the same id again is safe.
    #[error("the message was not acknowledged")]
    Unacknowledged(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Where everything that asks the scheduler for something arrives, in one order.
pub trait Inbox: Clone + Send + Sync + 'static {
    /// Puts a message in. The same id within two minutes is taken once.
    fn send(
        &self,
        subject: String,
        envelope: Envelope,
        body: Vec<u8>,
    ) -> impl Future<Output = Result<(), SendError>> + Send;

    /// All messages from `first` on that are still there, and then those to come.
    fn receive(
        &self,
        first: u64,
    ) -> impl Future<Output = Result<BoxStream<Result<Received, ReadError>>, ReadError>> + Send;
}

/// Refuses what is over the limit of every NATS message of ours.
pub(crate) fn oversize(body: &[u8]) -> Option<(usize, usize)> {
    let limit = gradient_events::MESSAGE_BYTES_MAX - HEADER_BYTES_MAX;
    (body.len() > limit).then_some((body.len(), limit))
}

/// Room for the headers in a message, in bytes.
pub const HEADER_BYTES_MAX: usize = 1024;
