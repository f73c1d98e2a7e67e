//! `POST /cache/upload/<store path base name>`: a NAR and what it claims to be.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt as _;
use gradient_daemon::path_info::parse_sha256;
use gradient_daemon::{NarInfo, PathInfo};
use gradient_domain::{StorePath, nix_base32};
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Seen, Verdict};
use crate::error::Error;
use crate::http::bearer;
use crate::objects::Staged;
use crate::receive::{Received, Receiver};
use crate::settings::{CacheState, Caller};

/// The header that holds [`UploadMetadata`] as JSON.
pub const METADATA_HEADER: &str = "gradient-path-info";

/// Most references of one path.
const REFERENCES_MAX: usize = 5_000;

/// Bytes of a body that are read and thrown away before a refusal, so that the sender reads it.
const DRAIN_BYTES_MAX: u64 = 1 << 20;

/// What the sender says of the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadMetadata {
    /// SHA-256 of the NAR: `sha256:` and base 32, or base 16.
    pub nar_hash: String,
    /// Size of the NAR in bytes.
    pub nar_size: u64,
    /// Base names of the paths that it mentions.
    #[serde(default)]
    pub references: Vec<String>,
    /// Base name of the derivation it was built from.
    #[serde(default)]
    pub deriver: Option<String>,
    /// Content address such as `fixed:r:sha256:<base 32>`.
    #[serde(default)]
    pub ca: Option<String>,
}

/// What the cache has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadAnswer {
    /// Whether this upload was taken; false when the path was there already.
    pub is_new: bool,
    /// `sha256:` and base 32 of the NAR that the cache has.
    pub nar_hash: String,
    /// Its size in bytes.
    pub nar_size: u64,
    /// Size of the compressed file in bytes.
    pub file_size: u64,
}

impl From<(&NarInfo, bool)> for UploadAnswer {
    fn from((narinfo, is_new): (&NarInfo, bool)) -> Self {
        UploadAnswer {
            is_new,
            nar_hash: narinfo.info.nar_hash_text(),
            nar_size: narinfo.info.nar_size,
            file_size: narinfo.file_size,
        }
    }
}

/// [`UploadMetadata`], parsed.
struct Announced {
    path: StorePath,
    nar_hash: [u8; 32],
    nar_size: u64,
    references: BTreeSet<StorePath>,
    deriver: Option<StorePath>,
    claim: Option<(String, Claim)>,
}

impl Announced {
    fn parse(name: &str, headers: &HeaderMap) -> Result<Self, Error> {
        let path_of = |name: &str| {
            StorePath::from_base_name(name).map_err(|error| Error::Malformed(error.to_string()))
        };
        let path = path_of(name)?;
        let header = headers.get(METADATA_HEADER);
        let header = header.map_or(&b""[..], |value| value.as_bytes());
        let metadata: UploadMetadata = serde_json::from_slice(header)
            .map_err(|error| Error::Malformed(format!("header {METADATA_HEADER}: {error}")))?;
        let malformed = |what: &str| Error::Malformed(format!("{what} cannot be read"));
        let references = metadata.references.iter().map(|name| path_of(name));
        let references: BTreeSet<StorePath> = references.collect::<Result<_, _>>()?;
        if references.len() > REFERENCES_MAX {
            return Err(malformed("a list of so many references"));
        }
        let claim = match metadata.ca.filter(|text| !text.is_empty()) {
            Some(text) => {
                let claim = Claim::parse(&text).ok_or_else(|| malformed("the content address"))?;
                Some((text, claim))
            }
            None => None,
        };
        Ok(Announced {
            path,
            nar_hash: parse_sha256(&metadata.nar_hash).ok_or_else(|| malformed("the NAR hash"))?,
            nar_size: metadata.nar_size,
            references,
            deriver: metadata.deriver.as_deref().map(path_of).transpose()?,
            claim,
        })
    }
}

pub(crate) async fn upload(
    State(state): State<CacheState>,
    Path(name): Path<String>,
    headers: HeaderMap,
    mut body: Body,
) -> Result<Json<UploadAnswer>, Error> {
    let answer = receive_upload(&state, &name, &headers, &mut body).await;
    if answer.is_err() || answer.as_ref().is_ok_and(|answer| !answer.is_new) {
        drain(body.into_data_stream()).await;
    }
    let outcome = match &answer {
        Ok(answer) if answer.is_new => "stored",
        Ok(_) => "present",
        Err(_) => "refused",
    };
    metrics::counter!("gradient_cache_uploads_total", "outcome" => outcome).increment(1);
    answer.map(Json)
}

