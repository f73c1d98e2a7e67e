//! The source of a flake into the local store, and what to evaluate.

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use gradient_domain::{SshKey, StorePath};
use gradient_events::{EvaluateJob, FailureKind, FlakeSource};
use gradient_fetch::{FetchError, LockedFlake, Reach, Request, Retry, Source, Tree};
use gradient_runtime::causes;
use reqwest::StatusCode;

use super::Evaluator;
use crate::cache_client::CacheError;
use crate::job::{JobEnd, Running};

impl Evaluator {
    pub(super) async fn fetch(
        &self,
        running: &Running,
        job: &EvaluateJob,
    ) -> Result<LockedFlake, JobEnd> {
        let source = match &job.flake {
            FlakeSource::Store { path, nar_hash, subdir, commit, .. } => {
                self.source_from_cache(path).await?;
                Source::Store(Tree {
                    path: path.clone(),
                    nar_hash: nar_hash.clone(),
                    subdir: subdir.clone(),
                    commit: commit.as_deref().cloned(),
                    last_modified: commit.as_ref().and_then(|commit| commit.last_modified),
                })
            }
            FlakeSource::Reference { url } => Source::Reference(url.clone()),
        };
        let request = Request {
            source,
            reach: Reach::Remote,
            overrides: job.fetch.overrides.clone(),
            lock_policy: job.fetch.lock_policy,
            ssh_key: self.ssh_key(running, job).await?,
        };
        self.fetcher.fetch(&request).await.map_err(|error| failed(&error))
    }

    async fn source_from_cache(&self, path: &StorePath) -> Result<(), JobEnd> {
        let wanted = BTreeSet::from([path.clone()]);
        let fetched = self.cache.ensure_closure(&self.store, &wanted, None).boxed().await;
        fetched.map(drop).map_err(|error| JobEnd::Failed {
            kind: FailureKind::InputsUnavailable,
            error: format!("the source {path} cannot be had from the cache: {error}"),
            missing_paths: vec![path.clone()],
        })
    }

    /// The key that the server keeps for the evaluation (ADR 18).
    async fn ssh_key(
        &self,
        running: &Running,
        job: &EvaluateJob,
    ) -> Result<Option<SshKey>, JobEnd> {
        if !job.fetch.has_ssh_key {
            return Ok(None);
        }
        let token = running.upload_token.as_str();
        let key = self.cache.ssh_key(job.evaluation, token).await.map_err(|error| {
            let kind = match &error {
                CacheError::Refused { status: StatusCode::NOT_FOUND, .. }
                | CacheError::OpenWay { .. } => FailureKind::Permanent,
                _ => FailureKind::Transient,
            };
            JobEnd::failed(kind, format!("the key for SSH cannot be had from the server: {error}"))
        });
        key.map(Some)
    }
}

fn failed(error: &FetchError) -> JobEnd {
    let kind = match (error, error.retry()) {
        (FetchError::Timeout { .. }, _) => FailureKind::Timeout,
        (_, Retry::Never) => FailureKind::Permanent,
        (_, Retry::Backoff) => FailureKind::Transient,
    };
    JobEnd::failed(kind, causes(error))
}
