//! The client of the cache service: store paths down to the local daemon and up from it, the pieces
//! of build logs, and evaluation caches.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use gradient_daemon::nar::SingleFile;
use gradient_daemon::{NarInfo, PublicKey};
use gradient_domain::{EvaluationId, SshKey, StorePath, is_trusted_way};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

mod closure;
mod error;
mod eval_cache;
mod in_order;
mod nar_reader;
mod upload;

pub use closure::Fetched;
pub use error::CacheError;
pub use eval_cache::{EVAL_CACHE_BYTES_MAX, compress_eval_cache};
pub use nar_reader::NarReader;
pub use upload::Uploaded;

/// Transfers at the same time for one closure.
pub const TRANSFERS_MAX: usize = 8;

/// Attempts of a request that fails on the way.
const ATTEMPTS_MAX: u32 = 4;
/// Pause after the first failed attempt; doubled after each.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// A transfer that brings no byte for so long has failed.
const STALL_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Paths of one question what is missing.
const MISSING_PATHS_MAX: usize = 1_000;

/// A client of one cache. Cloning shares its connections.
#[derive(Clone, Debug)]
pub struct CacheClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    http: Client,
    /// For uploads: an answer that takes long is no failure as long as bytes go out.
    http_up: Client,
    /// Without a slash at its end.
    base_url: String,
    key: PublicKey,
    fetching: in_order::Turns,
}

/// Which of some paths the cache has.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Presence {
    /// Those it lacks.
    pub missing: BTreeSet<StorePath>,
    /// Sizes in bytes of the NARs that it has.
    pub nar_sizes: BTreeMap<StorePath, u64>,
}

#[derive(Deserialize)]
struct PresenceAnswer {
    missing: Vec<String>,
    present: BTreeMap<String, u64>,
}

#[derive(Deserialize, Default)]
pub(crate) struct Refusal {
    #[serde(default)]
    pub(crate) error: String,
    #[serde(default)]
    pub(crate) message: String,
    /// The right offset, when that was wrong.
    #[serde(default)]
    pub(crate) offset: Option<u64>,
}

fn http_client(builder: ClientBuilder) -> Result<Client, CacheError> {
    let built = builder.connect_timeout(CONNECT_MAX).build();
    built.map_err(|source| CacheError::Transport { what: "HTTP client".into(), source })
}

