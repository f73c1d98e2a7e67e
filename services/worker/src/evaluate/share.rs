//! Evaluation caches of the fleet: fetched before a discovery, given after it. Nothing of it ever fails
//! an evaluation: without it, only more is evaluated.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt as _;
use gradient_daemon::PooledConnection;
use gradient_pool::{Evaluation, EvaluationCache};
use uuid::Uuid;

use super::Evaluator;
use crate::cache_client::compress_eval_cache;
use crate::job::Running;

/// Longest that fetching a cache may take; evaluating is better then.
const FETCH_MAX: Duration = Duration::from_secs(120);
/// Longest that fetching the derivations of an answer may take; the rest is instantiated again.
const DERIVATIONS_MAX: Duration = Duration::from_secs(300);
/// Longest that giving a cache may hold up the end of an evaluation.
const GIVE_MAX: Duration = Duration::from_secs(60);
/// Folder of files on their way, beside the caches.
const FOLDER: &str = "share";
/// Age of a file on its way that a worker left which was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);

/// What an evaluation shares.
pub(super) struct Shared {
    cache: EvaluationCache,
    /// Keeps the derivations that were fetched from being collected as long as it is there.
    _keeper: Option<PooledConnection>,
}

impl Evaluator {
    /// Gets what the fleet knows of an evaluation: its cache, if this worker has none, and the
    /// derivations of the answer that the store lacks. `None` if nothing of it can be shared.
    pub(super) async fn prepare(&self, running: &Running, of: &Evaluation) -> Option<Shared> {
        if !self.is_sharing {
            return None;
        }
        // Without an evaluator the discovery has the better words for it.
        let cache = self.pool.cache_of(of).await.ok().flatten()?;
        if !cache.is_there() {
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
        let file = OnItsWay::beside(cache).await?;
        let fetched = self.cache.fetch_eval_cache(cache.fingerprint(), &file.0).await?;
        // Another evaluation of the same flake may have begun to write its own.
        if fetched.is_some() && !cache.is_there() {
            let cache = cache.clone();
            tokio::task::spawn_blocking(move || cache.stage(&file.0)).await??;
        }
        Ok(fetched)
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

    /// Gives the cache to the fleet.
    pub(super) async fn give(&self, running: &Running, shared: &Shared) {
        let given = tokio::time::timeout(GIVE_MAX, self.give_cache(running, shared).boxed()).await;
        match given.unwrap_or_else(|_| anyhow::bail!("it takes over {GIVE_MAX:?}")) {
            Ok(is_new) => tracing::info!(job = %running.job, is_new, "evaluation cache given"),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(job = %running.job, error, "evaluation cache not given");
            }
        }
    }

    async fn give_cache(&self, running: &Running, shared: &Shared) -> anyhow::Result<bool> {
        let (copy, compressed) =
            (OnItsWay::beside(&shared.cache).await?, OnItsWay::beside(&shared.cache).await?);
        let cache = shared.cache.clone();
        // The files go with the thread if nobody waits for it any more.
        let work = move || {
            cache.snapshot(&copy.0)?;
            compress_eval_cache(&copy.0, &compressed.0)?;
            anyhow::Ok(compressed)
        };
        let compressed = tokio::task::spawn_blocking(work).await??;
        let (fingerprint, token) = (shared.cache.fingerprint(), running.upload_token.as_str());
        Ok(self.cache.give_eval_cache(fingerprint, &compressed.0, token).await?)
    }
}

/// The place of a file on its way. Whatever is there when this is dropped goes.
struct OnItsWay(PathBuf);

impl OnItsWay {
    async fn beside(cache: &EvaluationCache) -> std::io::Result<Self> {
        let folder = cache.folder().path().join(FOLDER);
        let make = move || {
            std::fs::create_dir_all(&folder)?;
            remove_left_behind(&folder);
            Ok(OnItsWay(folder.join(Uuid::new_v4().to_string())))
        };
        tokio::task::spawn_blocking(make).await.map_err(std::io::Error::other).flatten()
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut file = self.0.clone().into_os_string();
            file.push(suffix);
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(%error, ?file, "a temporary file cannot be removed");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Removes what workers left that were killed.
fn remove_left_behind(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        if age.is_ok_and(|age| age > LEFT_BEHIND) {
            // What stays is tried again the next time.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
