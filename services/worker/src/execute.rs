//! Runs jobs: an evaluation through the pool of evaluators, a build through the daemon.

use std::sync::Arc;

use futures_util::FutureExt as _;
use gradient_daemon::Pool as Store;
use gradient_events::worker::{BuiltOutput, JobUpdate};
use gradient_events::{BuildJob, FailureKind, Job};
use tokio::sync::Mutex;

use crate::build::{
    BuildFailure, BuildOutcome, BuildRequest, Builder, LogLimits, LogSink, Stage, start_log,
};
use crate::cache_client::CacheClient;
use crate::daemon_process::DaemonProcess;
use crate::evaluate::Evaluator;
use crate::job::{JobEnd, Running};

/// What jobs are run with. Clones share everything.
#[derive(Clone)]
pub struct Executor {
    parts: Arc<Parts>,
}

struct Parts {
    evaluator: Option<Evaluator>,
    builder: Builder,
    store: Store,
    cache: CacheClient,
    cores: u32,
    daemon: Mutex<Option<DaemonProcess>>,
}

impl Executor {
    /// An executor over this store and cache. Without an evaluator it only builds.
    #[must_use]
    pub fn new(
        evaluator: Option<Evaluator>,
        store: Store,
        cache: CacheClient,
        cores: u32,
        daemon: Option<DaemonProcess>,
    ) -> Self {
        let builder = Builder::new(store.clone(), cache.clone());
        let daemon = Mutex::new(daemon);
        Self { parts: Arc::new(Parts { evaluator, builder, store, cache, cores, daemon }) }
    }

    /// The local store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.parts.store
    }

    /// Runs a job to its end, or to its stop.
    pub async fn run(&self, running: &Running, job: Job) -> JobEnd {
        match job {
            Job::Build(job) => self.build(running, &job).await,
            Job::Evaluate(job) => {
                let Some(evaluator) = &self.parts.evaluator else {
                    return JobEnd::failed(FailureKind::Transient, "this worker does not evaluate");
                };
                let run = evaluator.run(running, &job).boxed();
                match running.cancel.run_until_cancelled(run).await {
                    Some(end) => end,
                    None => JobEnd::failed(FailureKind::Aborted, "evaluation aborted by server"),
                }
            }
        }
    }

    /// Stops evaluators and the private daemon.
    pub async fn shutdown(&self) {
        if let Some(evaluator) = &self.parts.evaluator {
            evaluator.pool.shutdown().await;
        }
        if let Some(daemon) = self.parts.daemon.lock().await.take() {
            daemon.stop().await;
        }
    }

    async fn build(&self, running: &Running, job: &BuildJob) -> JobEnd {
        // An abort that came before the first step wins (reference 2.12).
        if running.cancel.is_cancelled() {
            let message = format!("build aborted by server: {}", job.drv_path);
            return JobEnd::failed(FailureKind::Aborted, message);
        }
        running.update(JobUpdate::Building).await;
        let request = BuildRequest {
            drv_path: job.drv_path.clone(),
            timeout_secs: Some(job.timeout_secs),
            max_silent_secs: Some(job.max_silent_secs),
            cores: self.parts.cores,
        };
        let log_id = running.assignment.to_string();
        let cache = self.parts.cache.clone();
        let (mut log, log_upload) =
            start_log(cache, &log_id, running.upload_token.as_str(), LogLimits::default());
        let drv_path = &job.drv_path;
        let stage = |stage: Stage| tracing::debug!(drv = %drv_path, ?stage, "build");
        let build = self.parts.builder.build(&request, &mut log, &stage, &running.cancel);
        let built = build.boxed().await;
        if let Err(failure) = &built {
            log.line(format!("=== build failed: {} ===", failure.message).as_bytes());
        }
        let uploaded = async {
            let outcome = built?;
            let token = running.upload_token.as_str();
            self.parts.builder.upload(&outcome, token, &stage, &running.cancel).boxed().await?;
            Ok::<BuildOutcome, BuildFailure>(outcome)
        };
        let closed = running.cancel.run_until_cancelled(log_upload.finish());
        let (uploaded, _) = tokio::join!(uploaded, closed);
        match uploaded {
            Ok(outcome) => {
                running.update(build_output(outcome)).await;
                JobEnd::Completed
            }
            Err(BuildFailure { kind, message, missing_paths }) => JobEnd::Failed {
                kind,
                error: message,
                missing_paths: missing_paths.into_iter().collect(),
            },
        }
    }
}

fn build_output(outcome: BuildOutcome) -> JobUpdate {
    let outputs = outcome.outputs.into_iter().map(|output| BuiltOutput {
        name: output.name,
        path: output.path,
        nar_hash: output.nar_hash,
        nar_size: output.nar_size,
    });
    JobUpdate::BuildOutput {
        outputs: outputs.collect(),
        substituted: outcome.substituted,
        build_time_ms: outcome.build_time_ms,
    }
}
