//! One transaction of the projector: messages in, rows and checkpoint out.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

use deadpool_postgres::Transaction;
use futures_util::StreamExt;
use gradient_log::{Appended, BoxStream, ReadError};
use gradient_projections::{Position, project};
use tokio_postgres::types::ToSql;

use crate::apply::{self, Statement};
use crate::checkpoint::{self, Checkpoint};
use crate::database::{Database, DatabaseError};
use crate::metrics;
use crate::plan::Plan;

/// Most statements under way on the connection.
const WINDOW: usize = 64;

/// How much goes into one transaction.
#[derive(Clone, Copy, Debug)]
pub struct ProjectorSettings {
    /// Most entries; a message of the log is never split.
    pub entries_max: usize,
    /// How long to wait for more once there is one.
    pub wait: Duration,
}

impl Default for ProjectorSettings {
    fn default() -> Self {
        Self { entries_max: 500, wait: Duration::from_millis(5) }
    }
}

/// Messages for one transaction, and what stopped the reading if something did.
pub(crate) struct Batch {
    pub(crate) found: Option<Vec<Appended>>,
    pub(crate) error: Option<ReadError>,
}

/// The next messages: waits for the first one, then takes what comes soon.
pub(crate) async fn collect(
    messages: &mut BoxStream<Result<Appended, ReadError>>,
    settings: ProjectorSettings,
) -> Batch {
    let mut found: Vec<Appended> = Vec::new();
    let mut entries = 0;
    let mut deadline = None;
    let mut error = None;
    while entries < settings.entries_max {
        let next = match deadline {
            None => messages.next().await,
            Some(deadline) => match tokio::time::timeout_at(deadline, messages.next()).await {
                Ok(next) => next,
                Err(_) => break,
            },
        };
        match next {
            Some(Ok(message)) => {
                entries += message.batch.entries.len();
                found.push(message);
            }
            Some(Err(failure)) => error = Some(failure),
            None => error = Some(ReadError::Transport("the log ended".into())),
        }
        if error.is_some() {
            break;
        }
        deadline = deadline.or_else(|| Some(tokio::time::Instant::now() + settings.wait));
    }
    Batch { found: (!found.is_empty()).then_some(found), error }
}

/// Applies messages and moves the checkpoint, in one transaction. `None`: the fence held, and nothing
/// was changed.
pub(crate) async fn write(
    database: &Database,
    from: &Checkpoint,
    messages: Vec<Appended>,
) -> Result<Option<u64>, DatabaseError> {
    let started = Instant::now();
    let to = messages.last().map_or(from.sequence, |message| message.sequence);
    let entries = messages.iter().map(|message| message.batch.entries.len()).sum();
    let mut plan = Plan::default();
    for Appended { sequence, batch } in &messages {
        for (index, entry) in (0u32..).zip(&batch.entries) {
            let changes = project(entry, Position { sequence: *sequence, index });
            changes.into_iter().for_each(|change| plan.push(change));
        }
    }
    let mut client = database.client().await?;
    let transaction = client.transaction().await?;
    if !checkpoint::advance(&*transaction, from, to).await? {
        transaction.rollback().await?;
        return Ok(None);
    }
    let statements: Vec<Statement> = plan.finish().iter().flat_map(apply::statements).collect();
    for window in statements.chunks(WINDOW) {
        run(&transaction, window).await?;
    }
    transaction.commit().await?;
    metrics::applied(entries, to, started.elapsed().as_secs_f64());
    Ok(Some(to))
}

/// Runs statements one after the other without waiting for each answer: the server works in the order
/// of arrival, so all are sent first and heard afterwards.
async fn run(
    transaction: &Transaction<'_>,
    statements: &[Statement],
) -> Result<(), tokio_postgres::Error> {
    let mut prepared = Vec::with_capacity(statements.len());
    for statement in statements {
        let columns: Vec<&(dyn ToSql + Sync)> =
            statement.columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
        prepared.push((transaction.prepare_cached(statement.sql).await?, columns));
    }
    let mut running = Vec::with_capacity(prepared.len());
    for (statement, columns) in &prepared {
        let mut answer = Box::pin(transaction.execute(statement, columns));
        // The first look at it sends it.
        let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        match first {
            Poll::Ready(done) => drop(done?),
            Poll::Pending => running.push(answer),
        }
    }
    for answer in running {
        answer.await?;
    }
    Ok(())
}
