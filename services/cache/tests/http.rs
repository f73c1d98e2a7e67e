//! The service over HTTP, without Nix.

mod service;

use std::collections::BTreeSet;
use std::time::Duration;

use gradient_cache::METADATA_HEADER;
use gradient_daemon::nar::{Digest, pack};
use gradient_daemon::{NarInfo, store_path_of};
use gradient_domain::{StorePath, nix_base32};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use service::{CLUSTER, Service, text};

const JOB: &str = "build:00000001";

/// A source tree of one file, as an upload.
struct Source {
    path: StorePath,
    metadata: Value,
    compressed: Vec<u8>,
}

fn source(contents: &[u8]) -> Source {
    let dir = tempfile::tempdir().expect("temporary folder");
    std::fs::write(dir.path().join("file"), contents).expect("writes");
    let mut nar = Vec::new();
    pack(dir.path(), &|_| true, &mut nar).expect("packs");
    let mut digest = Digest::default();
    digest.update(&nar);
    let (nar_hash, nar_size) = digest.finish();
    let hash = nix_base32::encode(&nar_hash);
    Source {
        path: store_path_of::source(&nar_hash, &BTreeSet::new(), "src").expect("valid"),
        metadata: json!({
            "nar_hash": format!("sha256:{hash}"),
            "nar_size": nar_size,
            "ca": format!("fixed:r:sha256:{hash}"),
        }),
        compressed: zstd::encode_all(nar.as_slice(), 3).expect("compresses"),
    }
}

impl Service {
    async fn upload(&self, token: &str, name: &str, metadata: &Value, body: Vec<u8>) -> Response {
        let request = self.client.post(format!("{}/cache/upload/{name}", self.url));
        let request = request.header(METADATA_HEADER, metadata.to_string()).body(body);
        request.bearer_auth(token).send().await.expect("answers")
    }

    async fn upload_source(&self, token: &str, source: &Source) -> Response {
        let name = source.path.base_name();
        self.upload(token, name, &source.metadata, source.compressed.clone()).await
    }

    async fn post(&self, path: &str, token: &str, body: &str) -> Response {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(token);
        request.body(body.to_owned()).send().await.expect("answers")
    }

    /// Files of the cache, to see that nothing is left behind.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        for folder in ["cache", "cache/nar", "cache/staging"] {
            for entry in std::fs::read_dir(self.dir.path().join(folder)).expect("lists").flatten() {
                if entry.path().is_file() {
                    files.push(entry.path().display().to_string());
                }
            }
        }
        files
    }
}

#[tokio::test]
async fn an_upload_is_served_and_written_once() {
    let service = Service::start().await;
    let source = source(b"hello");
    let info = text(service.get("/cache/nix-cache-info").await).await;
    assert_eq!(info, "StoreDir: /nix/store\nWantMassQuery: 1\nPriority: 10\n");
    let answer = service.upload_source(CLUSTER, &source).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let answer: Value = answer.json().await.expect("JSON");
    assert_eq!(answer["is_new"], true);
    let again: Value = service.upload_source(CLUSTER, &source).await.json().await.expect("JSON");
    assert_eq!(again["is_new"], false);

    let url = format!("/cache/{}.narinfo", source.path.hash_part());
    let narinfo = NarInfo::parse(&text(service.get(&url).await).await).expect("parses");
    assert_eq!(narinfo.path, source.path);
    assert_eq!(narinfo.info.content_address, source.metadata["ca"]);
    let key = service.state.public_key();
    assert!(key.verifies(&narinfo.fingerprint(), &narinfo.info.signatures));
    assert_eq!(text(service.get("/cache/public-key").await).await.trim(), key.to_string());
    let nar = service.get(&format!("/cache/{}", narinfo.url)).await;
    assert_eq!(nar.content_length(), Some(narinfo.file_size));
    assert_eq!(nar.bytes().await.expect("body"), source.compressed);

    let absent = "0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-absent";
    let request = service.client.post(format!("{}/cache/missing", service.url));
    let names = json!([source.path.base_name(), absent]);
    let answer: Value =
        request.json(&names).send().await.expect("answers").json().await.expect("JSON");
    assert_eq!(answer["missing"], json!([absent]));
    assert_eq!(answer["present"][source.path.base_name()], source.metadata["nar_size"]);
    assert_eq!(service.files().len(), 2);
}

