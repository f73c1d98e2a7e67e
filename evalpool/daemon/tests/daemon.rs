//! The client against a real daemon.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::Daemon;
use gradient_daemon::connection::Trust;
use gradient_daemon::nar::{Digest, SingleFile, pack, pack_async};
use gradient_daemon::{BuildStatus, ClientOptions, Error, LogEvent, PathInfo, store_path_of};
use gradient_domain::{Derivation, StorePath};
use sha2::{Digest as _, Sha256};

async fn nar(daemon: &Daemon, path: &StorePath) -> Vec<u8> {
    let mut connection = daemon.pool.get().await.expect("connection");
    let stream = connection.nar_from_path(path).await.expect("starts");
    stream.read_all(1 << 30).await.expect("reads")
}

async fn derivation(daemon: &Daemon, path: &StorePath) -> Derivation {
    let text = SingleFile::from_nar(&nar(daemon, path).await, 16 << 20).expect("a file");
    Derivation::parse(&text).expect("parses")
}

/// Builds with op 36 and returns the status, the message and the log.
async fn build(
    daemon: &Daemon,
    path: &StorePath,
    options: &ClientOptions,
) -> (BuildStatus, String, String) {
    let parsed = derivation(daemon, path).await;
    let mut connection = daemon.pool.dedicated(options).await.expect("connection");
    assert_eq!(connection.trust(), Trust::Trusted);
    let mut lines = String::new();
    let mut log = |event| {
        if let LogEvent::Line(line) = event {
            lines += &String::from_utf8_lossy(&line);
            lines += "\n";
        }
    };
    let result = connection
        .build_derivation(path, &parsed, &parsed.input_srcs, &mut log)
        .await
        .expect("a result");
    (result.status, result.message, lines)
}

#[tokio::test]
async fn builds_end_with_their_status_and_log() {
    let daemon = Daemon::start().await;
    let none = ClientOptions::default();

    let good = daemon.instantiate("good", "echo one; echo two; echo hi > $out", "");
    let (status, message, log) = build(&daemon, &good, &none).await;
    assert_eq!((status, log.as_str()), (BuildStatus::Built, "one\ntwo\n"), "{message}");
    let (status, _, _) = build(&daemon, &good, &none).await;
    assert_eq!(status, BuildStatus::AlreadyValid);
    let output = derivation(&daemon, &good).await.outputs["out"].path.clone().expect("known");
    let contents = SingleFile::from_nar(&nar(&daemon, &output).await, 10).expect("a file");
    assert_eq!(contents, b"hi\n");

    let bad = daemon.instantiate("bad", "echo broken; exit 3", "");
    let (status, message, log) = build(&daemon, &bad, &none).await;
    assert_eq!((status, log.as_str()), (BuildStatus::PermanentFailure, "broken\n"));
    assert!(message.contains("exit code 3"), "{message}");

    let fixed = "outputHashMode = \"flat\"; outputHashAlgo = \"sha256\"; outputHash = \
                 \"0000000000000000000000000000000000000000000000000000\";";
    let wrong = daemon.instantiate("wrong", "echo hi > $out", fixed);
    let (status, message, _) = build(&daemon, &wrong, &none).await;
    assert_eq!(status, BuildStatus::OutputRejected, "{message}");

    let silent = daemon.instantiate("silent", "read forever < /dev/zero", "");
    let mut limited = none.clone();
    limited.max_silent_secs = 1;
    let (status, message, _) = build(&daemon, &silent, &limited).await;
    assert_eq!(status, BuildStatus::TimedOut);
    assert!(message.contains("silence"), "{message}");
    let chatty = daemon.instantiate("chatty", "while true; do echo x; sleep 0.1 || true; done", "");
    limited.max_silent_secs = 0;
    limited.timeout_secs = 1;
    let (status, message, _) = build(&daemon, &chatty, &limited).await;
    assert_eq!(status, BuildStatus::TimedOut);
    assert!(!message.contains("silence"), "{message}");
}

#[tokio::test]
async fn missing_inputs_are_told() {
    let daemon = Daemon::start().await;
    let input = daemon.instantiate("input", "echo hi > $out", "");
    let absent = derivation(&daemon, &input).await.outputs["out"].path.clone().expect("known");
    let top = daemon.instantiate("top", "echo hi > $out", "");
    let parsed = derivation(&daemon, &top).await;
    let mut connection = daemon.pool.get().await.expect("connection");
    let missing = connection.query_missing(&BTreeSet::from([top.clone()])).await.expect("answers");
    assert_eq!(missing.will_build, BTreeSet::from([top.clone()]));
    let result = connection
        .build_derivation(&top, &parsed, &BTreeSet::from([absent]), &mut |_| {})
        .await
        .expect("a result");
    assert_eq!(result.status, BuildStatus::MiscFailure);
    assert!(result.message.contains("does not exist, and substitution is disabled"));
    let result = connection.build_path_with_results(&top, &mut |_| {}).await.expect("a result");
    assert_eq!(result.status, BuildStatus::Built);
    assert!(connection.is_valid_path(&top).await.expect("answers"));
    // A path that is not there: the daemon breaks off, and the connection is not used again.
    let stream = connection.nar_from_path(&input_of_nobody()).await.expect("starts");
    let broken = stream.read_all(1 << 20).await;
    assert!(matches!(broken, Err(Error::Broken { .. })), "{broken:?}");
    assert!(!connection.is_clean());
}

fn input_of_nobody() -> StorePath {
    StorePath::from_base_name("0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-nobody").expect("valid")
}

