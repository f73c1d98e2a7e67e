//! Rebuild: all tables anew from the log, beside the old ones, then switched in one transaction.

use std::time::Duration;

use deadpool_postgres::{Object, Transaction};
use gradient_log::{EventLog, LogIdentity, ReadError};

use crate::batch::{ProjectorSettings, collect, write};
use crate::checkpoint::{self, Checkpoint};
use crate::database::{Database, DatabaseError, SCHEMA};

/// Where the new tables grow.
const FRESH: &str = "gradient_rebuild";
/// Where the old ones are on their way out.
const OLD: &str = "gradient_old";
/// Who rebuilds holds this advisory lock.
const LOCK: i64 = 0x6772_6164_0002;
/// Larger transactions than those of a projector: nobody waits for a row.
const SETTINGS: ProjectorSettings =
    ProjectorSettings { entries_max: 5_000, wait: Duration::from_millis(5) };

/// How far a rebuild is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Messages applied.
    pub position: u64,
    /// Messages in the log.
    pub target: u64,
    /// Entries applied.
    pub entries: u64,
}

/// Why a rebuild did not happen. The old tables are as they were.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// Another rebuild is under way.
    #[error("another rebuild of this database is under way")]
    Busy,
    /// The log cannot be read.
    #[error("the log cannot be read after message {position}")]
    Log {
        /// How far it was.
        position: u64,
        /// What happened.
        #[source]
        source: ReadError,
    },
    /// Somebody else wrote into the tables under construction.
    #[error("the tables under construction were changed by somebody else at message {position}")]
    Disturbed {
        /// How far it was.
        position: u64,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<tokio_postgres::Error> for RebuildError {
    fn from(error: tokio_postgres::Error) -> Self {
        RebuildError::Database(error.into())
    }
}

/// Folds the whole log into fresh tables and puts them in the place of the old ones, which are
/// dropped. A projector may run meanwhile: its next transaction finds the new checkpoint. Tables of
/// another log are replaced, too. Returns the position of the new tables.
///
/// # Errors
/// If log or database fail; the old tables stay.
pub async fn rebuild(
    log: &impl EventLog,
    database: &Database,
    mut progress: impl FnMut(RebuildProgress) + Send,
) -> Result<u64, RebuildError> {
    // Out of the pool: the lock ends with the connection, whatever becomes of this call.
    let lock = Object::take(database.client().await?);
    let row = lock.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Err(RebuildError::Busy);
    }
    let rebuilt = Building::run(log, database, &mut progress).await;
    // The server may notice the end of the connection only later; the next rebuild need not wait for it.
    if let Err(error) = lock.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await {
        tracing::debug!(%error, "the lock ends with its connection");
    }
    rebuilt
}

struct Building<'a, L, F> {
    log: &'a L,
    fresh: Database,
    checkpoint: Checkpoint,
    entries: u64,
    progress: &'a mut F,
}

impl<L: EventLog, F: FnMut(RebuildProgress)> Building<'_, L, F> {
    async fn run(log: &L, database: &Database, progress: &mut F) -> Result<u64, RebuildError> {
        let mut client = database.client().await?;
        database.create_schema(&client).await?;
        client.batch_execute(&format!("DROP SCHEMA IF EXISTS {FRESH} CASCADE")).await?;
        let fresh = database.beside(FRESH)?;
        fresh.migrate().await?;
        let read = |source| RebuildError::Log { position: 0, source };
        let identity = log.identity().await.map_err(read)?;
        let checkpoint = checkpoint::load(&**fresh.client().await?, &identity).await?;
        let mut building = Building { log, fresh, checkpoint, entries: 0, progress };
        // What came while the bulk was folded is folded before the switch, to keep that one short.
        for _ in 0..3 {
            let target = building.log.last_sequence().await.map_err(read)?;
            building.fold_to(target).await?;
        }
        let transaction = client.transaction().await?;
        building.overtake(&transaction, &identity).await?;
        let switch = format!(
            "DROP SCHEMA IF EXISTS {OLD} CASCADE; \
             ALTER SCHEMA {SCHEMA} RENAME TO {OLD}; \
             ALTER SCHEMA {FRESH} RENAME TO {SCHEMA}; \
             DROP SCHEMA {OLD} CASCADE"
        );
        transaction.batch_execute(&switch).await?;
        transaction.commit().await?;
        Ok(building.checkpoint.sequence)
    }

    /// Stops projectors for the rest of the transaction, and comes to where the tables are that
    /// readers see: they never see them go back. Tables of another build or log are no measure.
    async fn overtake(
        &mut self,
        transaction: &Transaction<'_>,
        identity: &LogIdentity,
    ) -> Result<(), RebuildError> {
        let name = format!("{SCHEMA}.projection_checkpoint");
        let row = transaction.query_one("SELECT to_regclass($1)::text", &[&name]).await?;
        if row.try_get::<_, Option<String>>(0)?.is_none() {
            return Ok(());
        }
        transaction.batch_execute(&format!("LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")).await?;
        let shown = checkpoint::load(&**transaction, identity).await?;
        if shown.log == *identity {
            self.fold_to(shown.sequence).await?;
        }
        Ok(())
    }

    async fn fold_to(&mut self, target: u64) -> Result<(), RebuildError> {
        if self.checkpoint.sequence >= target {
            return Ok(());
        }
        let position = self.checkpoint.sequence;
        let read = move |source| RebuildError::Log { position, source };
        let mut messages = self.log.read(position + 1).await.map_err(read)?;
        while self.checkpoint.sequence < target {
            let batch = collect(&mut messages, SETTINGS).await;
            let position = self.checkpoint.sequence;
            if let Some(mut found) = batch.found {
                found.retain(|message| message.sequence <= target);
                let entries: usize = found.iter().map(|message| message.batch.entries.len()).sum();
                let applied = write(&self.fresh, &self.checkpoint, found).await?;
                self.checkpoint.sequence = applied.ok_or(RebuildError::Disturbed { position })?;
                self.entries += entries as u64;
                (self.progress)(RebuildProgress {
                    position: self.checkpoint.sequence,
                    target,
                    entries: self.entries,
                });
            }
            if let Some(source) = batch.error
                && self.checkpoint.sequence < target
            {
                return Err(RebuildError::Log { position: self.checkpoint.sequence, source });
            }
        }
        Ok(())
    }
}
