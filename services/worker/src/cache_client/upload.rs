//! Up: paths of the local store into the cache, references first.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use gradient_daemon::{PathInfo, Pool};
use gradient_domain::StorePath;
use reqwest::Body;
use serde_json::json;
use tokio::sync::mpsc;

use super::error::CacheError;
use super::in_order::in_order;
use super::{CacheClient, TRANSFERS_MAX, retry, send};

/// Header of an upload that describes the path.
const METADATA_HEADER: &str = "gradient-path-info";
/// Level of compression: a worker's time against everybody's bandwidth.
const ZSTD_LEVEL: i32 = 6;
/// Compressed chunks between compressing and sending.
const CHUNKS_IN_FLIGHT_MAX: usize = 4;
/// An upload of which nothing moves for so long has failed; the cache verifies within it.
const UPLOAD_STALL_MAX: Duration = Duration::from_secs(120);
/// Most paths of one upload.
const PATHS_MAX: usize = 200_000;

/// What was uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Uploaded {
    /// Paths that the cache lacked.
    pub paths: usize,
    /// Bytes of their NARs.
    pub nar_bytes: u64,
    /// Time that uploading took.
    pub elapsed: Duration,
}

impl CacheClient {
    /// Uploads the paths and whatever they refer to, as far as the cache lacks it, references
    /// first.
    ///
    /// # Errors
    /// If a path is not valid in the local store, the cache refuses one, or either cannot be
    /// reached after 4 attempts.
    pub async fn upload_closure(
        &self,
        pool: &Pool,
        paths: &BTreeSet<StorePath>,
        token: &str,
    ) -> Result<Uploaded, CacheError> {
        let started = Instant::now();
        let infos = self.missing_closure(pool, paths).await?;
        let graph =
            infos.iter().map(|(path, info)| (path.clone(), info.references.clone())).collect();
        let count = infos.len();
        let mut infos = infos;
        let nar_bytes = Arc::new(AtomicU64::new(0));
        in_order(graph, TRANSFERS_MAX, |path| {
            let info = infos.remove(&path);
            let counter = Arc::clone(&nar_bytes);
            let (client, pool, token) = (self.clone(), pool.clone(), token.to_owned());
            async move {
                if let Some(info) = info {
                    client.upload_known(&pool, &path, &info, &token).await?;
                    counter.fetch_add(info.nar_size, Ordering::Relaxed);
                }
                Ok(())
            }
        })
        .await?;
        Ok(Uploaded {
            paths: count,
            nar_bytes: nar_bytes.load(Ordering::Relaxed),
            elapsed: started.elapsed(),
        })
    }

    /// Uploads one path; the cache must have its references.
    ///
    /// # Errors
    /// As [`CacheClient::upload_closure`].
    pub async fn upload_path(
        &self,
        pool: &Pool,
        path: &StorePath,
        token: &str,
    ) -> Result<(), CacheError> {
        let info = path_info(pool, path).await?;
        self.upload_known(pool, path, &info, token).await
    }

    /// What the cache lacks of the closure. What it has, it has with its closure.
    async fn missing_closure(
        &self,
        pool: &Pool,
        paths: &BTreeSet<StorePath>,
    ) -> Result<BTreeMap<StorePath, PathInfo>, CacheError> {
        let mut infos = BTreeMap::new();
        let mut seen = paths.clone();
        let mut wave = paths.clone();
        while !wave.is_empty() {
            let mut next = BTreeSet::new();
            for path in self.presence(&wave).await?.missing {
                let info = path_info(pool, &path).await?;
                let references = info.references.iter();
                next.extend(references.filter(|r| seen.insert((*r).clone())).cloned());
                infos.insert(path, info);
            }
            if infos.len() > PATHS_MAX {
                return Err(CacheError::Malformed {
                    what: "closure to upload".into(),
                    reason: format!("more than {PATHS_MAX} paths"),
                });
            }
            wave = next;
        }
        Ok(infos)
    }

