//! Evaluation caches for the fleet, given after a discovery. Nothing of it ever fails an evaluation.

use std::time::Duration;

use futures_util::FutureExt as _;
use gradient_pool::{Folder, ShareError, snapshot};

use super::Evaluator;
use super::not_given::NotGiven;
use super::on_its_way::OnItsWay;
use super::share::Shared;
use crate::cache_client::{CacheError, compress_eval_cache};
use crate::job::Running;

/// Longest that giving caches may hold up the end of an evaluation.
const GIVE_MAX: Duration = Duration::from_secs(60);
/// Most caches that one evaluation gives: its own, and such that could not be given before.
const GIVEN_AT_ONCE_MAX: usize = 4;

impl Evaluator {
    /// Gives the fleet the cache, if it is complete since this evaluation, and those that it could not
    /// be given before. Each is noted until the fleet has it.
    pub(super) async fn give(&self, running: &Running, shared: &Shared, is_completed: bool) {
        let folder = shared.cache.folder();
        let notes = NotGiven::of(folder);
        if is_completed && let Err(error) = notes.note(shared.cache.fingerprint()) {
            tracing::warn!(%error, "an evaluation cache to give cannot be noted");
        }
        let give = async {
            for fingerprint in notes.newest(GIVEN_AT_ONCE_MAX) {
                match self.give_one(running, folder, &fingerprint).boxed().await {
                    Ok(is_new) => {
                        tracing::info!(job = %running.job, is_new, "evaluation cache given");
                        notes.forget(&fingerprint);
                    }
                    Err(error) => {
                        if is_final(&error) {
                            notes.forget(&fingerprint);
                        }
                        let error = format!("{error:#}");
                        tracing::warn!(job = %running.job, error, "evaluation cache not given");
                    }
                }
            }
        };
        if tokio::time::timeout(GIVE_MAX, give).await.is_err() {
            let seconds = GIVE_MAX.as_secs();
            tracing::warn!(job = %running.job, seconds, "evaluation caches not given in time");
        }
    }

    /// Whether the fleet did not have it yet.
    async fn give_one(
        &self,
        running: &Running,
        folder: &Folder,
        fingerprint: &str,
    ) -> anyhow::Result<bool> {
        let (copy, compressed) = (OnItsWay::beside(folder).await?, OnItsWay::beside(folder).await?);
        let (caches, of) = (folder.clone(), fingerprint.to_owned());
        // The files go with the thread if nobody waits for it any more.
        let work = move || {
            snapshot(&caches, &of, copy.path())?;
            compress_eval_cache(copy.path(), compressed.path())?;
            anyhow::Ok(compressed)
        };
        let compressed = tokio::task::spawn_blocking(work).await??;
        let token = running.upload_token.as_str();
        Ok(self.cache.give_eval_cache(fingerprint, compressed.path(), token).await?)
    }
}

/// Whether another try would end as this one did: the cache went or is of no use, or the service does
/// not want it.
fn is_final(error: &anyhow::Error) -> bool {
    let is_useless = matches!(error.downcast_ref(), Some(ShareError::Useless(_)));
    let is_refused = matches!(error.downcast_ref(),
        Some(CacheError::Refused { status, .. }) if status.is_client_error());
    is_useless || is_refused
}
