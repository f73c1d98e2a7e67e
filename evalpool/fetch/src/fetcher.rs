//! The fetch step itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gradient_domain::flake::{LockPolicy, Override, check_overrides, is_locked};
use gradient_domain::{SshKey, StorePath};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::error::FetchError;
use crate::fetcher_cache::remove_damaged_cache;
use crate::hash::{Hashed, hash};
use crate::inputs;
use crate::lock::{Lock, differing, listed};
use crate::memo::{Entry, Memo};
use crate::overrides;
use crate::reference::{self, Located};
use crate::request::{LockedFlake, Reach, Request, Source, Tree};
use crate::session::{Found, Session};
use crate::ssh::KeyFile;
use crate::submodules;
use crate::walk;
use crate::wrapper::Wrapper;

/// Longest that fetching may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// What Nix says when it completed a lock.
const COMPLETED: &str = "not writing modified lock file";

/// Fetches flakes into one store.
#[derive(Clone, Debug)]
pub struct Fetcher {
    /// The nix program.
    pub nix: PathBuf,
    /// How Nix names the store.
    pub store_uri: String,
    /// Where its `/nix/store` really is.
    pub store_dir: PathBuf,
    /// Folder for caches of fetchers, of locks, and for keys while they are used.
    pub cache_home: PathBuf,
    /// Longest that one fetch may take.
    pub timeout: Duration,
}

/// What is used of `nix flake metadata --json`.
#[derive(Deserialize)]
struct Metadata {
    locks: Value,
}

impl Fetcher {
    /// A fetcher with the usual time limit of 30 minutes.
    #[must_use]
    pub fn new(nix: PathBuf, store_uri: String, store_dir: PathBuf, cache_home: PathBuf) -> Self {
        Self { nix, store_uri, store_dir, cache_home, timeout: FETCH_TIMEOUT }
    }

    /// Makes a flake ready for evaluation.
    ///
    /// # Errors
    /// If it cannot be had, is no flake, or its lock does not do; see [`FetchError::retry`].
    pub async fn fetch(&self, request: &Request) -> Result<LockedFlake, FetchError> {
        check_overrides(&request.overrides)
            .map_err(|error| FetchError::Refused { reason: error.to_string() })?;
        let overrides = self.located_overrides(request)?;
        // Evaluators may use it, too, whether anything is fetched here or not.
        let file = |source| FetchError::File { path: self.cache_home.clone(), source };
        remove_damaged_cache(&self.cache_home).map_err(file)?;
        let session = self.session(request)?;
        let (located, hashed) = session.locate(&request.source, request.reach).await?;
        let memo = self.memo(request, &overrides, located.as_ref(), hashed.as_ref());
        if let Some(flake) = memo.as_ref().and_then(|memo| memo.load(&self.store_dir)) {
            return Ok(flake);
        }
        let found = match (&request.source, &located) {
            (Source::Reference(asked), Some(located)) => session.source(asked, located).await?,
            (Source::Store(tree), _) => Found::in_store(tree),
            (Source::Reference(_), None) => return Err(nothing_located()),
        };
        let is_same = hashed.is_none_or(|hashed| hashed.nar_hash == found.tree.nar_hash);
        let (flake, paths) = session.locked(found, &overrides, request).await?;
        let is_whole = flake.warnings.is_empty() && flake.is_locked() && is_same;
        if let Some(memo) = memo.filter(|_| is_whole)
            && let Err(error) = memo.save(&Entry::new(flake.clone(), paths))
        {
            tracing::warn!(%error, "a lock cannot be remembered");
        }
        Ok(flake)
    }

    /// Puts the source of a flake into the store and does nothing about its lock.
    ///
    /// # Errors
    /// If it cannot be had.
    pub async fn fetch_tree(&self, url: &str, reach: Reach) -> Result<Tree, FetchError> {
        let request = Request::new(Source::Reference(url.to_owned()), reach);
        let session = self.session(&request)?;
        let located = session.located(url, reach).await?;
        Ok(session.source(url, &located).await?.tree)
    }