impl CacheClient {
    /// A client of the service at `base_url` (`http://host:port`), which signs with `key`.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(base_url: &str, key: PublicKey) -> Result<Self, CacheError> {
        Ok(CacheClient {
            shared: Arc::new(Shared {
                http: http_client(Client::builder().read_timeout(STALL_MAX))?,
                http_up: http_client(Client::builder())?,
                base_url: base_url.trim_end_matches('/').to_owned(),
                key,
                fetching: in_order::Turns::default(),
            }),
        })
    }

    /// Asks the service at `base_url` for its key. Only for where the way to it is trusted
    /// (loopback, TLS); else the key comes by configuration.
    ///
    /// # Errors
    /// If the service does not answer with a key.
    pub async fn ask_public_key(base_url: &str) -> Result<PublicKey, CacheError> {
        let url = format!("{}/cache/public-key", base_url.trim_end_matches('/'));
        let http = http_client(Client::builder().read_timeout(STALL_MAX))?;
        let text =
            retry(|| async { body_text(&url, send(&url, http.get(&url)).await?).await }).await?;
        PublicKey::parse(&text)
            .map_err(|error| CacheError::Malformed { what: url.clone(), reason: error.to_string() })
    }

    /// The key that this client trusts.
    #[must_use]
    pub fn public_key(&self) -> &PublicKey {
        &self.shared.key
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.shared.base_url)
    }

    fn http(&self) -> &Client {
        &self.shared.http
    }

    /// The narinfo of a path, its signature verified; `None` if the cache lacks the path.
    ///
    /// # Errors
    /// If the cache cannot be reached after 4 attempts, answers nonsense, or the signature is not
    /// by the trusted key.
    pub async fn narinfo(&self, path: &StorePath) -> Result<Option<NarInfo>, CacheError> {
        let url = self.url(&format!("cache/{}.narinfo", path.hash_part()));
        let text = retry(|| async {
            match send(&url, self.http().get(&url)).await {
                Ok(answer) => body_text(&url, answer).await.map(Some),
                Err(CacheError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        let Some(text) = text.await? else {
            return Ok(None);
        };
        let malformed = |reason: String| CacheError::Malformed { what: url.clone(), reason };
        let narinfo = NarInfo::parse(&text).map_err(|error| malformed(error.to_string()))?;
        if narinfo.path != *path {
            return Ok(None); // another path with the same hash part
        }
        if !self.shared.key.verifies(&narinfo.fingerprint(), &narinfo.info.signatures) {
            return Err(CacheError::Untrusted { path: path.clone() });
        }
        if !matches!(narinfo.compression.as_str(), "zstd" | "none") {
            return Err(malformed(format!("compression {}", narinfo.compression)));
        }
        Ok(Some(narinfo))
    }

    /// Which of the paths the cache has.
    ///
    /// # Errors
    /// If the cache cannot be reached after 4 attempts or answers nonsense.
    pub async fn presence(&self, paths: &BTreeSet<StorePath>) -> Result<Presence, CacheError> {
        let url = self.url("cache/missing");
        let names: Vec<&str> = paths.iter().map(StorePath::base_name).collect();
        let mut presence = Presence::default();
        for page in names.chunks(MISSING_PATHS_MAX) {
            let answer: PresenceAnswer = retry(|| async {
                let answer = send(&url, self.http().post(&url).json(page)).await?;
                answer.json().await.map_err(|source| transport(&url, source))
            })
            .await?;
            let parse = |name: &str| {
                StorePath::from_base_name(name).map_err(|error| CacheError::Malformed {
                    what: url.clone(),
                    reason: error.to_string(),
                })
            };
            for name in &answer.missing {
                presence.missing.insert(parse(name)?);
            }
            for (name, size) in &answer.present {
                presence.nar_sizes.insert(parse(name)?, *size);
            }
        }
        Ok(presence)
    }

    /// Starts to download a NAR; whoever reads it to its end knows that it is the right one.
    ///
    /// # Errors
    /// If the cache cannot be reached or lacks the file.
    pub async fn nar(&self, narinfo: &NarInfo) -> Result<NarReader, CacheError> {
        let url = self.url(&format!("cache/{}", narinfo.url));
        let answer = send(&url, self.http().get(&url)).await?;
        NarReader::new(answer.bytes_stream(), narinfo)
    }

    /// The contents of a path that is a single file, such as a derivation.
    ///
    /// # Errors
    /// If the cache lacks it, it is no file or has more than `limit` bytes, or as
    /// [`CacheClient::narinfo`].
    pub async fn file(&self, path: &StorePath, limit: u64) -> Result<Vec<u8>, CacheError> {
        let Some(narinfo) = self.narinfo(path).await? else {
            return Err(CacheError::NotInCache { paths: BTreeSet::from([path.clone()]) });
        };
        let corrupt = |reason: String| CacheError::Corrupt { path: path.clone(), reason };
        if narinfo.info.nar_size > limit.saturating_add(1024) {
            return Err(corrupt(format!("over the limit of {limit} bytes")));
        }
        retry(|| async {
            let mut nar = Vec::new();
            let mut reader = self.nar(&narinfo).await?;
            let read = reader.read_to_end(&mut nar).await;
            read.map_err(|error| CacheError::from_reading(path, error))?;
            SingleFile::from_nar(&nar, limit).map_err(|fault| corrupt(fault.to_string()))
        })
        .await
    }

    /// The key for SSH that the server keeps for an evaluation, for the hand-out of this token.
    ///
    /// # Errors
    /// If others could read the key on its way, or the server cannot be reached after 4 attempts,
    /// refuses, or has no key.
    pub async fn ssh_key(
        &self,
        evaluation: EvaluationId,
        token: &str,
    ) -> Result<SshKey, CacheError> {
        let url = self.url(&format!("api/v1/evaluations/{evaluation}/ssh-key"));
        if !is_trusted_way(&url) {
            return Err(CacheError::OpenWay { what: url });
        }
        let text = retry(|| async {
            body_text(&url, send(&url, self.http().get(&url).bearer_auth(token)).await?).await
        });
        SshKey::new(text.await?)
            .map_err(|error| CacheError::Malformed { what: url, reason: error.to_string() })
    }

    /// Adds a piece to a log at `offset`; the length of the log then. Asked twice for the same
    /// piece it is added once.
    ///
    /// # Errors
    /// If the cache cannot be reached after 4 attempts or refuses.
    pub async fn append_log(
        &self,
        id: &str,
        token: &str,
        offset: u64,
        piece: &bytes::Bytes,
    ) -> Result<u64, CacheError> {
        let url = self.url(&format!("logs/{id}?offset={offset}"));
        let length = offset + piece.len() as u64;
        let appended = retry(|| async {
            let request = self.http().post(&url).bearer_auth(token).body(piece.clone());
            send(&url, request).await.map(drop)
        });
        match appended.await {
            Ok(()) => Ok(length),
            // The answer to an earlier attempt got lost.
            Err(CacheError::Refused { offset: Some(right), .. }) if right == length => Ok(length),
            Err(error) => Err(error),
        }
    }

    /// Marks a log as finished.
    ///
    /// # Errors
    /// If the cache cannot be reached after 4 attempts or refuses.
    pub async fn finish_log(&self, id: &str, token: &str) -> Result<(), CacheError> {
        let url = self.url(&format!("logs/{id}/finish"));
        retry(|| async { send(&url, self.http().post(&url).bearer_auth(token)).await.map(drop) })
            .await
    }
}

fn transport(what: &str, source: reqwest::Error) -> CacheError {
    CacheError::Transport { what: what.to_owned(), source }
}

async fn body_text(url: &str, answer: Response) -> Result<String, CacheError> {
    answer.text().await.map_err(|source| transport(url, source))
}

/// Sends a request; an answer other than success is an error.
async fn send(url: &str, request: RequestBuilder) -> Result<Response, CacheError> {
    let answer = request.send().await.map_err(|source| transport(url, source))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let refusal: Refusal = answer.json().await.unwrap_or_default();
    Err(CacheError::Refused {
        what: url.to_owned(),
        status,
        code: refusal.error,
        message: refusal.message,
        offset: refusal.offset,
    })
}

/// Up to 4 attempts, with a growing pause between them, as long as the error may pass.
async fn retry<T, F: Future<Output = Result<T, CacheError>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<T, CacheError> {
    let mut pause = RETRY_PAUSE;
    for _ in 1..ATTEMPTS_MAX {
        match attempt().await {
            Err(error) if error.may_pass() => {
                tracing::debug!(%error, ?pause, "cache request failed; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            result => return result,
        }
    }
    attempt().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_are_asked_for_over_loopback_or_tls() {
        let key =
            PublicKey::parse("k:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=").expect("a key");
        let client = CacheClient::new("http://cache.invalid", key).expect("a client");
        let asked = client.ssh_key(EvaluationId([7; 16]), "token").await;
        let error = asked.expect_err("refused");
        assert!(matches!(error, CacheError::OpenWay { .. }), "{error:?}");
        assert_eq!(error.failure_kind(), gradient_events::FailureKind::Permanent);
    }
}
