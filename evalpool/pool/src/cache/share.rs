//! A cache and other machines: whole files in and out, and what an answer needs of the store.

use std::path::Path;

use gradient_domain::StorePath;
use gradient_evalcache::{
    CacheError, EvalCache, ExportError, Finding, Folder, Replay, inspect, replay,
};

use super::EvaluationCache;

/// Why a file was not taken in or given out.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The cache or the file does not answer.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// No copy can be made.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The file is damaged, of another flake, or answers nothing.
    #[error("the file is of no use: {0}")]
    Useless(String),
}

impl EvaluationCache {
    /// Whether there is a file, of whatever worth.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.path().exists()
    }

    /// Whether the file says that it can answer the request alone, as far as the store has what it
    /// names.
    pub async fn answers(&self) -> bool {
        let request = self.request.clone();
        self.look(move |file| file.answers(&request)).await
    }

    /// Puts a file that another machine made in the place of the cache, once it was looked at, if there
    /// is none or the file answers the request. Says whether it was put there. What the old file
    /// answered and the new one does not is evaluated again. Blocks.
    ///
    /// # Errors
    /// If the file is of no use, or cannot be read or moved.
    pub fn stage(&self, file: &Path) -> Result<bool, ShareError> {
        let found = inspect(file, &self.fingerprint)?;
        let answers = matches!(&found, Finding::Well { requests, .. }
            if requests.contains(&self.request.key()));
        useful(found)?;
        if self.is_there() && !answers {
            return Ok(false);
        }
        self.folder.put(&self.fingerprint, file)?;
        Ok(true)
    }

    /// The derivations whose files the store lacks, if that alone keeps the cache from answering;
    /// none if it lacks more, or nothing.
    pub async fn missing_derivations(&self) -> Vec<StorePath> {
        let cache = self.clone();
        let found = tokio::task::spawn_blocking(move || cache.missing_now()).await;
        match found {
            Ok(Ok(missing)) => missing,
            Ok(Err(error)) => {
                // Whoever evaluates next meets the same error and heals the file.
                tracing::debug!(%error, "the evaluation cache does not answer");
                Vec::new()
            }
            Err(error) => {
                tracing::warn!(%error, "the evaluation cache was not read");
                Vec::new()
            }
        }
    }

    fn missing_now(&self) -> Result<Vec<StorePath>, CacheError> {
        let Some(cache) = EvalCache::open_existing(&self.path(), &self.fingerprint)? else {
            return Ok(Vec::new());
        };
        let exists = self.exists();
        // The usual case is cheap.
        if !cache.any_derivation(|path| !exists(path))? {
            return Ok(Vec::new());
        }
        // As if every file were there, so that the answer is whole and its digest is looked at.
        let answer = match replay(cache, &self.request, |_| true)? {
            Replay::Complete(answer) => answer,
            Replay::Incomplete => return Ok(Vec::new()),
        };
        let mut missing: Vec<StorePath> =
            answer.jobs.into_iter().map(|(_, job)| job.drv_path).collect();
        missing.sort();
        missing.dedup();
        missing.retain(|path| !exists(path));
        Ok(missing)
    }
}

/// Copies a cache as it is now into one plain file, for other machines, and looks at that. Blocks.
///
/// # Errors
/// If the cache does not answer, or the copy cannot be written or is of no use.
pub fn snapshot(folder: &Folder, fingerprint: &str, copy: &Path) -> Result<(), ShareError> {
    let Some(cache) = EvalCache::open_existing(&folder.file(fingerprint), fingerprint)? else {
        return Err(ShareError::Useless("there is none".to_owned()));
    };
    gradient_evalcache::snapshot(&cache, copy)?;
    useful(inspect(copy, fingerprint)?)
}

fn useful(found: Finding) -> Result<(), ShareError> {
    match found {
        Finding::Useless(reason) => Err(ShareError::Useless(reason)),
        Finding::Well { requests, .. } if requests.is_empty() => {
            Err(ShareError::Useless("no evaluation of it is complete".to_owned()))
        }
        Finding::Well { .. } => Ok(()),
    }
}
