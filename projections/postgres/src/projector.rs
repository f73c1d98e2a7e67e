//! The projector: reads the log from its checkpoint on and keeps the tables.

use std::time::Duration;

use gradient_log::{EventLog, ReadError};
use gradient_runtime::causes;
use gradient_runtime::health::Health;
use gradient_runtime::shutdown::CancellationToken;
use tokio::sync::watch;

pub use crate::batch::ProjectorSettings;
use crate::batch::{collect, write};
use crate::checkpoint::{self, Checkpoint};
use crate::database::{Database, DatabaseError};
use crate::metrics;

/// Name of the part in health.
const PART: &str = "projector";
/// First and longest pause before something that failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// How long a projector whose fence failed leaves the work to the other one.
const YIELD: Duration = Duration::from_millis(250);
/// How often a projector that is stuck looks whether somebody moved the checkpoint.
const STUCK_CHECK: Duration = Duration::from_secs(2);
/// How often the lag is measured.
const LAG_EVERY: Duration = Duration::from_secs(2);

/// Why the projector cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ProjectorError {
    /// The tables were made from another log.
    #[error(
        "the tables were folded from log '{have}' (created at {have_ns} ns), but this is log '{want}' \
         (created at {want_ns} ns); use the right database, or rebuild it from this log"
    )]
    OtherLog {
        /// Stream of the tables.
        have: String,
        /// When it was created, nanoseconds since the epoch.
        have_ns: i64,
        /// Stream that is read.
        want: String,
        /// When it was created, nanoseconds since the epoch.
        want_ns: i64,
    },
    /// The log is shorter than what the tables show: it was restored from an older copy.
    #[error("the tables are at message {position}, but the log ends at {last}; rebuild the tables")]
    AheadOfLog {
        /// Where the tables are.
        position: u64,
        /// Where the log ends.
        last: u64,
    },
    /// The log cannot be read.
    #[error("the log cannot be read after message {position}")]
    Log {
        /// Where the tables are.
        position: u64,
        /// What happened.
        #[source]
        source: ReadError,
    },
    /// The tables cannot be written.
    #[error("the tables cannot be written after message {position}")]
    Database {
        /// Where the tables are.
        position: u64,
        /// What happened.
        #[source]
        source: DatabaseError,
    },
}

impl ProjectorError {
    /// Whether trying again may help.
    fn is_transient(&self) -> bool {
        match self {
            ProjectorError::Log { source: ReadError::Transport(_), .. } => true,
            ProjectorError::Database { source, .. } => source.is_transient(),
            ProjectorError::Log { .. }
            | ProjectorError::OtherLog { .. }
            | ProjectorError::AheadOfLog { .. } => false,
        }
    }
}

/// Keeps the tables of one database.
#[derive(Debug)]
pub struct Projector {
    database: Database,
    settings: ProjectorSettings,
    health: Health,
    position: watch::Sender<u64>,
    head: watch::Sender<Option<u64>>,
}

/// Why one run over the log ended.
enum Pass {
    Stopped,
    /// Somebody else moved the checkpoint.
    Fenced,
}

impl Projector {
    /// A projector that has not started.
    #[must_use]
    pub fn new(database: Database, settings: ProjectorSettings, health: Health) -> Self {
        let (position, head) = (watch::Sender::new(0), watch::Sender::new(None));
        Self { database, settings, health, position, head }
    }

    /// Tells the position of the tables whenever it changed.
    #[must_use]
    pub fn position(&self) -> watch::Receiver<u64> {
        self.position.subscribe()
    }

    /// Tells where the log ends, looked up every 2 s; `None` while the log does not answer.
    #[must_use]
    pub fn head(&self) -> watch::Receiver<Option<u64>> {
        self.head.subscribe()
    }

    /// Keeps the tables until `stop`. Interruptions of log and database are waited out. What cannot
    /// be read or written holds the projector at its checkpoint: health says so, and why, until
    /// somebody moves the checkpoint (a rebuild) or the process is replaced.
    ///
    /// # Errors
    /// If the tables belong to another log, or it was stuck when it was stopped.
    pub async fn run(
        &self,
        log: impl EventLog,
        stop: CancellationToken,
    ) -> Result<(), ProjectorError> {
        self.health.bad(PART, "starting");
        let measuring = self.measure_lag(&log, &stop);
        let projecting = async {
            let mut pause = RETRY.0;
            loop {
                let before = *self.position.borrow();
                let ended = tokio::select! {
                    ended = self.pass(&log) => ended,
                    () = stop.cancelled() => Ok(Pass::Stopped),
                };
                if *self.position.borrow() != before {
                    pause = RETRY.0;
                }
                match ended {
                    Ok(Pass::Stopped) => return Ok(()),
                    Ok(Pass::Fenced) => {
                        metrics::fenced();
                        tracing::info!("another projector or a rebuild moved the checkpoint");
                        sleep(YIELD, &stop).await;
                    }
                    Err(error) if error.is_transient() => {
                        metrics::retried();
                        let reason = causes(&error);
                        tracing::warn!(error = reason, "projector interrupted; it tries again");
                        self.health.bad(PART, reason);
                        sleep(pause, &stop).await;
                        pause = (pause * 2).min(RETRY.1);
                    }
                    Err(error) => self.stuck(error, &stop).await?,
                }
            }
        };
        tokio::select! {
            result = projecting => result,
            never = measuring => match never {},
        }
    }

