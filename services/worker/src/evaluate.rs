//! One evaluation as a job: fetch, open, discover, record (spec, Eval Worker Setup; reference 5.13).

mod fetch;
mod give;
mod not_given;
mod on_its_way;
mod record;
mod share;

use std::path::PathBuf;

use gradient_daemon::Pool as Store;
use gradient_domain::pattern::PatternSet;
use gradient_events::worker::JobUpdate;
use gradient_events::{EvaluateJob, FailureKind};
use gradient_fetch::{Fetcher, LockedFlake};
use gradient_log::jetstream::Queries;
use gradient_pool::{DiscoverError, Evaluation, Found, Pool};
use tokio::sync::mpsc;

use crate::cache_client::CacheClient;
use crate::job::{JobEnd, Running};
use record::{Recorder, not_yet};

/// Most results that wait to be recorded; the evaluators wait then.
const FOUND_WAITING_MAX: usize = 1_024;

/// What evaluations work with.
#[derive(Clone)]
pub struct Evaluator {
    /// Evaluator subprocesses.
    pub pool: Pool,
    /// The local store.
    pub store: Store,
    /// Where `/nix/store` of the local store really is, for reading `.drv` files.
    pub store_dir: PathBuf,
    /// Fetches flakes into the local store.
    pub fetcher: Fetcher,
    /// The cache service.
    pub cache: CacheClient,
    /// Whether evaluation caches are fetched from there and given to it.
    pub is_sharing: bool,
    /// Asks the scheduler what it knows.
    pub queries: Queries,
}

impl Evaluator {
    /// Runs an evaluation to its end.
    pub async fn run(&self, running: &Running, job: &EvaluateJob) -> JobEnd {
        let patterns = match PatternSet::from_texts(&job.patterns) {
            Ok(patterns) => patterns,
            Err(error) => return JobEnd::failed(FailureKind::Permanent, error.to_string()),
        };
        running.update(JobUpdate::Fetching).await;
        let fetched = match self.fetch(running, job).await {
            Ok(fetched) => fetched,
            Err(end) => return end,
        };
        let locked_url = fetched.reference.clone();
        let flake_source = fetched.tree.path.clone();
        running.update(JobUpdate::FetchResult { flake_source, locked_url }).await;
        running.update(JobUpdate::EvaluatingFlake).await;
        self.discover(running, &fetched, patterns).await
    }

    async fn discover(
        &self,
        running: &Running,
        flake: &LockedFlake,
        patterns: PatternSet,
    ) -> JobEnd {
        let evaluation =
            Evaluation { locks: flake.locks.clone(), ..Evaluation::of_flake(&flake.url, patterns) };
        let shared = self.prepare(running, &evaluation).await;
        let (sink, found) = mpsc::channel::<Found>(FOUND_WAITING_MAX);
        let mut recorder = Recorder::new(self, running, flake);
        // The receiver is the block's own: with its end the discovery is cancelled.
        let record = async {
            let mut found = found;
            for warning in &flake.warnings {
                recorder.warn(None, warning.clone()).await?;
            }
            recorder.flush().await?;
            while let Some(first) = found.recv().await {
                recorder.take(first).await?;
                while let Ok(next) = found.try_recv() {
                    recorder.take(next).await?;
                }
                recorder.flush().await?;
            }
            Ok(())
        };
        let discover = self.pool.discover(&evaluation, sink);
        let discovered = match recorded(discover, record).await {
            Ok(discovered) => discovered,
            Err(end) => return end,
        };
        match discovered {
            Ok(summary) => {
                for (pattern, usage) in summary.entry_points.iter() {
                    tracing::info!(job = %running.job, %pattern, ?usage, "entry point");
                }
                tracing::info!(job = %running.job, attributes = summary.attributes, errors = summary.errors,
                    is_cached = summary.is_cached, calls = summary.calls,
                    wall_ms = u64::try_from(summary.wall.as_millis()).unwrap_or(u64::MAX), "discovery is over");
                if let Some(shared) = shared {
                    let is_completed = summary.is_cache_completed && summary.attributes > 0;
                    self.give(running, &shared, is_completed).await;
                }
                JobEnd::Completed
            }
            Err(error @ DiscoverError::Flake { .. }) => {
                let text = error.to_string();
                let hint = || flake.hint_on(&text).map(|hint| format!("{hint}\n{text}"));
                not_yet(flake, None, &text).unwrap_or_else(|| {
                    JobEnd::failed(FailureKind::Permanent, hint().unwrap_or(text.clone()))
                })
            }
            Err(
                error @ (DiscoverError::Spawn(_)
                | DiscoverError::Protocol { .. }
                | DiscoverError::Cancelled),
            ) => {
                let chain = anyhow::Error::from(error);
                JobEnd::failed(FailureKind::Transient, format!("{chain:#}"))
            }
        }
    }
}

/// What the discovery says once all it found is recorded; the first error of the recording ends both.
async fn recorded<T>(
    discover: impl Future<Output = T>,
    record: impl Future<Output = Result<(), JobEnd>>,
) -> Result<T, JobEnd> {
    let discover = async { Ok(discover.await) };
    tokio::try_join!(discover, record).map(|(discovered, ())| discovered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_recorded_ends_the_discovery() {
        let end = JobEnd::failed(FailureKind::Permanent, "too large");
        let endless = std::future::pending::<()>();
        assert_eq!(recorded(endless, async { Err(end.clone()) }).await, Err(end.clone()));
        let both = recorded(async { 7 }, async { Ok(()) }).await;
        assert_eq!(both, Ok(7));
    }
}