    async fn upload_known(
        &self,
        pool: &Pool,
        path: &StorePath,
        info: &PathInfo,
        token: &str,
    ) -> Result<(), CacheError> {
        let url = self.url(&format!("cache/upload/{}", path.url_segment()));
        let references: Vec<&str> = info.references.iter().map(StorePath::base_name).collect();
        let metadata = json!({
            "nar_hash": info.nar_hash_text(),
            "nar_size": info.nar_size,
            "references": references,
            "deriver": info.deriver.as_ref().map(StorePath::base_name),
            "ca": info.content_address,
        })
        .to_string();
        retry(|| async {
            let (sender, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT_MAX);
            let producer =
                tokio::spawn(compress(pool.clone(), path.clone(), info.nar_size, sender));
            let sent_chunks = Arc::new(AtomicU64::new(0));
            let body = body(receiver, Arc::clone(&sent_chunks));
            let request = self.shared.http_up.post(&url).bearer_auth(token);
            let request = request.header(METADATA_HEADER, &metadata).body(body);
            let sent = tokio::select! {
                sent = send(&url, request) => sent,
                () = stalled(&sent_chunks) => Err(CacheError::Interrupted {
                    path: path.clone(),
                    source: io::ErrorKind::TimedOut.into(),
                }),
            };
            // A refused upload leaves the producer behind; its connection closes with it. One that
            // failed has the better story to tell.
            if sent.is_err() && !producer.is_finished() {
                producer.abort();
            }
            match (sent, producer.await) {
                (Ok(_), _) => Ok(()),
                (Err(_), Ok(Err(error))) => Err(CacheError::daemon(path)(error)),
                (Err(error), _) => Err(error),
            }
        })
        .await
    }
}

/// The chunks as a body, each counted when it is taken.
fn body(receiver: mpsc::Receiver<io::Result<Bytes>>, taken: Arc<AtomicU64>) -> Body {
    Body::wrap_stream(stream::unfold((receiver, taken), |(mut receiver, taken)| async {
        let chunk = receiver.recv().await?;
        taken.fetch_add(1, Ordering::Relaxed);
        Some((chunk, (receiver, taken)))
    }))
}

/// Ends when no chunk was taken for a while, be it that nothing is read or nothing is answered.
async fn stalled(taken: &AtomicU64) {
    let mut before = taken.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(UPLOAD_STALL_MAX).await;
        let now = taken.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}

async fn path_info(pool: &Pool, path: &StorePath) -> Result<PathInfo, CacheError> {
    let failed = CacheError::daemon(path);
    let mut connection = pool.get().await.map_err(&failed)?;
    match connection.query_path_info(path).await.map_err(&failed)? {
        Some(info) => Ok(info),
        None => Err(CacheError::NotValid { path: path.clone() }),
    }
}

/// Reads the NAR from the daemon and sends it on, compressed. Ends early when nobody listens.
async fn compress(
    pool: Pool,
    path: StorePath,
    nar_size: u64,
    to: mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), gradient_daemon::Error> {
    let failed = |source| gradient_daemon::Error::Source { operation: "compress", source };
    let produce = async {
        let mut connection = pool.get().await?;
        let mut nar = connection.nar_from_path(&path).await?;
        let mut encoder =
            zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL).map_err(failed)?;
        // A derivation needs some KiB then, instead of the 5 MiB for what may be large.
        encoder.set_pledged_src_size(Some(nar_size)).map_err(failed)?;
        while let Some(chunk) = nar.next().await? {
            encoder.write_all(&chunk).map_err(failed)?;
            let compressed = std::mem::take(encoder.get_mut());
            if !compressed.is_empty() && to.send(Ok(compressed.into())).await.is_err() {
                return Ok(());
            }
        }
        let rest = encoder.finish().map_err(failed)?;
        let _ = to.send(Ok(rest.into())).await; // who does not listen needs no end
        Ok(())
    };
    let result = produce.await;
    if result.is_err() {
        let broken = io::Error::other("the local store broke off");
        let _ = to.send(Err(broken)).await;
    }
    result
}
