//! One fetch: the programs that it runs, and the source that it brings into the store.

use std::path::Path;

use gradient_domain::StorePath;
use gradient_domain::flake::Commit;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::process::Command;
use tokio::time::Instant;

use crate::error::FetchError;
use crate::fetcher::Fetcher;
use crate::fetcher_cache;
use crate::hash::{Hashed, hash};
use crate::lock::LockFileError;
use crate::process::{ANSWER_BYTES_MAX, Answer, NoAnswer, run};
use crate::reference::{self, Located};
use crate::request::{Reach, Source, Tree};
use crate::ssh::KeyFile;

/// One fetch.
pub(crate) struct Session<'a> {
    pub(crate) fetcher: &'a Fetcher,
    /// For error texts.
    pub(crate) reference: String,
    pub(crate) until: Instant,
    pub(crate) key: Option<KeyFile>,
}

/// A source in the store, and how it came there.
pub(crate) struct Found {
    pub(crate) tree: Tree,
    /// For people.
    pub(crate) shown: String,
    pub(crate) is_dirty: bool,
    pub(crate) wants_submodules: bool,
}

/// What is used of `nix flake prefetch --json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prefetched {
    store_path: StorePath,
    hash: String,
    locked: Map<String, Value>,
}

impl Found {
    pub(crate) fn in_store(tree: &Tree) -> Self {
        let shown = reference::tree_url(tree);
        Self { tree: tree.clone(), shown, is_dirty: false, wants_submodules: false }
    }
}

