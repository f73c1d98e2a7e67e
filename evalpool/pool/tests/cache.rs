//! The evaluation cache on a real Nix: a repeat forces nothing, and nothing that happens on the way
//! makes a later evaluation wrong.

mod common;
mod host;

use std::path::{Path, PathBuf};

use common::{Run, attributes, collect, discover, errors};
use gradient_domain::pattern::{Pattern, PatternSet, Segment};
use gradient_pool::{Evaluation, Found, Pool, PoolSettings, Recursion};
use host::NixHost;

const CHILD: &str = env!("CARGO_BIN_EXE_gradient-eval-child");
const PACKAGES: &str = "packages.x86_64-linux.*";

fn flake(host: &NixHost, name: &str) -> String {
    let file = format!("{}/tests/flakes/{name}.nix", env!("CARGO_MANIFEST_DIR"));
    host.flake(name, &std::fs::read_to_string(file).expect("flake"))
}

fn settings(host: &NixHost, children: usize) -> PoolSettings {
    let mut settings = host.settings(CHILD, children);
    settings.eval_cache = Some(host.path().join("eval-caches"));
    settings
}

/// What is done to a cache file.
type Harm<'a> = Box<dyn Fn(&Path) + 'a>;

/// The one cache file of a host.
fn cache_file(host: &NixHost) -> PathBuf {
    let folder = std::fs::read_dir(host.path().join("eval-caches")).expect("a folder");
    let mut files = folder.flatten().map(|entry| entry.path());
    let is_cache = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "sqlite");
    files.find(is_cache).expect("a cache")
}

