//! Derivation files that a stop left half-way: they lie in the store's folder, and the store does not
//! know them.

mod common;
mod host;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use common::{Run, attributes, discover, errors};
use gradient_domain::StorePath;
use gradient_pool::{Found, Known, KnownPaths, Pool, PoolSettings};
use host::{NixHost, nix_prefix};

/// How often `nix-store` is asked to delete something.
const DELETIONS_MAX: usize = 1_000;
const CHILD: &str = env!("CARGO_BIN_EXE_gradient-eval-child");

/// Asks a store by `nix-store`.
#[derive(Clone, Debug)]
struct Asks {
    store: String,
    home: PathBuf,
}

impl Asks {
    fn of(host: &NixHost) -> Asks {
        Asks { store: host.store_uri(), home: host.path().to_owned() }
    }

    fn is_valid(&self, path: &StorePath) -> bool {
        self.nix_store(&["--check-validity", &path.to_string()])
    }

    fn nix_store(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new(nix_prefix().join("bin/nix-store"));
        command.args(["--store", &self.store]).args(arguments).env("HOME", &self.home);
        command.output().expect("nix-store").status.success()
    }
}

impl KnownPaths for Asks {
    fn known<'a>(&'a self, paths: &'a BTreeSet<StorePath>) -> Known<'a> {
        let known = paths.iter().filter(|path| self.is_valid(path)).cloned().collect();
        Box::pin(std::future::ready(Some(known)))
    }
}

async fn evaluate(settings: &PoolSettings, flake: &str) -> Run {
    let pool = Pool::new(settings.clone()).expect("pool");
    let run = discover(&pool, flake, "packages.x86_64-linux.*").await;
    pool.shutdown().await;
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn a_derivation_that_the_store_does_not_know_is_instantiated_again() {
    let host = NixHost::start();
    let asks = Asks::of(&host);
    let mut settings = host.settings(CHILD, 1);
    settings.eval_cache = Some(host.path().join("eval-caches"));
    settings.known_paths = Some(Arc::new(asks.clone()));
    let file = format!("{}/tests/flakes/N01.nix", env!("CARGO_MANIFEST_DIR"));
    let flake = host.flake("N01", &std::fs::read_to_string(file).expect("flake"));
    let (first, summary) = evaluate(&settings, &flake).await;
    assert!(!summary.expect("evaluated").is_cached);
    assert!(attributes(&first).len() > 1 && errors(&first).is_empty());
    let (again, summary) = evaluate(&settings, &flake).await;
    assert!(summary.expect("known").is_cached && again == first);

    let drv_path = first.iter().find_map(|found| match found {
        Found::Attribute { drv_path, .. } => Some(drv_path.clone()),
        Found::Error { .. } | Found::Warning { .. } => None,
    });
    let drv_path = drv_path.expect("a derivation");
    let lies_in = host.real_store().join(drv_path.base_name());
    let text = std::fs::read(&lies_in).expect("a file");
    // Until its daemon has seen that the evaluator went, the derivation is a root of it.
    let deleted = || asks.nix_store(&["--delete", &drv_path.to_string()]);
    assert!((0..DELETIONS_MAX).any(|_| deleted()), "{drv_path} is in use");
    assert!(!lies_in.exists());
    std::fs::write(&lies_in, text).expect("left half-way");
    assert!(!asks.is_valid(&drv_path));

    let (healed, summary) = evaluate(&settings, &flake).await;
    assert!(!summary.expect("evaluated").is_cached);
    assert_eq!(healed, first);
    assert!(asks.is_valid(&drv_path), "the evaluator took a file for a derivation");
    let (again, summary) = evaluate(&settings, &flake).await;
    assert_eq!(again, first);
    assert!(summary.expect("known").is_cached);
}