async fn receive_upload(
    state: &CacheState,
    name: &str,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<UploadAnswer, Error> {
    let caller = state.caller(bearer(headers))?;
    let announced = Announced::parse(name, headers)?;
    let objects = &state.0.objects;
    let limit = state.0.settings.nar_size_max_bytes;
    if announced.nar_size > limit {
        return Err(Error::TooLarge { what: "the NAR", limit });
    }
    if matches!(caller, Caller::Cluster) && announced.claim.is_none() {
        return Err(Error::Forbidden("this token allows content-addressed paths only"));
    }
    if let Some(there) = objects.narinfo(&announced.path).await? {
        return Ok((&there, false).into());
    }
    check_references(state, &announced).await?;
    let permit = state.0.uploads.acquire().await;
    let mut staged = objects.stage().await?;
    let received = receive(state, announced.nar_size, body, &mut staged).await;
    let checked = received.and_then(|received| check(state, &caller, &announced, &received));
    let narinfo = match checked {
        Ok(narinfo) => narinfo,
        Err(error) => {
            staged.discard().await;
            return Err(error);
        }
    };
    objects.place(staged, narinfo.0).await?;
    drop(permit);
    let narinfo = narinfo.1;
    if objects.publish(&narinfo).await? {
        metrics::counter!("gradient_cache_stored_bytes_total").increment(narinfo.file_size);
        return Ok((&narinfo, true).into());
    }
    // Somebody else was first; what they wrote stays.
    let first = objects.narinfo(&announced.path).await?;
    Ok((first.as_ref().unwrap_or(&narinfo), false).into())
}

async fn check_references(state: &CacheState, announced: &Announced) -> Result<(), Error> {
    let mut missing = Vec::new();
    for path in &announced.references {
        if *path != announced.path && state.0.objects.narinfo(path).await?.is_none() {
            missing.push(path.to_string());
        }
    }
    match missing.first() {
        None => Ok(()),
        Some(first) => Err(Error::Unverified(format!(
            "{} of its references are not in the cache (first: {first})",
            missing.len()
        ))),
    }
}

/// Reads the body into the staged object and the checker.
async fn receive(
    state: &CacheState,
    nar_size: u64,
    body: &mut Body,
    staged: &mut Staged,
) -> Result<Received, Error> {
    let file_limit = nar_size + nar_size / 8 + (64 << 10);
    let mut receiver = Receiver::new(nar_size)?;
    let mut chunks = std::mem::take(body).into_data_stream();
    while let Some(chunk) = next_chunk(state, &mut chunks).await? {
        if receiver.file_size() + chunk.len() as u64 > file_limit {
            return Err(Error::TooLarge { what: "the compressed NAR", limit: file_limit });
        }
        receiver = receiver.take(chunk.clone()).await?;
        staged.write(&chunk).await?;
    }
    receiver.finish()
}

/// The next bytes of a body; `None` at its end.
pub(crate) async fn next_chunk(
    state: &CacheState,
    chunks: &mut BodyDataStream,
) -> Result<Option<Bytes>, Error> {
    let stall = Duration::from_secs(state.0.settings.stall_secs.max(1));
    match tokio::time::timeout(stall, chunks.next()).await {
        Err(_) => Err(Error::Interrupted(format!("no byte for {stall:?}"))),
        Ok(Some(Err(error))) => Err(Error::Interrupted(error.to_string())),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(None) => Ok(None),
    }
}

/// Compares what came with what was announced; the narinfo of it, signed.
fn check(
    state: &CacheState,
    caller: &Caller,
    announced: &Announced,
    received: &Received,
) -> Result<(crate::objects::FileHash, NarInfo), Error> {
    if received.nar_hash != announced.nar_hash {
        return Err(Error::Unverified(format!(
            "the NAR has the hash sha256:{}, not the announced one",
            nix_base32::encode(&received.nar_hash)
        )));
    }
    let mut content_address = String::new();
    if let Some((text, claim)) = &announced.claim {
        let seen = Seen {
            path: &announced.path,
            references: &announced.references,
            nar_sha256: &received.nar_hash,
            file: received.file,
        };
        match claim.verify(&seen).map_err(Error::Unverified)? {
            Verdict::Verified => text.clone_into(&mut content_address),
            Verdict::Unverifiable if matches!(caller, Caller::Cluster) => {
                return Err(Error::Forbidden(
                    "this token needs a content address that the cache can verify",
                ));
            }
            Verdict::Unverifiable => {}
        }
    }
    let mut narinfo = NarInfo {
        path: announced.path.clone(),
        url: received.file_hash.url(),
        compression: "zstd".into(),
        file_hash: received.file_hash.0,
        file_size: received.file_size,
        info: PathInfo {
            deriver: announced.deriver.clone(),
            nar_hash: received.nar_hash,
            nar_size: received.nar_size,
            references: announced.references.clone(),
            signatures: BTreeSet::new(),
            content_address,
            is_ultimate: false,
        },
    };
    let signature = state.0.key.sign(&narinfo.fingerprint());
    narinfo.info.signatures.insert(signature);
    Ok((received.file_hash, narinfo))
}

/// Reads a little more of a body that is not wanted: a sender that is cut off in the middle of
/// sending would see a broken connection instead of the answer.
pub(crate) async fn drain(mut chunks: BodyDataStream) {
    let mut drained = 0;
    let limit = Duration::from_secs(2);
    while let Ok(Some(Ok(chunk))) = tokio::time::timeout(limit, chunks.next()).await {
        drained += chunk.len() as u64;
        if drained > DRAIN_BYTES_MAX {
            return;
        }
    }
}
