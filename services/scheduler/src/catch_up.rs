//! Reading the log up to its end.

use futures_util::StreamExt;
use gradient_log::{Appended, EventLog, ReadError};
use gradient_scheduler_core::{State, evolve};

/// Folds everything after `sequence`; answers with the sequence that is folded then.
pub(crate) async fn catch_up<L: EventLog>(
    log: &L,
    state: &mut State,
    sequence: u64,
) -> Result<u64, ReadError> {
    let last = log.last_sequence().await?;
    let mut folded = sequence;
    if last <= folded {
        return Ok(folded);
    }
    let mut messages = log.read(folded + 1).await?;
    while folded < last {
        let Some(message) = messages.next().await else { break };
        let Appended { sequence, batch } = message?;
        for entry in &batch.entries {
            evolve(state, entry);
        }
        folded = sequence;
    }
    Ok(folded)
}
