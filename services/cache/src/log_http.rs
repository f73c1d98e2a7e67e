//! Logs over HTTP: `POST /logs/<id>?offset=N`, `POST /logs/<id>/finish`, `GET /logs/<id>`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::error::Error;
use crate::http::bearer;
use crate::logs::{Log, LogId, Progress};
use crate::settings::{CacheState, Caller};

/// Header that says whether the log was finished when reading began: `true` or `false`.
const FINISHED_HEADER: &str = "gradient-log-finished";

#[derive(Debug, Deserialize)]
pub(crate) struct AppendQuery {
    offset: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReadQuery {
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    follow: bool,
}

/// The log that the caller may write.
fn writable(state: &CacheState, id: &str, headers: &HeaderMap) -> Result<Arc<Log>, Error> {
    let caller = state.caller(bearer(headers))?;
    let id = LogId::parse(id)?;
    if let Caller::Assignment(token) = &caller
        && !id.belongs_to(&token.assignment)
    {
        return Err(Error::Forbidden("this token is for another assignment's log"));
    }
    let log = state.0.logs.log(&id, true)?;
    log.ok_or_else(|| Error::Storage("a log that was made is not there".into()))
}

pub(crate) async fn append(
    State(state): State<CacheState>,
    Path(id): Path<String>,
    Query(query): Query<AppendQuery>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<Value>, Error> {
    let log = writable(&state, &id, &headers)?;
    let length = log.append(query.offset, bytes).await?;
    Ok(Json(json!({ "offset": length })))
}

pub(crate) async fn finish(
    State(state): State<CacheState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Error> {
    let log = writable(&state, &id, &headers)?;
    let length = log.finish().await?;
    Ok(Json(json!({ "offset": length })))
}

/// Reads a log from an offset; following, the answer ends when the log is finished.
pub(crate) async fn read(
    State(state): State<CacheState>,
    Path(id): Path<String>,
    Query(query): Query<ReadQuery>,
) -> Result<Response, Error> {
    let parsed = LogId::parse(&id)?;
    let Some(log) = state.0.logs.log(&parsed, false)? else {
        return Err(Error::NotFound(format!("log {id}")));
    };
    let progress = log.progress();
    let is_finished = progress.borrow().is_finished;
    let reader = Reader { log, progress, at: query.offset, follow: query.follow };
    let body = Body::from_stream(stream::try_unfold(reader, Reader::next));
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let finished = [(FINISHED_HEADER, is_finished.to_string())];
    Ok((headers, finished, body).into_response())
}

struct Reader {
    log: Arc<Log>,
    progress: watch::Receiver<Progress>,
    at: u64,
    follow: bool,
}

impl Reader {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, Error> {
        loop {
            let progress = *self.progress.borrow_and_update();
            if self.at < progress.length {
                let bytes = self.log.read(self.at).await?;
                self.at += bytes.len() as u64;
                return Ok(Some((bytes, self)));
            }
            let is_over = progress.is_finished || !self.follow;
            if is_over || self.progress.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}
