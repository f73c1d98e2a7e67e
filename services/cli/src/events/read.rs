//! Reading the log from the command line.

use futures_util::StreamExt;
use gradient_events::{Entry, EntryBatch};
use gradient_log::{Appended, EventLog, ReadError};
use gradient_scheduler_core::State;

use crate::exit::{Code, Failure};

fn unreadable(error: ReadError) -> Failure {
    Failure::unavailable(anyhow::Error::from(error).context("the log cannot be read"))
}

/// Calls `each` with every entry from message `first` on; with `follow` it goes on for ever.
pub(super) async fn each(
    log: &impl EventLog,
    first: u64,
    follow: bool,
    mut each: impl FnMut(u64, usize, &Entry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let last = log.last_sequence().await.map_err(unreadable)?;
    let first = first.max(1);
    if !follow && last < first {
        return Ok(());
    }
    let mut messages = log.read(first).await.map_err(unreadable)?;
    while let Some(message) = messages.next().await {
        let Appended { sequence, batch } = message.map_err(unreadable)?;
        for (index, entry) in batch.entries.iter().enumerate() {
            each(sequence, index, entry)?;
        }
        if !follow && sequence >= last {
            break;
        }
    }
    Ok(())
}

/// One message.
pub(super) async fn message(log: &impl EventLog, sequence: u64) -> Result<EntryBatch, Failure> {
    let last = log.last_sequence().await.map_err(unreadable)?;
    if sequence == 0 || sequence > last {
        let error = anyhow::anyhow!("there is no message {sequence}; the log has 1 to {last}");
        return Err(Failure::new(Code::NotFound, error));
    }
    let mut messages = log.read(sequence).await.map_err(unreadable)?;
    match messages.next().await {
        Some(message) => Ok(message.map_err(unreadable)?.batch),
        None => Err(Failure::unavailable(anyhow::anyhow!("the log ended early"))),
    }
}

/// The state after message `sequence`.
pub(crate) async fn fold_to(log: &impl EventLog, sequence: u64) -> Result<State, Failure> {
    message(log, sequence).await?;
    let mut state = State::default();
    let mut messages = log.read(1).await.map_err(unreadable)?;
    while let Some(message) = messages.next().await {
        let appended = message.map_err(unreadable)?;
        for entry in &appended.batch.entries {
            super::fold(&mut state, entry);
        }
        if appended.sequence >= sequence {
            break;
        }
    }
    Ok(state)
}
