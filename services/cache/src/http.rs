//! The routes, and what Nix reads.

use std::collections::BTreeMap;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use gradient_domain::StorePath;
use gradient_domain::store_path::STORE_DIR;
use serde_json::{Value, json};

use crate::error::Error;
use crate::objects::{FileHash, HashPart};
use crate::settings::CacheState;
use crate::{eval_cache_http, log_http, upload};

/// Paths of one question what is missing.
const MISSING_PATHS_MAX: usize = 1_000;

/// Bytes of one piece of a log.
const LOG_PIECE_BYTES_MAX: usize = 1 << 20;

/// Lower wins among the substituters of Nix.
const PRIORITY: u32 = 10;

/// The service. Reading needs no token; whoever can reach it can read.
///
/// | Route | |
/// |---|---|
/// | `GET /cache/nix-cache-info`, `/cache/<hash>.narinfo`, `/cache/nar/<hash>.nar.zst` | what Nix reads |
/// | `GET /cache/public-key` | for `trusted-public-keys` |
/// | `POST /cache/missing` | JSON list of up to 1000 base names → which are missing, NAR sizes of the others |
/// | `POST /cache/upload/<base name>` | compressed NAR; header `gradient-path-info` |
/// | `POST /logs/<id>?offset=N`, `POST /logs/<id>/finish` | grow and finish a log |
/// | `GET /logs/<id>?offset=N&follow=true` | read a log |
/// | `GET`, `PUT /eval-cache/<fingerprint>` | fetch and give an evaluation cache, compressed with zstd |
pub fn router(state: CacheState) -> Router {
    let logs = get(log_http::read)
        .post(log_http::append)
        .layer(DefaultBodyLimit::max(LOG_PIECE_BYTES_MAX));
    Router::new()
        .route("/cache/nix-cache-info", get(cache_info))
        .route("/cache/public-key", get(public_key))
        .route("/cache/missing", post(missing))
        .route("/cache/upload/{name}", post(upload::upload))
        .route("/cache/nar/{file}", get(nar))
        .route("/cache/{file}", get(narinfo))
        .route("/logs/{id}", logs)
        .route("/logs/{id}/finish", post(log_http::finish))
        .route("/eval-cache/{fingerprint}", get(eval_cache_http::get).put(eval_cache_http::put))
        .with_state(state)
}

/// The token of `Authorization: Bearer <token>`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

async fn cache_info() -> Response {
    let text = format!("StoreDir: {STORE_DIR}\nWantMassQuery: 1\nPriority: {PRIORITY}\n");
    ([(header::CONTENT_TYPE, "text/x-nix-cache-info")], text).into_response()
}

async fn public_key(State(state): State<CacheState>) -> String {
    format!("{}\n", state.public_key())
}

async fn narinfo(
    State(state): State<CacheState>,
    Path(file): Path<String>,
) -> Result<Response, Error> {
    let Some(hash) = HashPart::parse_file_name(&file) else {
        return Err(Error::NotFound(file));
    };
    match state.0.objects.narinfo_text(&hash).await? {
        Some(text) => Ok(([(header::CONTENT_TYPE, "text/x-nix-narinfo")], text).into_response()),
        None => Err(Error::NotFound(file)),
    }
}

async fn nar(State(state): State<CacheState>, Path(file): Path<String>) -> Result<Response, Error> {
    let Some(hash) = FileHash::parse_file_name(&file) else {
        return Err(Error::NotFound(file));
    };
    let (body, size) = state.0.objects.nar(hash).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-nix-nar".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
        (header::CACHE_CONTROL, "immutable, max-age=31536000".to_owned()),
    ];
    Ok((headers, body).into_response())
}

async fn missing(
    State(state): State<CacheState>,
    Json(names): Json<Vec<String>>,
) -> Result<Json<Value>, Error> {
    if names.len() > MISSING_PATHS_MAX {
        return Err(Error::Malformed(format!(
            "{} paths in one question, at most {MISSING_PATHS_MAX} allowed",
            names.len()
        )));
    }
    let (mut missing, mut present) = (Vec::new(), BTreeMap::new());
    for name in names {
        let path = StorePath::from_base_name(&name)
            .map_err(|error| Error::Malformed(error.to_string()))?;
        match state.0.objects.narinfo(&path).await? {
            Some(narinfo) => {
                present.insert(name, narinfo.info.nar_size);
            }
            None => missing.push(name),
        }
    }
    Ok(Json(json!({ "missing": missing, "present": present })))
}
