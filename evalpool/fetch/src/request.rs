//! What is asked for, and what comes of it.

use gradient_domain::flake::{Commit, LockPolicy, Override};
use gradient_domain::{SshKey, StorePath};
use serde::{Deserialize, Serialize};

use crate::missing::Missing;

/// A flake to be made ready for evaluation.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where it is.
    pub source: Source,
    /// Which references are allowed.
    pub reach: Reach,
    /// Inputs that are replaced, at most [`gradient_domain::flake::OVERRIDES_MAX`].
    pub overrides: Vec<Override>,
    /// What an incomplete lock file means.
    pub lock_policy: LockPolicy,
    /// The key for `git+ssh:`; without one, what the machine has.
    pub ssh_key: Option<SshKey>,
}

impl Request {
    /// A request without overrides and keys that completes the lock.
    #[must_use]
    pub fn new(source: Source, reach: Reach) -> Self {
        Self {
            source,
            reach,
            overrides: Vec::new(),
            lock_policy: LockPolicy::default(),
            ssh_key: None,
        }
    }
}

/// Where the source of a flake is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// A flake reference such as `github:owner/name` or, if local ones are allowed, a folder.
    Reference(String),
    /// A tree that is in the store.
    Store(Tree),
}

/// Which references are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Reach {
    /// What every machine can reach.
    Remote,
    /// Folders and repositories of this machine, too. A dirty checkout is taken as it is.
    Local,
    /// As `Local`, but of a checkout its commit is taken.
    LocalCommit,
}

/// A source tree in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Its store path.
    pub path: StorePath,
    /// SHA-256 of its NAR as Nix writes it, `sha256-<base64>`.
    pub nar_hash: String,
    /// Folder of the flake below it; empty for the tree itself.
    pub subdir: String,
    /// The commit that it is, if it is exactly one.
    pub commit: Option<Commit>,
    /// Seconds since 1970 of its last change, where known.
    pub last_modified: Option<u64>,
}

/// A flake that is ready for pure evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedFlake {
    /// What to evaluate, locked; needs no network as far as the inputs could be had.
    pub url: String,
    /// The reference with its commit or hash, for people.
    pub reference: String,
    /// The source tree.
    pub tree: Tree,
    /// The complete lock as JSON, keys in order.
    pub locks: String,
    /// Inputs that the lock file does not lock, by path: the same reference may be another
    /// evaluation tomorrow.
    pub not_locked: Vec<String>,
    /// Whether the source is a checkout with changes.
    pub is_dirty: bool,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Folders of git submodules that were not fetched.
    pub submodules: Vec<String>,
    /// Inputs that could not be fetched; each is among the warnings, too. What has such is not remembered.
    #[serde(skip)]
    pub missing: Vec<Missing>,
}

impl LockedFlake {
    /// Whether the same reference gives the same evaluation for ever.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.not_locked.is_empty() && !self.is_dirty
    }

    /// The input whose absence an evaluation error is about.
    #[must_use]
    pub fn missing_for(&self, error: &str) -> Option<&Missing> {
        self.missing.iter().find(|missing| missing.is_cause(error))
    }

    /// Why there is an evaluation error, or what to do about it, where the fetch step knows: an input or a
    /// submodule was not fetched.
    #[must_use]
    pub fn hint_on(&self, error: &str) -> Option<String> {
        match self.missing_for(error) {
            Some(missing) => Some(missing.told()),
            None => crate::submodules::hint_on(&self.submodules, error),
        }
    }
}
