//! The hidden harness: requests of a file through one real subprocess (reference 5.14).

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use gradient_domain::flake::Override;
use gradient_fetch::{Fetcher, Reach, Request, Source};
use gradient_pool::PoolSettings;
use gradient_pool::driver::{self, Asked, Locked};
use gradient_pool::settings::{EVAL_CACHE_FOLDER, store_folder};
use gradient_worker::config::WorkerArgs;

/// Runs the requests of a file against the store of `NIX_REMOTE`.
pub(crate) async fn drive(args: &WorkerArgs, file: &Path) -> anyhow::Result<()> {
    let exe = std::env::current_exe().context("the worker does not find its own program")?;
    let home = args.base_dir.join("eval-cache");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let uri = std::env::var("NIX_REMOTE").unwrap_or_else(|_| "daemon".into());
    let mut settings = PoolSettings::new(exe, uri, home.clone());
    settings.eval_cache = Some(home.join(EVAL_CACHE_FOLDER));
    crate::set_limits(&mut settings, args);
    let fetcher = fetcher(args, &settings);
    let lock = async |asked: &Asked| lock(&fetcher, asked).await;
    driver::run(file, settings, lock).await.context("the harness failed")
}

/// The fetch step as evaluations have it, but for references of this machine, which are allowed.
async fn lock(fetcher: &Fetcher, asked: &Asked) -> Result<Locked, String> {
    let one = |(input, reference): &(String, String)| Override {
        input: input.clone(),
        reference: reference.clone(),
    };
    let request = Request {
        overrides: asked.overrides.iter().map(one).collect(),
        lock_policy: asked.lock_policy(),
        ..Request::new(Source::Reference(asked.repository.clone()), Reach::Local)
    };
    let flake = fetcher.fetch(&request).await.map_err(|error| error.to_string())?;
    Ok(Locked {
        url: flake.url.clone(),
        locks: flake.locks.clone(),
        not_locked: flake.not_locked.clone(),
        warnings: flake.warnings.clone(),
        hint: Arc::new(move |error| flake.hint_on(error)),
    })
}

fn fetcher(args: &WorkerArgs, settings: &PoolSettings) -> Fetcher {
    let real = store_folder(&settings.store_uri);
    let cache_home = settings.cache_home.join("fetch");
    Fetcher::new(args.nix_bin.clone(), settings.store_uri.clone(), real, cache_home)
}
