//! Evaluation caches of the fleet, fetched before a discovery. Nothing of it ever fails an evaluation:
//! without it, only more is evaluated.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use gradient_daemon::PooledConnection;
use gradient_pool::{Evaluation, EvaluationCache};

use super::Evaluator;
use super::on_its_way::OnItsWay;
use crate::job::Running;

/// Longest that fetching a cache may take; evaluating is better then.
const FETCH_MAX: Duration = Duration::from_secs(120);
/// Longest that fetching the derivations of an answer may take; the rest is instantiated again.
const DERIVATIONS_MAX: Duration = Duration::from_secs(300);

/// What an evaluation shares.
pub(super) struct Shared {
    pub(super) cache: EvaluationCache,
    /// Keeps the derivations that were fetched from being collected as long as it is there.
    _keeper: Option<PooledConnection>,
}

impl Evaluator {
    /// Gets what the fleet knows of an evaluation: its cache, if this worker has none that answers, and
    /// the derivations of the answer that the store lacks. `None` if nothing of it can be shared.
    pub(super) async fn prepare(&self, running: &Running, of: &Evaluation) -> Option<Shared> {
        if !self.is_sharing {
            return None;
        }
        // Without an evaluator the discovery has the better words for it.
        let cache = self.pool.cache_of(of).await.ok().flatten()?;
        if !cache.answers().await {
            let fetched = tokio::time::timeout(FETCH_MAX, self.fetch_cache(&cache).boxed()).await;
            let outcome = fetched.unwrap_or_else(|_| anyhow::bail!("it takes over {FETCH_MAX:?}"));
            match &outcome {
                Ok(Some(bytes)) => {
                    tracing::info!(job = %running.job, bytes, "evaluation cache fetched");
                }
                Ok(None) => {
                    tracing::debug!(job = %running.job, "the fleet has no evaluation cache")
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(job = %running.job, error, "evaluation cache not fetched");
                }
            }
        }
        let keeper = self.fetch_derivations(running, &cache).await;
        Some(Shared { cache, _keeper: keeper })
    }

    /// The size of the cache that was fetched, if the service has one.
    async fn fetch_cache(&self, cache: &EvaluationCache) -> anyhow::Result<Option<u64>> {
        let file = OnItsWay::beside(cache.folder()).await?;
        let fetched = self.cache.fetch_eval_cache(cache.fingerprint(), file.path()).await?;
        // Another evaluation of the same flake may have completed its own meanwhile.
        if fetched.is_none() || cache.answers().await {
            return Ok(None);
        }
        let cache = cache.clone();
        let is_staged = tokio::task::spawn_blocking(move || cache.stage(file.path())).await??;
        Ok(fetched.filter(|_| is_staged))
    }

    /// Gets the derivations that alone keep the cache from answering. What keeps them is returned.
    async fn fetch_derivations(
        &self,
        running: &Running,
        cache: &EvaluationCache,
    ) -> Option<PooledConnection> {
        let missing: BTreeSet<_> = cache.missing_derivations().await.into_iter().collect();
        if missing.is_empty() {
            return None;
        }
        let started = Instant::now();
        let fetch = async {
            let mut keeper = self.store.get().await?;
            let fetched =
                self.cache.ensure_closure(&self.store, &missing, Some(&mut keeper)).await?;
            Ok((keeper, fetched))
        };
        let fetched = tokio::time::timeout(DERIVATIONS_MAX, fetch.boxed()).await;
        let fetched =
            fetched.unwrap_or_else(|_| anyhow::bail!("it takes over {DERIVATIONS_MAX:?}"));
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match fetched {
            Ok((keeper, fetched)) => {
                tracing::info!(job = %running.job, derivations = missing.len(), paths = fetched.paths,
                    elapsed_ms, "derivations of the evaluation cache fetched");
                Some(keeper)
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(job = %running.job, derivations = missing.len(), error, elapsed_ms,
                    "derivations of the evaluation cache not fetched; they are instantiated again");
                None
            }
        }
    }
}
