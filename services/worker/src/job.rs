//! A running job: how it speaks, how it is stopped, how it ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gradient_domain::text::cut;
use gradient_domain::{AssignmentId, JobId, StorePath};
use gradient_events::server::UploadToken;
use gradient_events::worker::JobUpdate;
use gradient_events::{FailureKind, WorkerMessage};
use tokio_util::sync::CancellationToken;

use crate::voice::Voice;

/// Longest error text of a report, in bytes (reference 2.7).
pub(crate) const ERROR_BYTES_MAX: usize = 8 * 1024;

/// Most missing paths that a report names.
const MISSING_PATHS_MAX: usize = gradient_events::PAGE_ITEMS_MAX;

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Its results can be fetched by others.
    Completed,
    /// It failed.
    Failed {
        /// How.
        kind: FailureKind,
        /// What happened.
        error: String,
        /// Inputs that could not be had.
        missing_paths: Vec<StorePath>,
    },
}

impl JobEnd {
    /// A failure without missing inputs.
    #[must_use]
    pub fn failed(kind: FailureKind, error: impl Into<String>) -> Self {
        JobEnd::Failed { kind, error: error.into(), missing_paths: Vec::new() }
    }
}

/// Why a job is stopped from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The server asked for it.
    Aborted(String),
    /// This worker stops.
    Canceled,
    /// The hand-out is not open any more: nobody waits for a report.
    Forgotten,
}

/// The handle of a running job. Clones are the same job.
#[derive(Clone, Debug)]
pub struct Running {
    /// The job.
    pub job: JobId,
    /// The hand-out.
    pub assignment: AssignmentId,
    /// Lets it write to the cache.
    pub upload_token: UploadToken,
    /// Cancelled when it has to stop.
    pub cancel: CancellationToken,
    stop: Arc<Mutex<Option<Stop>>>,
    voice: Voice,
    started: Instant,
}

impl Running {
    /// A job that starts now.
    #[must_use]
    pub fn new(
        job: JobId,
        assignment: AssignmentId,
        upload_token: UploadToken,
        voice: Voice,
    ) -> Self {
        Self {
            job,
            assignment,
            upload_token,
            cancel: CancellationToken::new(),
            stop: Arc::default(),
            voice,
            started: Instant::now(),
        }
    }

    /// Stops it; the first reason counts.
    pub fn stop(&self, reason: Stop) {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.cancel.cancel();
    }

    /// Reports a step.
    pub async fn update(&self, update: JobUpdate) {
        let (job, assignment) = (self.job, self.assignment);
        self.voice.say(WorkerMessage::JobUpdate { job, assignment, update }).await;
    }

    /// Reports the end. What ended while it was being stopped says so, unless it got done anyway.
    ///
    /// The end is kept on disk only after everything said before has arrived: a worker that dies in
    /// between must not say after its restart that it is done while what it found is lost.
    pub async fn end(&self, end: JobEnd) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let end = match (stop, end) {
            (Some(Stop::Forgotten), _) => return,
            (Some(Stop::Aborted(reason)), JobEnd::Failed { .. }) => {
                JobEnd::failed(FailureKind::Aborted, format!("job aborted by server: {reason}"))
            }
            (Some(Stop::Canceled), JobEnd::Failed { .. }) => {
                JobEnd::failed(FailureKind::Canceled, "worker draining")
            }
            (_, end) => end,
        };
        self.voice.flush().await;
        let (job, assignment) = (self.job, self.assignment);
        let elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.voice
            .say(match end {
                JobEnd::Completed => WorkerMessage::JobCompleted { job, assignment, elapsed_ms },
                JobEnd::Failed { kind, error, mut missing_paths } => {
                    missing_paths.truncate(MISSING_PATHS_MAX);
                    let error = cut(error, ERROR_BYTES_MAX);
                    WorkerMessage::JobFailed {
                        job,
                        assignment,
                        kind,
                        error,
                        missing_paths,
                        elapsed_ms,
                    }
                }
            })
            .await;
    }
}
