//! Evaluation caches through the client: whole, bounded, and tried again.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use common::{CLUSTER_TOKEN, Cache, token_of};
use gradient_domain::pattern::PatternSet;
use gradient_evalcache::{EvalCache, Request, snapshot};
use gradient_ipc::shard::Recursion;
use gradient_worker::cache_client::{
    CacheClient, CacheError, EVAL_CACHE_BYTES_MAX, compress_eval_cache,
};

const FINGERPRINT: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

/// A file that answers one request.
fn complete(dir: &Path) -> Vec<u8> {
    let path = dir.join("one.sqlite");
    let open = || EvalCache::open(&path, FINGERPRINT).expect("a cache");
    let patterns = PatternSet { includes: Vec::new(), excludes: Vec::new() };
    let request = Request::new(patterns, Recursion::Pattern);
    assert!(open().complete(&request, &[], |_| true).expect("noted"));
    let copy = dir.join("copy");
    snapshot(&open(), &copy).expect("copied");
    std::fs::read(copy).expect("read")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_gives_another_fetches() {
    let service = Cache::start().await;
    let dir = tempfile::tempdir().expect("a folder");
    let (to, compressed) = (dir.path().join("to"), dir.path().join("compressed"));
    let fetch = || service.client.fetch_eval_cache(FINGERPRINT, &to);
    assert_eq!(fetch().await.expect("asked"), None);
    assert!(!to.exists());

    let cache = complete(dir.path());
    compress_eval_cache(&dir.path().join("copy"), &compressed).expect("compressed");
    let token = token_of("eval:00000001", "a1");
    let refused = service.client.give_eval_cache(FINGERPRINT, &compressed, CLUSTER_TOKEN).await;
    assert!(
        matches!(refused, Err(CacheError::Refused { status: StatusCode::FORBIDDEN, .. })),
        "{refused:?}"
    );
    let give = || service.client.give_eval_cache(FINGERPRINT, &compressed, &token);
    assert!(give().await.expect("given"));
    assert!(!give().await.expect("there"), "it answers no more than the first");
    assert_eq!(fetch().await.expect("fetched"), Some(cache.len() as u64));
    assert_eq!(std::fs::read(&to).expect("read"), cache);
}

#[tokio::test]
async fn what_is_too_large_is_not_even_compressed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, compressed) = (dir.path().join("large"), dir.path().join("compressed"));
    let large = std::fs::File::create(&file).expect("made");
    large.set_len(EVAL_CACHE_BYTES_MAX + 1).expect("sparse");
    let refused = compress_eval_cache(&file, &compressed).expect_err("too large");
    assert!(refused.to_string().contains("over the limit"), "{refused}");
    assert!(!compressed.exists());
}

/// A service that answers with these bytes, after it failed so often.
async fn answering(body: Vec<u8>, failures: u32) -> (CacheClient, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    let handler = get(move || async move {
        match counter.fetch_add(1, Ordering::SeqCst) < failures {
            true => Err(StatusCode::SERVICE_UNAVAILABLE),
            false => Ok(body.clone()),
        }
    });
    let router = Router::new().route("/eval-cache/{fingerprint}", handler);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let key = Cache::start().await.client.public_key().clone();
    (CacheClient::new(&url, key).expect("client"), asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_fails_and_failures_pass() {
    let dir = tempfile::tempdir().expect("a folder");
    let to = dir.path().join("to");
    let (client, asked) = answering(b"no zstd at all".to_vec(), 0).await;
    let junk = client.fetch_eval_cache(FINGERPRINT, &to).await;
    assert!(matches!(junk, Err(CacheError::Malformed { .. })), "{junk:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it would be no better the next time");

    let small = zstd::encode_all(&b"small"[..], 1).expect("compressed");
    let (client, asked) = answering(small, 1).await;
    assert_eq!(client.fetch_eval_cache(FINGERPRINT, &to).await.expect("passes"), Some(5));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(std::fs::read(&to).expect("read"), b"small", "nothing of an earlier attempt");
}