/// Evaluates with a new pool; gives what was found and how many children were started.
async fn fresh(host: &NixHost, children: usize, flake: &str, patterns: &str) -> (Run, u64) {
    let pool = Pool::new(settings(host, children)).expect("pool");
    let run = discover(&pool, flake, patterns).await;
    pool.shutdown().await;
    (run, pool.children_started())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_of_a_locked_flake_starts_no_evaluator() {
    for name in ["N01", "N03", "R06", "R12", "X01", "X06"] {
        let host = NixHost::start();
        let flake = flake(&host, name);
        let ((first, summary), started) = fresh(&host, 2, &flake, "*").await;
        assert!(!summary.expect("evaluated").is_cached && started > 0, "{name}");
        let ((second, summary), started) = fresh(&host, 2, &flake, "*").await;
        assert_eq!(first, second, "{name}");
        assert!(summary.expect("known").is_cached, "{name}");
        assert_eq!(started, 0, "{name}: a complete cache needs no evaluator");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_forces_only_what_is_not_known() {
    let host = NixHost::start();
    // Opening it allocates 40 MB.
    let text = r#"{ outputs = { self }:
      builtins.seq (builtins.foldl' (a: b: a + b) 0 (builtins.genList (n: n) 1000000))
      { packages.x86_64-linux = let
        mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
      in { a = mk "a"; b = mk "b"; }; }; }"#;
    let flake = host.flake("opened", text);
    let allocated =
        |run: &Run| run.1.as_ref().expect("evaluated").usage.alloc_bytes.expect("measured");
    let (first, _) = fresh(&host, 1, &flake, PACKAGES).await;
    assert_eq!(attributes(&first.0).len(), 2);
    assert!(allocated(&first) > 10_000_000);
    // The attribute alone was never asked for, but the file knows it.
    let (second, _) = fresh(&host, 1, &flake, "packages.x86_64-linux.a").await;
    assert_eq!(attributes(&second.0), ["packages.x86_64-linux.a a.drv"]);
    assert!(allocated(&second) < 10_000_000, "the flake was opened though everything is known");
    assert!(!second.1.expect("evaluated").is_cached);
}

/// `path: text` of every warning.
fn warnings(found: &[Found]) -> Vec<String> {
    let line = |result: &Found| match result {
        Found::Warning { path, text } => {
            let text = text.rsplit(": ").next().unwrap_or_default();
            Some(format!("{}: {text}", path.clone().unwrap_or_default()))
        }
        Found::Attribute { .. } | Found::Error { .. } => None,
    };
    found.iter().filter_map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_is_told_to_whoever_asks_for_its_attribute_and_to_nobody_else() {
    let text = r#"{ outputs = { self }: let
        mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
      in {
        packages.x86_64-linux = {
          a = builtins.warn "one" (mk "a");
          b = builtins.warn "two" (mk "b");
          c = builtins.warn "two" (mk "c");
        };
        hydraJobs = { a = mk "ha"; b = mk "hb"; };
      }; }"#;
    const FRAGMENT: [&str; 2] = ["packages", "x86_64-linux"];
    let rows: [(&[&str], &str, &[&str]); 8] = [
        (&[], "packages.x86_64-linux.a", &["packages.x86_64-linux.a: one"]),
        (&[], "packages.x86_64-linux.b", &["packages.x86_64-linux.b: two"]),
        (&[], "packages.x86_64-linux.c", &["packages.x86_64-linux.c: two"]),
        (&[], PACKAGES, &["packages.x86_64-linux.a: one", "packages.x86_64-linux.b: two"]),
        (&[], "hydraJobs.*", &[]),
        (&FRAGMENT, "*", &["a: one", "b: two"]),
        (&["packages", "x86_64-linux", "c"], "*", &[": two"]),
        (&["hydraJobs"], "*", &[]),
    ];
    // One after the other on one cache, from each end; then all again.
    for reversed in [false, true] {
        let host = NixHost::start();
        let flake = host.flake("warns", text);
        let mut order: Vec<_> = rows.iter().collect();
        if reversed {
            order.reverse();
        }
        for (fragment, pattern, expected) in order.iter().chain(&order) {
            let pool = Pool::new(settings(&host, 1)).expect("pool");
            let star = Pattern { exclude: false, segments: vec![Segment::Star] };
            let patterns = match *pattern {
                "*" => PatternSet { includes: vec![star], excludes: Vec::new() },
                pattern => pattern.parse().expect("patterns"),
            };
            let mut evaluation = Evaluation::of_flake(&flake, patterns);
            evaluation.source.fragment = fragment.iter().map(|name| (*name).to_owned()).collect();
            if !fragment.is_empty() {
                evaluation.recursion = Recursion::Tree;
            }
            let (found, summary) = collect(&pool, &evaluation).await;
            pool.shutdown().await;
            summary.expect("evaluated");
            assert_eq!(warnings(&found), *expected, "{fragment:?} {pattern}, {reversed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_derivation_that_was_collected_is_instantiated_again() {
    let host = NixHost::start();
    let flake = flake(&host, "R12");
    let ((first, _), _) = fresh(&host, 1, &flake, "*").await;
    let collected = std::process::Command::new(host::nix_prefix().join("bin/nix-store"))
        .args(["--store", &host.store_uri(), "--gc"])
        .env("HOME", host.path())
        .output()
        .expect("nix-store");
    let said = String::from_utf8_lossy(&collected.stderr);
    assert!(said.contains("app.drv"), "{said}");
    let ((second, summary), _) = fresh(&host, 1, &flake, "*").await;
    assert_eq!(first, second);
    assert!(!summary.expect("evaluated").is_cached);
    for found in &second {
        let Found::Attribute { drv_path, .. } = found else { panic!("{found:?}") };
        assert!(host.real_store().join(drv_path.base_name()).exists());
    }
    let ((third, summary), started) = fresh(&host, 1, &flake, "*").await;
    assert_eq!((third, started), (second, 0));
    assert!(summary.expect("known").is_cached);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_evaluated_again() {
    let host = NixHost::start();
    let text = r#"{ outputs = { self }: { packages.x86_64-linux = let
        mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
        deep = n: 1 + deep (n + 1);
      in { good = mk "good"; deep = mk "n${toString (deep 0)}"; ifd = mk (import (mk "ifd")); }; }; }"#;
    let flake = host.flake("passing", text);
    for _ in 0..2 {
        let ((found, summary), started) = fresh(&host, 1, &flake, PACKAGES).await;
        assert_eq!((attributes(&found).len(), errors(&found).len()), (1, 2), "{found:?}");
        assert!(!summary.expect("evaluated").is_cached && started > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_are_misses_that_heal() {
    let host = NixHost::start();
    let flake = flake(&host, "X01");
    let ((right, _), _) = fresh(&host, 2, &flake, PACKAGES).await;
    let path = cache_file(&host);
    let good = std::fs::read(&path).expect("a file");
    let harm: [(&str, Harm); 5] = [
        ("empty", Box::new(|path| std::fs::write(path, "").expect("written"))),
        ("text", Box::new(|path| std::fs::write(path, "no cache").expect("written"))),
        ("cut", Box::new(|path| std::fs::write(path, &good[..good.len() / 2]).expect("written"))),
        ("noise", {
            let mut noise = good.clone();
            let from = noise.len() / 3;
            noise[from..].fill(0x5a);
            Box::new(move |path| std::fs::write(path, &noise).expect("written"))
        }),
        ("of another flake", {
            let other = host.path().join("eval-caches/other");
            Box::new(move |path| {
                let of = "0".repeat(64);
                drop(gradient_evalcache::EvalCache::open(&other, &of).expect("a cache"));
                std::fs::copy(&other, path).map(drop).expect("copied");
            })
        }),
    ];
    for (what, harm) in harm {
        gradient_evalcache::remove(&path).expect("removed");
        harm(&path);
        let ((found, summary), _) = fresh(&host, 2, &flake, PACKAGES).await;
        assert_eq!(found, right, "{what}");
        assert!(!summary.expect("evaluated").is_cached, "{what}");
        let ((found, summary), started) = fresh(&host, 2, &flake, PACKAGES).await;
        assert_eq!((found, started), (right.clone(), 0), "{what} does not heal");
        assert!(summary.expect("known").is_cached, "{what} does not heal");
    }
}

/// Many small sets, so that a pool of any size has work.
fn wide(host: &NixHost, name: &str) -> String {
    let text = r#"{ outputs = { self }: { packages.x86_64-linux = let
        mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
        names = prefix: builtins.genList (n: "${prefix}${toString n}") 12;
        set = prefix: value: builtins.listToAttrs
          (map (name: { inherit name; value = value name; }) (names prefix));
      in set "s" (inner: set inner mk); }; }"#;
    host.flake(name, &text.replace("prefix}$", &format!("prefix}}{name}$")))
}

#[tokio::test(flavor = "multi_thread")]
async fn children_of_two_evaluations_write_one_file_without_loss() {
    let host = NixHost::start();
    for repeat in 0..50 {
        let flake = wide(&host, &format!("w{repeat}"));
        let pool = Pool::new(settings(&host, 8)).expect("pool");
        let one = discover(&pool, &flake, PACKAGES);
        let two = discover(&pool, &flake, PACKAGES);
        let ((one, first), (two, second)) = tokio::join!(one, two);
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        assert_eq!((attributes(&one).len(), &one), (144, &two), "repeat {repeat}");
        pool.shutdown().await;
        let ((third, summary), started) = fresh(&host, 1, &flake, PACKAGES).await;
        assert_eq!((&third, started), (&one, 0), "repeat {repeat}: something was lost");
        assert!(summary.expect("known").is_cached);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_cancelled_evaluation_the_next_finds_everything() {
    let host = NixHost::start();
    let flake = wide(&host, "cancelled");
    let patterns: PatternSet = PACKAGES.parse().expect("patterns");
    let pool = Pool::new(settings(&host, 2)).expect("pool");
    let (sink, mut results) = tokio::sync::mpsc::channel(1);
    let wanted = Evaluation::of_flake(&flake, patterns);
    let half = async {
        for _ in 0..72 {
            results.recv().await.expect("a result");
        }
    };
    tokio::select! {
        () = half => {}
        ended = pool.discover(&wanted, sink) => panic!("ended by itself: {ended:?}"),
    }
    pool.shutdown().await;
    let ((found, summary), _) = fresh(&host, 2, &flake, PACKAGES).await;
    assert_eq!(attributes(&found).len(), 144);
    assert!(!summary.expect("evaluated").is_cached);
    let ((again, summary), _) = fresh(&host, 2, &flake, PACKAGES).await;
    assert_eq!(again, found);
    assert!(summary.expect("known").is_cached);
}

#[tokio::test(flavor = "multi_thread")]
async fn nix_itself_answers_from_an_exported_cache() {
    let host = NixHost::start();
    let repository = host.path().join("repository");
    std::fs::create_dir_all(&repository).expect("folder");
    let file = format!("{}/tests/flakes/N01.nix", env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(file, repository.join("flake.nix")).expect("flake.nix");
    let run = |program: &str, arguments: &[&str], allow_eval: &str| {
        let output = std::process::Command::new(program)
            .args(arguments)
            .current_dir(&repository)
            .env("HOME", host.path())
            .env("NIX_CACHE_HOME", host.path().join("nix-cache"))
            .env("NIX_CONFIG", "experimental-features = nix-command flakes")
            .env("NIX_ALLOW_EVAL", allow_eval)
            .output()
            .expect("started");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() { Ok(text) } else { Err(said) }
    };
    let git = |arguments: &[&str]| {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        run("git", &[&who, arguments].concat(), "1").expect("git")
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    let revision = git(&["rev-parse", "HEAD"]);
    let locked = format!("git+file://{}?rev={revision}", repository.display());
    let ((found, summary), _) = fresh(&host, 1, &locked, "*").await;
    assert!(summary.expect("evaluated").is_cache_completed);

    let nix = host::nix_prefix().join("bin/nix").display().to_string();
    let uri = host.store_uri();
    let metadata = ["flake", "metadata", "--json", "--store", &uri, &locked];
    let metadata = run(&nix, &metadata, "1").expect("metadata");
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("json");
    let nix_fingerprint = metadata["fingerprint"].as_str().expect("a fingerprint");
    let path = cache_file(&host);
    let fingerprint = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let cache = gradient_evalcache::EvalCache::open(&path, &fingerprint).expect("a cache");
    let name = format!("nix-cache/eval-cache-v5/{nix_fingerprint}.sqlite");

    // `nix` looks at packages, legacyPackages and the root before it decides.
    let attribute = format!("{locked}#plain");
    let ask = ["path-info", "--derivation", "--store", &uri, &attribute];
    let refused = run(&nix, &ask, "0").expect_err("nothing is cached yet");
    assert!(refused.contains("evaluation is not allowed"), "{refused}");
    gradient_evalcache::export(&cache, &host.path().join(name)).expect("exported");
    let answer = run(&nix, &ask, "0").expect("answered from the cache");
    let Found::Attribute { drv_path, .. } = &found[0] else { panic!("{found:?}") };
    assert_eq!(answer, drv_path.to_string());
    let dry = ["build", "--dry-run", "--store", &uri, &attribute];
    run(&nix, &dry, "0").expect("a build asks for no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_locked_is_not_kept() {
    let host = NixHost::start();
    let flake = flake(&host, "N01");
    let unlocked = flake.split('?').next().expect("a path").to_owned();
    let ((_, summary), _) = fresh(&host, 1, &unlocked, PACKAGES).await;
    assert!(summary.is_err(), "pure evaluation refuses it");
    let folder = host.path().join("eval-caches");
    let caches = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<_> = caches.map(|entry| entry.file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("sqlite")), "{names:?}");
}
