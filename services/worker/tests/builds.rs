//! How builds end, and what is left of them.

mod common;

use std::time::{Duration, Instant};

use common::{Cache, Machine, request, upload_token};
use gradient_domain::StorePath;
use gradient_events::FailureKind;
use gradient_worker::build::{LogLimits, LogSink, start_log};
use tokio_util::sync::CancellationToken;

/// The log as people read it.
async fn read_log(cache: &Cache, id: &str) -> String {
    let url = format!("{}/logs/{id}?follow=true", cache.url);
    let answer = reqwest::get(url).await.expect("answers");
    answer.text().await.expect("text")
}

#[tokio::test]
async fn failures_have_their_kind() {
    let cache = Cache::start().await;
    let machine = Machine::start(&cache).await;
    let fixed = "{ outputHashMode = \"flat\"; outputHashAlgo = \"sha256\"; outputHash = \
                 \"0000000000000000000000000000000000000000000000000000\"; }";
    let rows = [
        ("mk \"bad\" ''echo oh no; exit 3'' {}".to_owned(), FailureKind::Permanent, "exit code 3"),
        (format!("mk \"fod\" ''echo hi > $out'' {fixed}"), FailureKind::Permanent, "hash mismatch"),
        ("mk \"none\" ''true'' {}".into(), FailureKind::Permanent, "failed to produce output"),
        (
            "mk \"kvm\" ''true'' { requiredSystemFeatures = [ \"kvm\" ]; }".into(),
            FailureKind::Transient,
            "is required to build",
        ),
        (
            "mk \"quiet\" ''read x < /dev/zero'' { maxSilent = 1; }".into(),
            FailureKind::Timeout,
            "build produced no output for 1s (maxSilent exceeded)",
        ),
        (
            "mk \"long\" ''while true; do echo x; done'' { timeout = 2; }".into(),
            FailureKind::Timeout,
            "build exceeded wall-clock timeout of 2s",
        ),
    ];
    for (expression, kind, words) in rows {
        let drv = machine.instantiate(&expression);
        let (result, _) = machine.build(&drv).await;
        let failure = result.expect_err(words);
        assert_eq!(failure.kind, kind, "{failure:?}");
        assert!(failure.message.contains(words), "{failure:?}");
    }
    let nobody = StorePath::from_base_name("0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-x.drv");
    let (result, _) = machine.build(&nobody.expect("valid")).await;
    assert_eq!(result.expect_err("nobody has it").kind, FailureKind::InputsUnavailable);
}

#[tokio::test]
async fn the_log_of_a_failed_build_is_in_the_cache() {
    let cache = Cache::start().await;
    let machine = Machine::start(&cache).await;
    let drv = machine.instantiate("mk \"bad\" ''echo one; echo two >&2; exit 1'' {}");
    let (mut log, upload) =
        start_log(cache.client.clone(), "a5", &upload_token("a5"), LogLimits::default());
    let cancel = CancellationToken::new();
    let built = machine.builder.build(&request(&drv), &mut log, &|_| {}, &cancel).await;
    assert_eq!(built.expect_err("fails").kind, FailureKind::Permanent);
    upload.finish().await;
    assert_eq!(read_log(&cache, "a5").await, "one\ntwo\n");
}

#[tokio::test]
async fn a_log_is_live_and_a_broken_one_harms_nobody() {
    let cache = Cache::start().await;
    let token = upload_token("a6");
    let (mut log, upload) = start_log(cache.client.clone(), "a6", &token, LogLimits::default());
    log.line(b"first");
    let start = Instant::now();
    let mut follower = loop {
        let url = format!("{}/logs/a6?follow=true", cache.url);
        let answer = reqwest::get(url).await.expect("answers");
        if answer.status().is_success() {
            break answer;
        }
        assert!(start.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(follower.chunk().await.expect("body").expect("a chunk"), "first\n");
    log.line(b"second");
    assert_eq!(follower.chunk().await.expect("body").expect("a chunk"), "second\n");
    upload.finish().await;
    assert_eq!(follower.chunk().await.expect("body"), None);

    let (mut log, upload) = start_log(cache.client.clone(), "a7", &token, LogLimits::default());
    for _ in 0..100_000 {
        log.line(&[b'x'; 100]);
    }
    upload.finish().await;
    let missing = reqwest::get(format!("{}/logs/a7", cache.url)).await.expect("answers");
    assert_eq!(missing.status(), 404, "the token is for another log");
}

#[tokio::test]
async fn a_cancelled_build_leaves_no_builder() {
    let cache = Cache::start().await;
    let machine = Machine::start(&cache).await;
    let marker = machine.dir.path().display().to_string();
    let script = format!("echo started; while true; do : {marker}; done");
    let drv = machine.instantiate(&format!("mk \"endless\" ''{script}'' {{}}"));
    let cancel = CancellationToken::new();
    let (mut log, request) = (Vec::new(), request(&drv));
    let running = || {
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let lines = processes.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
        let script = format!(": {marker};");
        lines.filter(|line| String::from_utf8_lossy(line).contains(&script)).count()
    };
    let build = machine.builder.build(&request, &mut log, &|_| {}, &cancel);
    let canceller = async {
        let start = Instant::now();
        while running() == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "the builder never started");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(build, canceller);
    assert_eq!(result.expect_err("cancelled").kind, FailureKind::Aborted);
    let start = Instant::now();
    while running() > 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "the builder still runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