impl Session<'_> {
    /// The reference, and what lies in its folder if it is one.
    pub(crate) async fn locate(
        &self,
        source: &Source,
        reach: Reach,
    ) -> Result<(Option<Located>, Option<Hashed>), FetchError> {
        let Source::Reference(url) = source else { return Ok((None, None)) };
        let located = self.located(url, reach).await?;
        let hashed = match located.folder.clone() {
            Some(folder) => tokio::task::spawn_blocking(move || hash(&folder).ok()).await,
            None => Ok(None),
        };
        // What cannot be hashed here is Nix's to say.
        Ok((Some(located), hashed.unwrap_or_default()))
    }

    pub(crate) async fn located(&self, url: &str, reach: Reach) -> Result<Located, FetchError> {
        let located = reference::locate(url, reach)?;
        let names = |name: &str| reference::parameter(&located.url, name).is_some();
        let (Some(top), Reach::LocalCommit) = (&located.repository, reach) else {
            return Ok(located);
        };
        if names("rev") || names("ref") {
            return Ok(located);
        }
        let mut git = Command::new("git");
        git.arg("-C").arg(top).args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
        let answer = self.run(&mut git, Path::new("git"), self.until).await?;
        let commit = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        if !answer.status.success() || commit.is_empty() {
            let reason = format!("'{}' has no commit yet: {}", top.display(), answer.stderr.trim());
            return Err(FetchError::Refused { reason });
        }
        Ok(located.with("rev", &commit))
    }

    /// Puts the source into the store.
    pub(crate) async fn source(&self, asked: &str, located: &Located) -> Result<Found, FetchError> {
        let arguments = ["flake", "prefetch", "--json", "--", &located.url];
        let prefetched: Prefetched = self.parse(&self.nix(&arguments).await?)?;
        let locked = prefetched.locked;
        let text = |name: &str| locked.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| locked.get(name).and_then(Value::as_u64);
        let last_modified = number("lastModified");
        let commit = text("rev").map(|rev| {
            let rev_count = number("revCount");
            Commit { rev, rev_count, last_modified }
        });
        let is_git = text("type").is_some_and(|kind| kind == "git");
        let shown = match located.folder.is_some() || located.repository.is_some() {
            true => reference::shown(&located.url, &locked),
            false => reference::shown(asked, &locked),
        };
        Ok(Found {
            is_dirty: is_git && commit.is_none(),
            tree: Tree {
                path: prefetched.store_path,
                nar_hash: prefetched.hash,
                subdir: text("dir").unwrap_or_default(),
                commit,
                last_modified,
            },
            shown,
            wants_submodules: located.wants_submodules(),
        })
    }

    pub(crate) fn broken(&self, error: &LockFileError) -> FetchError {
        FetchError::Lock { reference: self.reference.clone(), problem: error.to_string() }
    }

    pub(crate) fn parse<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, FetchError> {
        serde_json::from_slice(&answer.stdout)
            .map_err(|source| FetchError::Answer { reference: self.reference.clone(), source })
    }

    /// The end of one of so many equal parts of the time that is left.
    pub(crate) fn share_of(&self, parts: usize) -> Instant {
        let now = Instant::now();
        let parts = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
        now + self.until.saturating_duration_since(now) / parts
    }

    /// Runs `nix` with these arguments; what it refuses is an error.
    pub(crate) async fn nix(&self, arguments: &[&str]) -> Result<Answer, FetchError> {
        self.nix_until(arguments, self.until).await
    }

    /// The same with an end that may come before that of the fetch. A broken cache of fetches is thrown
    /// away, and all is done again without it.
    pub(crate) async fn nix_until(
        &self,
        arguments: &[&str],
        until: Instant,
    ) -> Result<Answer, FetchError> {
        let mut answer = self.nix_once(arguments, until).await?;
        if !answer.status.success() && fetcher_cache::is_damaged(&answer.stderr) {
            tracing::warn!(said = answer.stderr, "the cache of fetches is broken and made anew");
            let file = |source| FetchError::File { path: self.cache_home().to_owned(), source };
            fetcher_cache::remove(self.cache_home()).map_err(file)?;
            answer = self.nix_once(arguments, until).await?;
        }
        match answer.status.success() {
            true => Ok(answer),
            false => Err(FetchError::said(&self.reference, &answer.stderr)),
        }
    }

    async fn nix_once(&self, arguments: &[&str], until: Instant) -> Result<Answer, FetchError> {
        let fetcher = self.fetcher;
        let mut command = Command::new(&fetcher.nix);
        command
            .args(["--extra-experimental-features", "nix-command flakes fetch-tree"])
            .args(["--store", &fetcher.store_uri])
            .args(["--option", "flake-registry", "", "--option", "accept-flake-config", "false"])
            .args(["--option", "warn-dirty", "false"])
            .args(arguments);
        self.run(&mut command, &fetcher.nix, until).await
    }

    fn cache_home(&self) -> &Path {
        self.key.as_ref().map_or(&*self.fetcher.cache_home, KeyFile::cache_home)
    }

    async fn run(
        &self,
        command: &mut Command,
        program: &Path,
        until: Instant,
    ) -> Result<Answer, FetchError> {
        let started = Instant::now();
        command
            .env("NIX_CACHE_HOME", self.cache_home())
            .env("NIX_USER_CONF_FILES", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C")
            .env_remove("NIX_REMOTE")
            .env_remove("NIX_PATH");
        if let Some(key) = &self.key {
            command.env("GIT_SSH_COMMAND", key.command()).env_remove("SSH_AUTH_SOCK");
        } else if std::env::var_os("GIT_SSH_COMMAND").is_none() {
            command.env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes");
        }
        let reference = || self.reference.clone();
        run(command, until).await.map_err(|error| match error {
            NoAnswer::Start(source) => FetchError::Program { program: program.to_owned(), source },
            NoAnswer::Late => FetchError::Timeout {
                reference: reference(),
                limit_secs: match until == self.until {
                    true => self.fetcher.timeout.as_secs(),
                    false => until.saturating_duration_since(started).as_secs(),
                },
            },
            NoAnswer::TooLarge => {
                FetchError::TooLarge { reference: reference(), limit_bytes: ANSWER_BYTES_MAX }
            }
        })
    }
}
