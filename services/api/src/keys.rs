//! Keys for SSH, one per evaluation at the most (ADR 18): files of this service alone, handed to the
//! worker that runs the evaluation now, gone when it is over.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use gradient_domain::{EvaluationId, SshKey};
use gradient_postgres::queries;
use gradient_runtime::shutdown::CancellationToken;

use crate::error::ApiError;
use crate::server::ApiState;

/// How long the row of a hand-out that was made a moment ago is waited for.
const FRESH_WAIT: Duration = Duration::from_secs(5);
/// Shortest time between two looks at the keys that are kept.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);
/// Longest time between them.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// A key whose evaluation is in no table for so long belongs to nobody. The tables may be missing for
/// a while, when they are folded anew.
const UNKNOWN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Most keys that are kept at a time.
const KEYS_MAX: usize = 10_000;

/// The folder of the keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    folder: PathBuf,
}

impl Keys {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn file(&self, evaluation: EvaluationId) -> PathBuf {
        self.folder.join(evaluation.to_string())
    }

    /// Keeps a key, readable for this user alone.
    pub(crate) fn save(&self, evaluation: EvaluationId, key: &SshKey) -> Result<(), ApiError> {
        let saved = self.try_save(evaluation, key);
        saved.map_err(|error| {
            tracing::error!(folder = %self.folder.display(), %error, "a key cannot be kept");
            let hint = "the server's log says why";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the key cannot be kept", hint)
        })
    }

    fn try_save(&self, evaluation: EvaluationId, key: &SshKey) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        if self.kept()?.len() >= KEYS_MAX {
            return Err(io::Error::other(format!("{KEYS_MAX} keys are kept already")));
        }
        let file = self.file(evaluation);
        let mut options = fs::OpenOptions::new();
        let mut open = options.write(true).create_new(true).mode(0o600).open(&file)?;
        let written = open.write_all(key.reveal().as_bytes()).and_then(|()| open.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(&file);
        }
        written
    }

    fn load(&self, evaluation: EvaluationId) -> io::Result<Option<String>> {
        match fs::read_to_string(self.file(evaluation)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, evaluation: EvaluationId) {
        match fs::remove_file(self.file(evaluation)) {
            Ok(()) => tracing::info!(%evaluation, "its key is deleted"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::error!(%evaluation, %error, "its key cannot be deleted"),
        }
    }

    /// Evaluations with a key, and since when.
    fn kept(&self) -> io::Result<Vec<(EvaluationId, SystemTime)>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut kept = Vec::new();
        for entry in entries {
            let entry = entry?;
            let since = entry.metadata().and_then(|file| file.modified());
            if let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                kept.push((id, since.unwrap_or(SystemTime::UNIX_EPOCH)));
            }
        }
        Ok(kept)
    }
}

/// `GET /evaluations/{id}/ssh-key`: for the worker that runs the evaluation, with its upload token.
pub(crate) async fn hand_over(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer "));
    let assignment = token.and_then(|token| state.assignment_of(token)).ok_or_else(|| {
        let hint = "only the worker that runs the evaluation may have its key";
        ApiError::new(StatusCode::UNAUTHORIZED, "an upload token is required", hint)
    })?;
    let unknown = || ApiError::unknown("key for this evaluation");
    let evaluation: EvaluationId = id.parse().map_err(|_| unknown())?;
    let mut position = state.position();
    let deadline = tokio::time::Instant::now() + FRESH_WAIT;
    loop {
        position.mark_unchanged();
        if queries::is_running(state.database(), evaluation, assignment).await? {
            break;
        }
        let waited = tokio::time::timeout_at(deadline, position.changed());
        if !matches!(waited.await, Ok(Ok(()))) {
            let error = "this hand-out does not run the evaluation";
            return Err(ApiError::new(StatusCode::FORBIDDEN, error, ""));
        }
    }
    let loaded = state.keys()?.load(evaluation).map_err(|error| {
        tracing::error!(%evaluation, %error, "its key cannot be read");
        let hint = "the server's log says why";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the key cannot be read", hint)
    })?;
    let text = loaded.ok_or_else(unknown)?;
    tracing::info!(%evaluation, %assignment, "its key is handed over");
    let headers = [(header::CONTENT_TYPE, "text/plain"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, text).into_response())
}

/// Deletes keys whose evaluations are over, until it is stopped.
pub async fn sweep_keys(state: ApiState, stop: CancellationToken) {
    let mut position = state.position();
    while !stop.is_cancelled() {
        position.mark_unchanged();
        if let Ok(keys) = state.keys() {
            sweep(&state, keys).await;
        }
        let pause = async {
            tokio::time::sleep(SWEEP_PAUSE).await;
            let _ = tokio::time::timeout(SWEEP_EVERY, position.changed()).await;
        };
        let _ = stop.run_until_cancelled(pause).await;
    }
}

async fn sweep(state: &ApiState, keys: &Keys) {
    let kept = keys.kept().unwrap_or_else(|error| {
        tracing::error!(%error, "the keys cannot be listed");
        Vec::new()
    });
    for (evaluation, since) in kept {
        match queries::evaluation(state.database(), evaluation).await {
            Ok(Some(found)) if found.is_over() => keys.remove(evaluation),
            Ok(Some(_)) => {}
            Ok(None) => {
                if since.elapsed().is_ok_and(|age| age > UNKNOWN_AFTER) {
                    keys.remove(evaluation);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "whether keys are still needed cannot be told");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_kept_for_this_user_alone() {
        let home = tempfile::tempdir().expect("a folder");
        let keys = Keys::new(home.path().join("keys"));
        let id = EvaluationId::from(uuid::Uuid::from_u128(7));
        assert_eq!(keys.load(id).expect("none"), None);
        let key = SshKey::new("-----BEGIN X PRIVATE KEY-----\n").expect("a key");
        keys.save(id, &key).expect("kept");
        let mode = |path: PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(keys.file(id)), mode(keys.folder.clone())), (0o600, 0o700));
        assert_eq!(keys.load(id).expect("kept").as_deref(), Some(key.reveal()));
        assert_eq!(keys.kept().expect("listed")[0].0, id);
        assert!(keys.save(id, &key).is_err(), "a key is not replaced");
        keys.remove(id);
        assert_eq!(keys.load(id).expect("none"), None);
    }
}
