//! Everything that wakes the scheduler, in one bounded channel.

use std::time::Duration;

use futures_util::StreamExt;
use gradient_log::jetstream::{Beat, Broker, Query};
use gradient_log::{Inbox, Received};
use gradient_runtime::shutdown::CancellationToken;
use tokio::sync::mpsc;

/// Most inputs that one turn takes.
pub(crate) const BATCH_MAX: usize = 1_024;
/// Most inputs that wait; more stay in their streams.
const WAITING_MAX: usize = 4_096;
/// Time between ticks (protocol page, Entries).
const TICK: Duration = Duration::from_secs(5);
/// Ticks between sweeps.
const SWEEP_TICKS: u64 = 12;
/// Pause before a reader tries again.
const RETRY: Duration = Duration::from_millis(250);

/// Something that wakes the scheduler.
#[derive(Debug)]
pub(crate) enum Incoming {
    Received(Received),
    Beat(Beat),
    Query(Query),
    Tick,
    Sweep,
}

/// Starts the readers. Each goes on by itself after an interruption; all end with `stop`.
pub(crate) async fn start(
    broker: &Broker,
    first_command: u64,
    stop: CancellationToken,
) -> anyhow::Result<mpsc::Receiver<Incoming>> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let mut queries = broker.queries().listen().await?;
    let asked = sender.clone();
    tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        while let Some(query) = queries.next().await {
            if asked.send(Incoming::Query(query)).await.is_err() {
                return;
            }
        }
    }));
    tokio::spawn(stop.clone().run_until_cancelled_owned(commands(
        broker.clone(),
        first_command,
        sender.clone(),
    )));
    tokio::spawn(stop.clone().run_until_cancelled_owned(beats(broker.clone(), sender.clone())));
    tokio::spawn(stop.run_until_cancelled_owned(ticks(sender)));
    Ok(receiver)
}

async fn commands(broker: Broker, first: u64, sender: mpsc::Sender<Incoming>) {
    let mut next = first;
    loop {
        match broker.inbox().receive(next).await {
            Err(error) => tracing::warn!(%error, "COMMANDS cannot be read; trying again"),
            Ok(mut messages) => {
                while let Some(message) = messages.next().await {
                    match message {
                        Ok(received) => {
                            next = received.sequence + 1;
                            if sender.send(Incoming::Received(received)).await.is_err() {
                                return;
                            }
                        }
                        Err(error) => {
                            tracing::debug!(%error, "reading COMMANDS was interrupted");
                            break;
                        }
                    }
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn beats(broker: Broker, sender: mpsc::Sender<Incoming>) {
    loop {
        match broker.heartbeats().receive().await {
            Err(error) => tracing::warn!(%error, "HEARTBEATS cannot be read; trying again"),
            Ok(mut beats) => {
                while let Some(Ok(beat)) = beats.next().await {
                    if sender.send(Incoming::Beat(beat)).await.is_err() {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn ticks(sender: mpsc::Sender<Incoming>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 1.. {
        interval.tick().await;
        let sweep = count % SWEEP_TICKS == 0;
        if sender.send(Incoming::Tick).await.is_err()
            || (sweep && sender.send(Incoming::Sweep).await.is_err())
        {
            return;
        }
    }
}