#[tokio::test]
async fn a_dropped_connection_kills_the_builder() {
    let daemon = Daemon::start().await;
    let marker = daemon.dir.path().display().to_string();
    let script = format!("echo started; while true; do : {marker}; done");
    let path = daemon.instantiate("endless", &script, "");
    let parsed = derivation(&daemon, &path).await;
    let (sender, mut started) = tokio::sync::mpsc::unbounded_channel();
    let pool = daemon.pool.clone();
    let task = tokio::spawn(async move {
        let mut connection = pool.dedicated(&ClientOptions::default()).await.expect("opens");
        let mut log = |event| drop(sender.send(event));
        let inputs = parsed.input_srcs.clone();
        connection.build_derivation(&path, &parsed, &inputs, &mut log).await.map(drop)
    });
    started.recv().await.expect("the builder started");
    assert!(!builders(&marker).is_empty());
    task.abort();
    let start = Instant::now();
    while !builders(&marker).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "the builder still runs");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Shells whose script holds this text.
fn builders(marker: &str) -> Vec<u32> {
    let script = format!(": {marker};");
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&script))
        })
        .collect()
}

#[tokio::test]
async fn sources_get_the_path_that_nix_gives_them() {
    let daemon = Daemon::start().await;
    let source = daemon.dir.path().join("some-source");
    std::fs::create_dir_all(source.join("sub")).expect("creates");
    std::fs::write(source.join("sub/file"), b"hello").expect("writes");
    std::os::unix::fs::symlink("sub/file", source.join("link")).expect("links");

    let mut digest = Digest::default();
    pack(&source, &|_| true, &mut digest).expect("packs");
    let (nar_hash, nar_size) = digest.finish();
    let path = store_path_of::source(&nar_hash, &BTreeSet::new(), "some-source").expect("valid");
    let text = source.to_str().expect("UTF-8");
    let by_nix = daemon.nix("nix-store", &["--add", text]);
    assert_eq!(path.to_string(), by_nix);
    let flat = daemon.nix("nix-store", &["--add-fixed", "sha512", &format!("{text}/sub/file")]);
    let hash = sha2::Sha512::digest(b"hello");
    let ours = store_path_of::fixed_output("sha512", &hash, "file").expect("valid");
    assert_eq!(ours.to_string(), flat);

    // The same tree goes into a store that lacks it, and comes out again.
    let other = Daemon::start().await;
    let info = PathInfo {
        deriver: None,
        nar_hash,
        nar_size,
        references: BTreeSet::new(),
        signatures: BTreeSet::new(),
        content_address: format!(
            "fixed:r:sha256:{}",
            gradient_domain::nix_base32::encode(&nar_hash)
        ),
        is_ultimate: false,
    };
    let mut connection = other.pool.get().await.expect("connection");
    let (reader, writer) = tokio::io::duplex(64 << 10);
    let packing = tokio::spawn(pack_async(source, |_| true, writer));
    connection.add_to_store_nar(&path, &info, reader).await.expect("adds");
    packing.await.expect("ends").expect("packs");
    let there = connection.query_path_info(&path).await.expect("answers").expect("valid");
    assert_eq!(there.content_address, info.content_address);
    assert_eq!(Sha256::digest(nar(&other, &path).await).as_slice(), nar_hash);

    // A wrong hash is refused, and the connection is not used again.
    let mut lie = info.clone();
    lie.nar_hash[0] ^= 1;
    let third = Daemon::start().await;
    let mut connection = third.pool.get().await.expect("connection");
    let bytes = nar(&other, &path).await;
    let refused = connection.add_to_store_nar(&path, &lie, bytes.as_slice()).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    drop(connection);
    let mut connection = third.pool.get().await.expect("connection");
    assert!(!connection.is_valid_path(&path).await.expect("answers"));

    // Nor is anything registered when the source breaks off.
    let refused = connection.add_to_store_nar(&path, &info, &bytes[..100]).await;
    assert!(refused.is_err());
    assert!(!connection.is_clean());
    let broken = connection.is_valid_path(&path).await;
    assert!(matches!(broken, Err(Error::Broken { .. })), "{broken:?}");
    drop(connection);
    let mut connection = third.pool.get().await.expect("connection");
    assert!(!connection.is_valid_path(&path).await.expect("answers"));
}

#[tokio::test]
async fn a_derivation_file_has_the_path_that_we_compute() {
    let daemon = Daemon::start().await;
    let path = daemon.instantiate("text", "exit 0", "");
    let mut connection = daemon.pool.get().await.expect("connection");
    let info = connection.query_path_info(&path).await.expect("answers").expect("valid");
    let text = SingleFile::from_nar(&nar(&daemon, &path).await, 16 << 20).expect("a file");
    let hash = Sha256::digest(&text).into();
    let ours = store_path_of::text(&hash, &info.references, path.name()).expect("valid");
    assert_eq!(ours, path);
    connection.add_temp_root(&path).await.expect("roots");
}

#[tokio::test]
async fn the_socket_of_nobody_and_of_somebody_else() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let socket = dir.path().join("s");
    let error = gradient_daemon::Connection::open(&socket, &ClientOptions::default()).await;
    assert!(matches!(error, Err(Error::Connect { .. })));
    let (from, mut to) = tokio::io::duplex(1024);
    let (sink, _keep) = tokio::io::duplex(1024);
    tokio::io::AsyncWriteExt::write_all(&mut to, b"HTTP/1.1").await.expect("writes");
    let error = gradient_daemon::Connection::over(from, sink, &ClientOptions::default()).await;
    assert!(matches!(error, Err(Error::NotADaemon { .. })));
}
