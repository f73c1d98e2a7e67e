//! `GET` and `PUT /eval-cache/<fingerprint>`: evaluation caches, compressed on the way.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use zstd::stream::write::Encoder;

use crate::error::Error;
use crate::eval_caches::{Fingerprint, Staged};
use crate::http::bearer;
use crate::settings::{CacheState, Caller};
use crate::upload::{drain, next_chunk};

/// Header of an answer: size of the decompressed file in bytes.
pub const EVAL_CACHE_SIZE_HEADER: &str = "gradient-eval-cache-size";

/// Longest that receiving or sending one may take, however it trickles.
const TRANSFER_MAX: Duration = Duration::from_secs(600);
/// How long a request waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(30);
/// Bytes that are compressed at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Level of compression: it is done anew for each reader.
const ZSTD_LEVEL: i32 = 3;

/// Jobs whose token may write: evaluations.
const JOB_PREFIX: &str = "eval:";

/// What became of an evaluation cache that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalCacheAnswer {
    /// Whether it was taken; false when the one that is there answers as much.
    pub is_new: bool,
}

pub(crate) async fn put(
    State(state): State<CacheState>,
    Path(fingerprint): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<EvalCacheAnswer>, Error> {
    let mut chunks = body.into_data_stream();
    let answer = take(&state, &fingerprint, &headers, &mut chunks).await;
    if answer.is_err() {
        drain(chunks).await;
    }
    let outcome = match &answer {
        Ok(true) => "stored",
        Ok(false) => "present",
        Err(_) => "refused",
    };
    metrics::counter!("gradient_cache_eval_cache_uploads_total", "outcome" => outcome).increment(1);
    answer.map(|is_new| Json(EvalCacheAnswer { is_new }))
}

async fn take(
    state: &CacheState,
    fingerprint: &str,
    headers: &HeaderMap,
    chunks: &mut BodyDataStream,
) -> Result<bool, Error> {
    match state.caller(bearer(headers))? {
        Caller::Assignment(token) if token.job.starts_with(JOB_PREFIX) => {}
        Caller::Assignment(_) | Caller::Cluster => {
            return Err(Error::Forbidden("evaluation caches come from evaluations only"));
        }
    }
    let fingerprint = Fingerprint::parse(fingerprint)?;
    let turn = tokio::time::timeout(TURN_MAX, state.0.eval_caches.writers.acquire()).await;
    let _turn = turn.map_err(|_| Error::Interrupted("too many others are being sent".into()))?;
    let received = tokio::time::timeout(TRANSFER_MAX, receive(state, chunks)).await;
    let staged = received
        .map_err(|_| Error::Interrupted(format!("not complete after {TRANSFER_MAX:?}")))
        .flatten()?;
    let state = state.clone();
    blocking(move || state.0.eval_caches.place(&fingerprint, &staged)).await
}

async fn receive(state: &CacheState, chunks: &mut BodyDataStream) -> Result<Staged, Error> {
    let of = state.clone();
    let mut incoming = blocking(move || of.0.eval_caches.receive()).await?;
    while let Some(chunk) = next_chunk(state, chunks).await? {
        incoming = blocking(move || incoming.take(&chunk)).await?;
    }
    blocking(move || incoming.finish()).await
}

pub(crate) async fn get(
    State(state): State<CacheState>,
    Path(fingerprint): Path<String>,
) -> Result<Response, Error> {
    let fingerprint = Fingerprint::parse(&fingerprint)?;
    let turn = state.0.eval_caches.readers.clone().acquire_owned();
    let Ok(Ok(turn)) = tokio::time::timeout(TURN_MAX, turn).await else {
        return Err(Error::Interrupted("too many others are being read".into()));
    };
    let stall_secs = state.0.settings.stall_secs;
    let found = blocking(move || state.0.eval_caches.file(&fingerprint)).await;
    let outcome = if found.is_ok() { "found" } else { "absent" };
    metrics::counter!("gradient_cache_eval_cache_reads_total", "outcome" => outcome).increment(1);
    let (file, size) = found?;
    let encoder = Encoder::new(Vec::new(), ZSTD_LEVEL).map_err(|error| Error::storage(&error))?;
    let stall = Duration::from_secs(stall_secs.max(1));
    let (to, from) = mpsc::channel(1);
    tokio::spawn(async move {
        let sent = Outgoing { file, encoder }.send(&to, stall);
        let sent = tokio::time::timeout(TRANSFER_MAX, sent).await;
        drop(turn);
        let error = match sent {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not complete after {TRANSFER_MAX:?}"),
        };
        tracing::info!(error, "an evaluation cache was not sent to its end");
    });
    let body = Body::from_stream(stream::unfold(Some(from), received));
    let headers = [(header::CONTENT_TYPE, "application/zstd"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, [(EVAL_CACHE_SIZE_HEADER, size.to_string())], body).into_response())
}

/// What the body of an answer gives next. The sender says where the end is: whoever gets less knows it.
async fn received(
    from: Option<mpsc::Receiver<Option<Bytes>>>,
) -> Option<(Result<Bytes, Error>, Option<mpsc::Receiver<Option<Bytes>>>)> {
    let mut from = from?;
    match from.recv().await {
        Some(Some(piece)) => Some((Ok(piece), Some(from))),
        Some(None) => None,
        None => Some((Err(Error::Interrupted("it took too long".into())), None)),
    }
}

/// A cache on its way to a reader. No thread waits while the reader is slow.
struct Outgoing {
    file: File,
    encoder: Encoder<'static, Vec<u8>>,
}

impl Outgoing {
    /// Sends everything to a reader who takes each piece in time.
    async fn send(self, to: &mpsc::Sender<Option<Bytes>>, stall: Duration) -> Result<(), Error> {
        let mut rest = Some(self);
        loop {
            let piece = match rest {
                Some(this) => {
                    let read = move || this.piece().map_err(|error| Error::storage(&error));
                    let (piece, more) = blocking(read).await?;
                    rest = more;
                    Some(piece)
                }
                None => None,
            };
            let is_end = piece.is_none();
            match tokio::time::timeout(stall, to.send(piece)).await {
                Err(_) => return Err(Error::Interrupted(format!("no byte taken for {stall:?}"))),
                Ok(Err(_)) => return Err(Error::Interrupted("the reader is gone".into())),
                Ok(Ok(())) if is_end => return Ok(()),
                Ok(Ok(())) => {}
            }
        }
    }

    /// The next compressed bytes, and what follows them. Blocks.
    fn piece(mut self) -> std::io::Result<(Bytes, Option<Self>)> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = self.file.read(&mut piece)?;
            if count == 0 {
                return Ok((self.encoder.finish()?.into(), None));
            }
            self.encoder.write_all(&piece[..count])?;
            let compressed = std::mem::take(self.encoder.get_mut());
            if !compressed.is_empty() {
                return Ok((compressed.into(), Some(self)));
            }
        }
    }
}

/// Runs on the pool of blocking threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::Storage(error.to_string())))
}
