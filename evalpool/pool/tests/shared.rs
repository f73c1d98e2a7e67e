//! A cache that another machine filled: with the derivations that it names, it answers alone.

mod common;
mod host;

use std::collections::BTreeSet;
use std::path::PathBuf;

use common::{Run, attributes, discover, errors};
use gradient_domain::StorePath;
use gradient_pool::{Evaluation, EvaluationCache, Found, Pool, PoolSettings, snapshot};
use host::NixHost;

const CHILD: &str = env!("CARGO_BIN_EXE_gradient-eval-child");
const EVERYTHING: &str = "*";

fn settings(host: &NixHost) -> PoolSettings {
    let mut settings = host.settings(CHILD, 1);
    settings.eval_cache = Some(host.path().join("eval-caches"));
    settings
}

fn flake(host: &NixHost) -> String {
    let file = format!("{}/tests/flakes/R12.nix", env!("CARGO_MANIFEST_DIR"));
    host.flake("R12", &std::fs::read_to_string(file).expect("flake"))
}

async fn cache(pool: &Pool, flake: &str, patterns: &str) -> EvaluationCache {
    let patterns = patterns.parse().expect("patterns");
    let found = pool.cache_of(&Evaluation::of_flake(flake, patterns)).await;
    found.expect("asked").expect("it can be kept")
}

fn derivations((found, _): &Run) -> BTreeSet<StorePath> {
    let path = |found: &Found| match found {
        Found::Attribute { drv_path, .. } => Some(drv_path.clone()),
        Found::Error { .. } | Found::Warning { .. } => None,
    };
    found.iter().filter_map(path).collect()
}

/// Evaluates on one host, gives its cache to another one; the pools, the flake, and what was found.
async fn given() -> ([NixHost; 2], [Pool; 2], String, Run) {
    let hosts = [NixHost::start(), NixHost::start()];
    let pools = [&hosts[0], &hosts[1]].map(|host| Pool::new(settings(host)).expect("pool"));
    let flake = flake(&hosts[0]);
    let run = discover(&pools[0], &flake, EVERYTHING).await;
    assert_eq!((attributes(&run.0).len(), errors(&run.0).len()), (5, 0));
    assert!(run.1.as_ref().expect("evaluated").is_cache_completed);
    let (mine, theirs) =
        (cache(&pools[0], &flake, EVERYTHING).await, cache(&pools[1], &flake, EVERYTHING).await);
    assert_eq!(mine.fingerprint(), theirs.fingerprint());
    assert!(mine.is_there() && !theirs.is_there());
    let copy: PathBuf = hosts[1].path().join("copy");
    assert!(
        snapshot(theirs.folder(), theirs.fingerprint(), &copy).is_err(),
        "there is nothing to copy"
    );
    snapshot(mine.folder(), mine.fingerprint(), &copy).expect("copied");
    assert!(theirs.stage(&copy).expect("staged"));
    assert!(theirs.is_there() && !copy.exists());
    (hosts, pools, flake, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_missing_derivations_are_those_of_the_answer() {
    let (hosts, pools, flake, run) = given().await;
    let theirs = cache(&pools[1], &flake, EVERYTHING).await;
    let missing = theirs.missing_derivations().await;
    assert_eq!(BTreeSet::from_iter(missing.iter().cloned()), derivations(&run));
    assert_eq!(missing.len(), 1, "each is named once");
    assert_eq!(cache(&pools[0], &flake, EVERYTHING).await.missing_derivations().await, []);
    // Another request is not complete: its derivations are found by evaluating.
    let other = cache(&pools[1], &flake, "packages.*.*").await;
    assert_eq!(other.missing_derivations().await, []);

    for path in &missing {
        let name = path.base_name();
        std::fs::copy(hosts[0].real_store().join(name), hosts[1].real_store().join(name))
            .expect("copied");
    }
    assert_eq!(theirs.missing_derivations().await, []);
    let started = pools[1].children_started();
    let again = discover(&pools[1], &flake, EVERYTHING).await;
    assert_eq!(again.0, run.0);
    let summary = again.1.expect("known");
    assert!(summary.is_cached);
    assert_eq!((summary.calls, pools[1].children_started() - started), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_derivations_they_are_instantiated_again() {
    let (_hosts, pools, flake, run) = given().await;
    let again = discover(&pools[1], &flake, EVERYTHING).await;
    assert_eq!(again.0, run.0);
    assert!(!again.1.expect("evaluated").is_cached);
    let theirs = cache(&pools[1], &flake, EVERYTHING).await;
    assert_eq!(theirs.missing_derivations().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_changed_names_nothing() {
    let (_hosts, pools, flake, run) = given().await;
    let theirs = cache(&pools[1], &flake, EVERYTHING).await;
    // Another derivation in the place of the right one; SQLite finds nothing wrong with it.
    let name = derivations(&run).pop_first().expect("one").base_name().to_owned();
    let other = format!("{}{}", "0".repeat(32), &name[32..]);
    let text = std::fs::read(theirs.path()).expect("read");
    let mut changed = text.clone();
    for at in 0..text.len().saturating_sub(name.len()) {
        if text[at..].starts_with(name.as_bytes()) {
            changed[at..at + name.len()].copy_from_slice(other.as_bytes());
        }
    }
    assert_ne!(text, changed);
    std::fs::write(theirs.path(), changed).expect("written");
    assert_eq!(theirs.missing_derivations().await, [], "nothing is fetched for a false answer");
    let again = discover(&pools[1], &flake, EVERYTHING).await;
    assert_eq!(again.0, run.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_answers_takes_the_place_of_one_that_does_not() {
    const ONE: &str = "packages.x86_64-linux.default";
    let hosts = [NixHost::start(), NixHost::start()];
    let pools = [&hosts[0], &hosts[1]].map(|host| Pool::new(settings(host)).expect("pool"));
    let flake = flake(&hosts[0]);
    discover(&pools[0], &flake, EVERYTHING).await.1.expect("evaluated");
    discover(&pools[1], &flake, ONE).await.1.expect("evaluated");
    let mine = cache(&pools[0], &flake, EVERYTHING).await;
    let (one, everything) =
        (cache(&pools[1], &flake, ONE).await, cache(&pools[1], &flake, EVERYTHING).await);
    assert!(one.answers().await && !everything.answers().await);
    let copy = hosts[1].path().join("copy");
    snapshot(mine.folder(), mine.fingerprint(), &copy).expect("copied");
    assert!(!one.stage(&copy).expect("looked at"), "it does not answer what this one does");
    assert!(one.answers().await && copy.exists());
    assert!(everything.stage(&copy).expect("looked at"));
    assert!(everything.answers().await && !one.answers().await);
}
