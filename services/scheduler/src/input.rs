//! From what arrives to what the core understands.

use gradient_events::{
    Cause, Command, DecodeError, FailureKind, FromWorker, Input, WorkerMessage, subject,
};
use gradient_log::Received;

/// Largest body whose entry, with what is decided of it, fits a message of the log for sure, in bytes.
const BODY_BYTES_MAX: usize = 288 * 1024;

/// An input that waits for its decision.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) cause: Cause,
    pub(crate) input: Input,
    /// Size of the body it came in, in bytes; a measure of the entry to come.
    pub(crate) bytes: usize,
    pub(crate) since: tokio::time::Instant,
}

impl Waiting {
    pub(crate) fn internal(input: Input) -> Self {
        Self { cause: Cause::Internal, input, bytes: 0, since: tokio::time::Instant::now() }
    }

    /// The input in a message. What cannot be believed is an input, too: its refusal is logged.
    pub(crate) fn received(received: &Received) -> Self {
        let input = decode(received).unwrap_or_else(|error| {
            tracing::warn!(subject = received.subject, %error, "a message in COMMANDS is refused");
            Input::Unreadable { subject: received.subject.clone(), reason: error.to_string() }
        });
        Self {
            cause: Cause::Command(received.sequence),
            input,
            bytes: received.body.len(),
            since: tokio::time::Instant::now(),
        }
    }

    /// Its sequence in COMMANDS, if it came from there.
    pub(crate) fn command_sequence(&self) -> Option<u64> {
        match self.cause {
            Cause::Command(sequence) => Some(sequence),
            Cause::Internal => None,
        }
    }
}

fn decode(received: &Received) -> Result<Input, DecodeError> {
    let envelope = received.envelope.as_ref().map_err(Clone::clone)?;
    match subject::worker_of(&received.subject) {
        Some(worker) => {
            let FromWorker { session, message } = envelope.decode(&received.body)?;
            let message = bounded(message, received.body.len());
            Ok(Input::Worker { worker, session, message })
        }
        None => Ok(Input::Command { command: envelope.decode::<Command>(&received.body)? }),
    }
}

/// A report that is too large for the log ends its job: what it would have said is lost, and without
/// it the job would look complete.
fn bounded(message: WorkerMessage, bytes: usize) -> WorkerMessage {
    match message {
        WorkerMessage::JobUpdate { job, assignment, .. } if bytes > BODY_BYTES_MAX => {
            let error = format!("a report of {bytes} bytes is over the limit of {BODY_BYTES_MAX}");
            let (kind, missing_paths, elapsed_ms) = (FailureKind::Permanent, Vec::new(), 0);
            WorkerMessage::JobFailed { job, assignment, kind, error, missing_paths, elapsed_ms }
        }
        message => message,
    }
}