    fn session(&self, request: &Request) -> Result<Session<'_>, FetchError> {
        let reference = match &request.source {
            Source::Reference(url) => url.clone(),
            Source::Store(tree) => tree.path.to_string(),
        };
        let write = |key: &SshKey| KeyFile::write(key, &self.cache_home);
        let key = request.ssh_key.as_ref().map(write).transpose();
        let key =
            key.map_err(|source| FetchError::File { path: self.cache_home.clone(), source })?;
        Ok(Session { fetcher: self, reference, until: Instant::now() + self.timeout, key })
    }

    /// The overrides with their references checked and folders written out.
    fn located_overrides(&self, request: &Request) -> Result<Vec<Override>, FetchError> {
        let located = request.overrides.iter().map(|one| {
            let reference = reference::locate(&one.reference, request.reach)?.url;
            Ok(Override { input: one.input.clone(), reference })
        });
        located.collect()
    }

    /// The place of the result, if the same request gives the same result for ever.
    fn memo(
        &self,
        request: &Request,
        overrides: &[Override],
        located: Option<&Located>,
        hashed: Option<&Hashed>,
    ) -> Option<Memo> {
        let is_fixed = located.is_none_or(Located::is_fixed) || hashed.is_some();
        // What one key can read is not for everybody who knows the reference.
        if request.ssh_key.is_some()
            || !is_fixed
            || !overrides.iter().all(|one| is_locked(&one.reference))
        {
            return None;
        }
        // Another Nix may lock differently; asking it for its version would cost a process.
        let nix = std::fs::canonicalize(&self.nix).ok()?;
        let metadata = std::fs::metadata(&nix).ok()?;
        let nix = (nix, metadata.len(), metadata.modified().ok()?);
        let source = (located.map(|located| &located.url), &request.source, request.reach);
        let hashed = hashed.map(|hashed| (&hashed.nar_hash, hashed.last_modified));
        let store = (&self.store_uri, &self.store_dir);
        let conditions = (source, hashed, overrides, request.lock_policy, nix, store);
        Memo::of(&self.cache_home, &conditions)
    }
}

fn nothing_located() -> FetchError {
    FetchError::Refused { reason: "a flake reference is needed".into() }
}

