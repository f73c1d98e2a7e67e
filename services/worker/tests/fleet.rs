//! Machines that lack each other's paths, and a cache between them.

mod common;

use std::collections::BTreeSet;

use common::{Cache, Machine, upload_token};
use gradient_events::FailureKind;
use gradient_worker::cache_client::CacheError;
use gradient_worker::store::{Candidate, score};

/// `dep` writes some megabytes, `top` uses it.
const GRAPH: &str = "let dep = mk \"dep\" ''x=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do \
    x=$x$x; done; echo $x > $out; for i in 1 2 3; do echo $i$x >> $out; done'' {}; in \
    mk \"top\" ''echo building; read line < ${dep}; echo ${dep} > $out; echo $out >> $out'' {}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graph_is_built_by_machines_that_share_a_cache() {
    let cache = Cache::start().await;
    let a = Machine::start(&cache).await;
    let top = a.instantiate(GRAPH);
    let parsed = gradient_worker::build::derivation(&a.pool, &cache.client, &top).await;
    let (dep, _) = parsed.expect("reads").input_drvs.pop_first().expect("one input");
    a.upload_drv(&top).await;

    // A machine without anything: its input is built nowhere yet.
    let b = Machine::start(&cache).await;
    let (failed, _) = b.build(&top).await;
    let failure = failed.expect_err("no input");
    assert_eq!(failure.kind, FailureKind::InputsUnavailable, "{failure:?}");
    assert!(failure.message.contains("cannot build (first: /nix/store/"), "{failure:?}");
    assert_eq!(failure.missing_paths.len(), 1);

    let (built, _) = a.build(&dep).await;
    let dep_outcome = built.expect("builds");
    assert!(!dep_outcome.substituted && dep_outcome.outputs[0].nar_size > 4 << 20);
    let dep_output = dep_outcome.outputs[0].path.clone();
    assert_eq!(failure.missing_paths, BTreeSet::from([dep_output.clone()]));
    a.upload(&dep_outcome).await;
    let (again, _) = a.build(&dep).await;
    let again = again.expect("is there");
    assert!(again.substituted);
    a.upload(&again).await;

    // The offer is scored, the input comes over, the build runs, its output goes up.
    let candidate = Candidate { required: vec![(dep_output.clone(), 7)], outputs: vec![] };
    let before = score(&b.pool, std::slice::from_ref(&candidate)).await[0];
    assert_eq!((before.missing_count, before.missing_nar_size), (1, 7));
    let (built, log) = b.build(&top).await;
    let outcome = built.expect("builds");
    assert_eq!(log, "building\n");
    assert_eq!(outcome.fetched_bytes, dep_outcome.outputs[0].nar_size);
    assert_eq!(score(&b.pool, &[candidate]).await[0].missing_count, 0);
    b.upload(&outcome).await;

    // Plain Nix reads the cache with nothing but its key.
    let c = Machine::start(&cache).await;
    let path = outcome.outputs[0].path.to_string();
    let from = format!("{}/cache", cache.url);
    c.nix("nix", &["copy", "--from", &from, &path]);
    assert!(c.is_valid(&outcome.outputs[0].path).await && c.is_valid(&dep_output).await);
    let real = c.daemon.root().join(path.trim_start_matches('/'));
    let text = std::fs::read_to_string(real).expect("reads");
    assert_eq!(text, format!("{dep_output}\n{path}\n"));
    let key = cache.client.public_key().to_string();
    c.nix("nix", &["store", "verify", "--recursive", "--trusted-public-keys", &key, &path]);

    // A machine that does not trust the key takes nothing.
    let d = Machine::start_with(&cache, |settings| settings.trusted_public_keys.clear()).await;
    let refused = d.try_nix("nix", &["copy", "--from", &from, &path]);
    assert!(!refused.status.success());
    assert!(!d.is_valid(&outcome.outputs[0].path).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_does_not_trust_us_builds_too() {
    let cache = Cache::start().await;
    let a = Machine::start(&cache).await;
    let top = a.instantiate(
        "mk \"top\" ''echo hi > $out; echo ${mk \"dep\" \"echo x > $out\" {}} >> $out'' {}",
    );
    a.upload_drv(&top).await;
    let untrusted = Machine::start_with(&cache, |settings| settings.force_untrusted = true).await;
    let (failed, _) = untrusted.build(&top).await;
    assert_eq!(failed.expect_err("no input").kind, FailureKind::InputsUnavailable);
    let parsed = gradient_worker::build::derivation(&a.pool, &cache.client, &top).await;
    let (dep, _) = parsed.expect("reads").input_drvs.pop_first().expect("one input");
    let (built, _) = untrusted.build(&dep).await;
    untrusted.upload(&built.expect("builds")).await;
    let (built, _) = untrusted.build(&top).await;
    assert!(!built.expect("builds").substituted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_tampered_with_is_refused() {
    let cache = Cache::start().await;
    let a = Machine::start(&cache).await;
    let drv = a.instantiate("mk \"good\" ''echo good > $out'' {}");
    let (built, _) = a.build(&drv).await;
    let outcome = built.expect("builds");
    a.upload(&outcome).await;
    let path = outcome.outputs[0].path.clone();
    let wanted = BTreeSet::from([path.clone()]);

    let file = cache.nar_file(&path).await;
    let nar = zstd::decode_all(std::fs::File::open(&file).expect("opens")).expect("decompresses");
    let text = String::from_utf8_lossy(&nar).replace("good", "evil");
    let evil = zstd::encode_all(text.as_bytes(), 3).expect("compresses");
    let original = std::fs::read(&file).expect("reads");
    std::fs::write(&file, evil).expect("writes");
    let b = Machine::start(&cache).await;
    let error = cache.client.ensure_closure(&b.pool, &wanted, None).await.expect_err("corrupt");
    assert!(matches!(error, CacheError::Corrupt { .. }), "{error:?}");
    assert_eq!(error.failure_kind(), FailureKind::InputsUnavailable);
    assert!(!b.is_valid(&path).await);
    let from = format!("{}/cache", cache.url);
    assert!(!b.try_nix("nix", &["copy", "--from", &from, &path.to_string()]).status.success());

    std::fs::write(&file, original).expect("writes");
    let narinfo_file = cache.narinfo_file(&path);
    let narinfo = std::fs::read_to_string(&narinfo_file).expect("reads");
    let (size, other) = ("NarSize: ", "NarSize: 1");
    std::fs::write(&narinfo_file, narinfo.replace(size, other)).expect("writes");
    let error = cache.client.ensure_closure(&b.pool, &wanted, None).await.expect_err("unsigned");
    assert!(matches!(error, CacheError::Untrusted { .. }), "{error:?}");

    std::fs::write(&narinfo_file, narinfo).expect("writes");
    let fetched = cache.client.ensure_closure(&b.pool, &wanted, None).await.expect("fetches");
    assert_eq!(fetched.paths, 1);
    assert!(b.is_valid(&path).await);
    assert_eq!(cache.client.ensure_closure(&b.pool, &wanted, None).await.expect("there").paths, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_builds_that_want_the_same_path_fetch_it_once() {
    let cache = Cache::start().await;
    let a = Machine::start(&cache).await;
    let drv = a.instantiate(GRAPH);
    a.upload_drv(&drv).await;
    let parsed = gradient_worker::build::derivation(&a.pool, &cache.client, &drv).await;
    let (dep, _) = parsed.expect("reads").input_drvs.pop_first().expect("one input");
    let (built, _) = a.build(&dep).await;
    let outcome = built.expect("builds");
    a.upload(&outcome).await;
    let b = Machine::start(&cache).await;
    let wanted = BTreeSet::from([outcome.outputs[0].path.clone()]);
    let fetch = || cache.client.ensure_closure(&b.pool, &wanted, None);
    let (one, two) = tokio::join!(fetch(), fetch());
    let bytes = one.expect("fetches").nar_bytes + two.expect("fetches").nar_bytes;
    assert_eq!(bytes, outcome.outputs[0].nar_size);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_needs_a_token() {
    let cache = Cache::start().await;
    let a = Machine::start(&cache).await;
    let drv = a.instantiate("mk \"x\" ''echo x > $out'' {}");
    let (built, _) = a.build(&drv).await;
    let path = built.expect("builds").outputs[0].path.clone();
    let token = upload_token("a1");
    for bad in ["", "junk", &token[1..]] {
        let error = cache.client.upload_path(&a.pool, &path, bad).await.expect_err("refused");
        assert!(matches!(error, CacheError::Refused { .. }), "{error:?}");
    }
    assert!(cache.client.narinfo(&path).await.expect("answers").is_none());
    cache.client.upload_path(&a.pool, &path, &token).await.expect("uploads");
    assert!(cache.client.narinfo(&path).await.expect("answers").is_some());
}
