//! Everything that wakes the scheduler, in one bounded channel.

use std::time::Duration;

use futures_util::StreamExt;
use gradient_log::jetstream::{Beat, Broker, Query, StreamLimits};
use gradient_log::{Inbox, ReadError, Received};
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
    /// COMMANDS was made anew: its sequences start over.
    CommandsRestarted,
    Tick,
    Sweep,
}

/// Starts the readers. Each goes on by itself after an interruption; all end with `stop`.
pub(crate) async fn start(
    broker: &Broker,
    first_command: u64,
    streams: StreamLimits,
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
        streams,
        sender.clone(),
    )));
    tokio::spawn(stop.clone().run_until_cancelled_owned(beats(broker.clone(), sender.clone())));
    tokio::spawn(stop.run_until_cancelled_owned(ticks(sender)));
    Ok(receiver)
}

async fn commands(
    broker: Broker,
    first: u64,
    streams: StreamLimits,
    sender: mpsc::Sender<Incoming>,
) {
    let mut next = first;
    loop {
        let read = read_commands(&broker, &mut next, &sender).await;
        match read {
            Ok(Read::Closed) => return,
            Ok(Read::Interrupted) => tracing::debug!("reading COMMANDS was interrupted"),
            Err(error) => {
                tracing::warn!(%error, "COMMANDS cannot be read; trying again");
                // Deleted streams are made again; workers say hello when they miss deliveries.
                if let Err(error) = broker.ensure_streams(&streams).await {
                    tracing::debug!(%error, "the streams cannot be made");
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

enum Read {
    Interrupted,
    Closed,
}

async fn read_commands(
    broker: &Broker,
    next: &mut u64,
    sender: &mpsc::Sender<Incoming>,
) -> Result<Read, ReadError> {
    let inbox = broker.inbox();
    if inbox.last_sequence().await? + 1 < *next {
        tracing::warn!("COMMANDS was made anew; reading it from its start");
        *next = 1;
        if sender.send(Incoming::CommandsRestarted).await.is_err() {
            return Ok(Read::Closed);
        }
    }
    let mut messages = inbox.receive(*next).await?;
    while let Some(message) = messages.next().await {
        let Ok(received) = message else { return Ok(Read::Interrupted) };
        *next = received.sequence + 1;
        if sender.send(Incoming::Received(received)).await.is_err() {
            return Ok(Read::Closed);
        }
    }
    Ok(Read::Interrupted)
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