impl Session<'_> {
    /// The rest, once the source is there: the lock, the wrapper if one is needed, the inputs.
    async fn locked(
        &self,
        found: Found,
        overrides: &[Override],
        request: &Request,
    ) -> Result<(LockedFlake, Vec<StorePath>), FetchError> {
        let Found { tree, shown, is_dirty, wants_submodules } = found;
        let root = self.fetcher.store_dir.join(tree.path.base_name());
        let folder = root.join(&tree.subdir);
        if !folder.join("flake.nix").is_file() {
            let below = if tree.subdir.is_empty() { "" } else { "the folder of " };
            let reason = format!("there is no flake.nix in {below}'{}'", self.reference);
            return Err(FetchError::Refused { reason });
        }
        let old = Lock::read(&folder).map_err(|error| self.broken(&error))?;
        let mut warnings = Vec::new();
        let overrides = overrides::expand(overrides, old.as_ref(), &mut warnings);
        if request.reach == Reach::Remote {
            walk::check(self, &root, &folder, &overrides, request.lock_policy).await?;
        }
        let own = reference::tree_url(&tree);
        let policy = request.lock_policy;
        let (lock, not_locked) = self.lock(&own, old.as_ref(), &overrides, policy).await?;
        if request.reach == Reach::Remote {
            inputs::check_remote(&lock)?;
        }
        for one in &overrides {
            if !lock.has(&path_of(&one.input)) {
                warnings.push(format!("override '{}' names no input of the flake", one.input));
            }
        }
        if !not_locked.is_empty() {
            warnings.push(format!("not locked: {}", problem(old.is_some(), &not_locked)));
        }
        let mut paths = inputs::paths(&lock);
        paths.push(tree.path.clone());
        let url = if overrides.is_empty() && not_locked.is_empty() {
            own
        } else {
            let wrapper = self.wrap(&Wrapper::new(&tree, &lock)).await?;
            paths.push(wrapper.path.clone());
            reference::tree_url(&wrapper)
        };
        let missing = inputs::prefetch(self, &url, &lock).await?;
        warnings.extend(inputs::told(&missing));
        let locks = serde_json::json!({ "nodes": lock.nodes, "root": lock.root, "version": 7 });
        let submodules = if wants_submodules { Vec::new() } else { submodules::missing_in(&root) };
        let flake = LockedFlake {
            url,
            reference: shown,
            tree,
            locks: locks.to_string(),
            not_locked,
            is_dirty,
            warnings,
            submodules,
            missing,
        };
        Ok((flake, paths))
    }

    /// The complete lock, and the inputs that the lock file does not lock.
    async fn lock(
        &self,
        url: &str,
        old: Option<&Lock>,
        overrides: &[Override],
        policy: LockPolicy,
    ) -> Result<(Lock, Vec<String>), FetchError> {
        let mut arguments = vec!["flake", "metadata", "--json", "--no-write-lock-file"];
        for one in overrides {
            arguments.extend(["--override-input", &one.input, &one.reference]);
        }
        arguments.extend(["--", url]);
        let is_strict = policy == LockPolicy::Strict;
        let answer = match self.nix(&arguments).await {
            Ok(answer) => answer,
            // Only what is not locked is updated, and under this policy nothing may be.
            Err(error) if is_strict => return Err(not_locked_by(&error, old).unwrap_or(error)),
            Err(error) => return Err(error),
        };
        let metadata: Metadata = self.parse(&answer)?;
        let lock = Lock::new(metadata.locks).map_err(|error| self.broken(&error))?;
        let overridden: Vec<Vec<String>> = overrides.iter().map(|o| path_of(&o.input)).collect();
        let mut not_locked = Vec::new();
        if answer.stderr.contains(COMPLETED) {
            not_locked = differing(old, &lock, &overridden);
        }
        if is_strict && !not_locked.is_empty() {
            let problem = problem(old.is_some(), &not_locked);
            return Err(FetchError::NotLocked { problem });
        }
        Ok((lock, not_locked))
    }

    /// Puts a wrapper into the store.
    async fn wrap(&self, wrapper: &Wrapper) -> Result<Tree, FetchError> {
        let folder = tempfile::tempdir();
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::File { path, source }
        };
        let folder = folder.map_err(file(&std::env::temp_dir()))?;
        wrapper.write(folder.path()).map_err(file(folder.path()))?;
        let hashed = hash(folder.path()).map_err(file(folder.path()))?;
        let path = hashed.store_path();
        // Also if it is there: it may have been left half-way by a stop, unknown to the store.
        let text = folder.path().to_string_lossy();
        self.nix(&["store", "add", "--name", "source", "--", &text]).await?;
        Ok(Tree {
            path,
            nar_hash: hashed.nar_hash,
            subdir: String::new(),
            commit: None,
            last_modified: None,
        })
    }
}

fn path_of(input: &str) -> Vec<String> {
    input.split('/').map(str::to_owned).collect()
}

/// What is wrong with the lock file.
pub(crate) fn problem(has_lock: bool, names: &[String]) -> String {
    let names = listed(names);
    match has_lock {
        true => format!("flake.lock does not match flake.nix in input {names}"),
        false => format!("there is no flake.lock for input {names}"),
    }
}

/// The input that Nix was about to lock when it failed.
fn not_locked_by(error: &FetchError, old: Option<&Lock>) -> Option<FetchError> {
    let (FetchError::Reference { said, .. } | FetchError::Passing { said, .. }) = error else {
        return None;
    };
    let (_, rest) = said.split_once("while updating the flake input '")?;
    let name = rest.split('\'').next()?.to_owned();
    Some(FetchError::NotLocked { problem: problem(old.is_some(), &[name]) })
}