#[tokio::test]
async fn what_cannot_be_verified_leaves_nothing() {
    let service = Service::start().await;
    let (good, other) = (source(b"good"), source(b"other"));
    let name = good.path.base_name();
    let with = |key: &str, value: Value| {
        let mut metadata = good.metadata.clone();
        metadata[key] = value;
        metadata
    };
    let worker = service::worker_token(JOB, "a1");
    let bodies = (&good.compressed, &other.compressed);
    let input = |mut metadata: Value| {
        metadata["ca"] = Value::Null;
        metadata
    };
    let absent = json!(["0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-absent"]);
    let rows = [
        ("", name, good.metadata.clone(), bodies.0, 401, "needed"),
        ("x.y", name, good.metadata.clone(), bodies.0, 401, "not valid"),
        (CLUSTER, name, input(good.metadata.clone()), bodies.0, 403, "content-addressed"),
        (CLUSTER, name, json!({}), bodies.0, 400, "nar_hash"),
        (CLUSTER, "..%2f..%2fetc", good.metadata.clone(), bodies.0, 400, "not a store path"),
        (CLUSTER, name, with("nar_size", json!(2 << 20)), bodies.0, 413, "limit"),
        (CLUSTER, name, with("nar_size", json!(24)), bodies.0, 422, "larger than announced"),
        (CLUSTER, name, with("references", absent), bodies.0, 422, "references"),
        (CLUSTER, name, good.metadata.clone(), bodies.1, 422, ""),
        (
            &worker,
            name,
            input(with("nar_hash", other.metadata["nar_hash"].clone())),
            bodies.0,
            422,
            "has the hash",
        ),
        (CLUSTER, other.path.base_name(), good.metadata.clone(), bodies.0, 422, "belongs to"),
        (CLUSTER, name, with("ca", json!("fixed:r:sha256:0")), bodies.0, 400, "content address"),
    ];
    for (token, name, metadata, body, status, words) in rows {
        let answer = service.upload(token, name, &metadata, body.clone()).await;
        let got = answer.status().as_u16();
        let message = text(answer).await;
        assert_eq!(got, status, "{message} for {words}");
        assert!(message.contains(words), "{message} for {words}");
    }
    assert_eq!(service.files(), Vec::<String>::new());
    let answer =
        service.upload(&worker, name, &input(good.metadata.clone()), good.compressed.clone()).await;
    assert_eq!(answer.status(), StatusCode::OK, "a worker may upload by input");
}

#[tokio::test]
async fn a_broken_off_upload_leaves_nothing() {
    use tokio::io::AsyncWriteExt as _;
    let service = Service::start().await;
    let source = source(&b"0123456789".repeat(1000));
    let address = service.url.strip_prefix("http://").expect("http");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connects");
    let head = format!(
        "POST /cache/upload/{} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {CLUSTER}\r\n\
         {METADATA_HEADER}: {}\r\ncontent-length: {}\r\n\r\n",
        source.path.base_name(),
        source.metadata,
        source.compressed.len()
    );
    stream.write_all(head.as_bytes()).await.expect("writes");
    stream.write_all(&source.compressed[..20]).await.expect("writes");
    // Broken off while the service holds a part of it.
    for _ in 0..100 {
        if !service.files().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(stream);
    for _ in 0..100 {
        if service.files().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(service.files(), Vec::<String>::new());
    let url = format!("/cache/{}.narinfo", source.path.hash_part());
    assert_eq!(service.get(&url).await.status(), StatusCode::NOT_FOUND);
    let answer = service.upload_source(CLUSTER, &source).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn logs_grow_and_are_followed() {
    let service = Service::start().await;
    let token = service::worker_token(JOB, "a7");
    assert_eq!(service.get("/logs/a7").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(service.post("/logs/a7?offset=0", "", "x").await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        service.post("/logs/a8?offset=0", &token, "x").await.status(),
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        service.post("/logs/A7?offset=0", &token, "x").await.status(),
        StatusCode::BAD_REQUEST
    );
    let large = "x".repeat((1 << 20) + 1);
    let answer = service.post("/logs/a7?offset=0", &token, &large).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(service.post("/logs/a7?offset=0", &token, "one\n").await.status(), StatusCode::OK);
    let answer = service.post("/logs/a7?offset=0", &token, "one\n").await;
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert_eq!(answer.json::<Value>().await.expect("JSON")["offset"], 4);

    let mut follower = service.get("/logs/a7?offset=2&follow=true").await;
    assert_eq!(follower.headers()["gradient-log-finished"], "false");
    assert_eq!(follower.chunk().await.expect("body").expect("a chunk"), "e\n");
    service.post("/logs/a7?offset=4", &token, "two\n").await;
    assert_eq!(follower.chunk().await.expect("body").expect("a chunk"), "two\n");
    assert_eq!(text(service.get("/logs/a7").await).await, "one\ntwo\n");
    assert_eq!(service.post("/logs/a7/finish", &token, "").await.status(), StatusCode::OK);
    assert_eq!(follower.chunk().await.expect("body"), None);
    let late = service.post("/logs/a7?offset=8", &token, "x").await;
    assert_eq!(late.status(), StatusCode::CONFLICT);
    assert_eq!(text(service.get("/logs/a7?offset=4&follow=true").await).await, "two\n");
}