    /// From the checkpoint on, until something ends it.
    async fn pass(&self, log: &impl EventLog) -> Result<Pass, ProjectorError> {
        let mut checkpoint = self.start(log).await?;
        self.position.send_replace(checkpoint.sequence);
        self.health.good(PART, format!("at {}", checkpoint.sequence));
        let failed = |position| move |source| ProjectorError::Log { position, source };
        let mut messages =
            log.read(checkpoint.sequence + 1).await.map_err(failed(checkpoint.sequence))?;
        loop {
            let batch = collect(&mut messages, self.settings).await;
            if let Some(batch) = batch.found {
                let from = checkpoint.sequence;
                let database = |source| ProjectorError::Database { position: from, source };
                let Some(sequence) =
                    write(&self.database, &checkpoint, batch).await.map_err(database)?
                else {
                    return Ok(Pass::Fenced);
                };
                checkpoint.sequence = sequence;
                self.position.send_replace(sequence);
                self.health.good(PART, format!("at {sequence}"));
            }
            if let Some(error) = batch.error {
                return Err(failed(checkpoint.sequence)(error));
            }
        }
    }

    /// Tables and checkpoint, checked against the log.
    async fn start(&self, log: &impl EventLog) -> Result<Checkpoint, ProjectorError> {
        let position = *self.position.borrow();
        let failed = |source| ProjectorError::Log { position, source };
        let database = |source| ProjectorError::Database { position, source };
        let identity = log.identity().await.map_err(failed)?;
        self.database.migrate().await.map_err(database)?;
        let client = self.database.client().await.map_err(database)?;
        let checkpoint = checkpoint::load(&**client, &identity).await.map_err(database)?;
        if checkpoint.log != identity {
            return Err(ProjectorError::OtherLog {
                have: checkpoint.log.stream,
                have_ns: checkpoint.log.created_ns,
                want: identity.stream,
                want_ns: identity.created_ns,
            });
        }
        let last = log.last_sequence().await.map_err(failed)?;
        if last < checkpoint.sequence {
            return Err(ProjectorError::AheadOfLog { position: checkpoint.sequence, last });
        }
        Ok(checkpoint)
    }

    /// Waits until somebody moves the checkpoint; only a stop ends it otherwise.
    async fn stuck(
        &self,
        error: ProjectorError,
        stop: &CancellationToken,
    ) -> Result<(), ProjectorError> {
        let reason = causes(&error);
        tracing::error!(error = reason, "projector is stuck");
        self.health.bad(PART, format!("stuck: {reason}"));
        if let ProjectorError::OtherLog { .. } | ProjectorError::AheadOfLog { .. } = error {
            return Err(error);
        }
        metrics::stuck(true);
        let at = current(&self.database).await;
        loop {
            sleep(STUCK_CHECK, stop).await;
            if stop.is_cancelled() {
                return Err(error);
            }
            let now = current(&self.database).await;
            if now.is_some() && now != at {
                metrics::stuck(false);
                return Ok(());
            }
        }
    }

    async fn measure_lag(
        &self,
        log: &impl EventLog,
        stop: &CancellationToken,
    ) -> std::convert::Infallible {
        loop {
            let last = log.last_sequence().await.ok();
            self.head.send_replace(last);
            if let Some(last) = last {
                metrics::lag(last.saturating_sub(*self.position.borrow()));
            }
            sleep(LAG_EVERY, stop).await;
            if stop.is_cancelled() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Tells the position of tables that another process keeps, by asking twice a second.
#[must_use]
pub fn follow(database: Database, stop: CancellationToken) -> watch::Receiver<u64> {
    let (sender, receiver) = watch::channel(0);
    tokio::spawn(async move {
        while !stop.is_cancelled() && !sender.is_closed() {
            if let Some(Checkpoint { sequence, .. }) = current(&database).await {
                sender.send_if_modified(|known| std::mem::replace(known, sequence) != sequence);
            }
            sleep(Duration::from_millis(500), &stop).await;
        }
    });
    receiver
}

/// The checkpoint, if there is one and the database answers.
async fn current(database: &Database) -> Option<Checkpoint> {
    let client = database.client().await.ok()?;
    let sql = "SELECT stream, created_ns, seq FROM projection_checkpoint WHERE projection = $1";
    let row = client.query_opt(sql, &[&checkpoint::PROJECTION]).await.ok()??;
    let log = gradient_log::LogIdentity { stream: row.get(0), created_ns: row.get(1) };
    Some(Checkpoint { log, sequence: u64::try_from(row.get::<_, i64>(2)).ok()? })
}

async fn sleep(time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = stop.cancelled() => {}
    }
}
