//! The flake that is evaluated, fetched and locked.

use std::path::Path;

use anyhow::Context as _;
use gradient_domain::flake::{LockPolicy, Override};
use gradient_fetch::{Fetcher, LockedFlake, Reach, Request, Source};

use super::progress;
use super::store::Store;
use crate::exit::Failure;
use crate::say;
use crate::up::programs;

/// Fetches a flake and its inputs into the store, by the `nix` of the set-up. What the user should
/// know of it is told at once.
pub(super) async fn lock(
    data_dir: &Path,
    flake: &str,
    overrides: Vec<Override>,
    lock_policy: LockPolicy,
    store: &Store,
) -> Result<LockedFlake, Failure> {
    let nix = programs::nix_or_failure()?;
    let cache_home = std::path::absolute(data_dir.join("fetch-cache"))
        .context("the data directory has no absolute path")?;
    let fetcher = Fetcher::new(nix, store.uri.clone(), store.dir.clone(), cache_home);
    let source = Source::Reference(flake.to_owned());
    let request = Request { overrides, lock_policy, ..Request::new(source, Reach::Local) };
    let locked = fetcher.fetch(&request).await?;
    for warning in &locked.warnings {
        say::note(progress::warning(None, warning).trim_end());
    }
    if locked.is_dirty {
        say::note("warning: the checkout has changes that are not committed");
    }
    Ok(locked)
}
