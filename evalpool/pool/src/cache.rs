//! The evaluation cache as the pool uses it: which file belongs to an evaluation, the answer out of
//! it before any child is asked, and the note that it is complete.

mod share;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gradient_domain::store_path::STORE_DIR;
use gradient_domain::{AttrPath, StorePath};
use gradient_evalcache::{
    CacheError, EvalCache, Evaluated, Folder, Replay, Request, Warned, replay,
};
use gradient_ipc::fingerprint::{NixIdentity, fingerprint};
use gradient_ipc::message::{CacheFile, Expression, Source};
use serde::{Deserialize, Serialize};

use crate::evaluation::Evaluation;
use crate::pool::Inner;
use crate::settings::store_folder;
use crate::transport::SpawnError;

pub use share::{ShareError, snapshot};

/// A cache that nobody used for so long goes.
const UNUSED_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Most bytes of all caches of a folder.
const FOLDER_BYTES_MAX: u64 = 2 << 30;
/// Where the version of Nix is remembered, so that an answer out of the cache needs no child.
const VERSION_FILE: &str = "nix-version.json";

/// Asks the store which of some paths it knows.
pub trait KnownPaths: std::fmt::Debug + Send + Sync {
    /// Those that it knows; `None` if it does not answer.
    fn known<'a>(&'a self, paths: &'a BTreeSet<StorePath>) -> Known<'a>;
}

/// What [`KnownPaths::known`] is about to say.
pub type Known<'a> = Pin<Box<dyn Future<Output = Option<BTreeSet<StorePath>>> + Send + 'a>>;

/// The cache of one evaluation.
#[derive(Clone, Debug)]
pub struct EvaluationCache {
    folder: Folder,
    fingerprint: String,
    request: Request,
    store_dir: Arc<Path>,
    known_paths: Option<Arc<dyn KnownPaths>>,
}

/// Which library has which version, for as long as the file stays what it is.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct KnownVersion {
    library: PathBuf,
    len: u64,
    modified_ns: u64,
    version: String,
}

impl Inner {
    /// The cache of an evaluation; `None` if nothing of it can be kept.
    ///
    /// # Errors
    /// If a child has to be asked for its version of Nix, and there is none.
    pub(crate) async fn cache_of(
        &self,
        evaluation: &Evaluation,
    ) -> Result<Option<EvaluationCache>, SpawnError> {
        let Some(folder) = &self.settings.eval_cache else {
            return Ok(None);
        };
        // Settings change what is found, or the texts of errors.
        let settings = &self.settings;
        if !settings.pure || settings.show_trace || !settings.options.is_empty() {
            return Ok(None);
        }
        let Some(reference) = cacheable(evaluation) else {
            return Ok(None);
        };
        let version = self.nix_version(folder).await?;
        let config = settings.nix_config();
        let nix = NixIdentity { version: &version, store_dir: STORE_DIR, config: &config };
        let Some(fingerprint) = fingerprint(reference, &evaluation.locks, nix) else {
            return Ok(None);
        };
        let store_dir = store_folder(&self.settings.store_uri).into();
        let request = Request {
            fragment: AttrPath(evaluation.source.fragment.clone()),
            patterns: evaluation.patterns.clone(),
            recursion: evaluation.recursion,
        };
        let (folder, known_paths) = (Folder::new(folder), settings.known_paths.clone());
        Ok(Some(EvaluationCache { folder, fingerprint, request, store_dir, known_paths }))
    }

    async fn nix_version(&self, folder: &Path) -> Result<String, SpawnError> {
        if let Some(version) = self.nix_version.get() {
            return Ok(version.clone());
        }
        let file = folder.join(VERSION_FILE);
        let library = look_at_library(self.settings.nix_lib_dir.as_deref());
        let known = std::fs::read(&file).ok();
        let known: Option<KnownVersion> = known.and_then(|text| serde_json::from_slice(&text).ok());
        if let (Some(known), Some(library)) = (known, &library)
            && (&known.library, known.len, known.modified_ns)
                == (&library.library, library.len, library.modified_ns)
        {
            return Ok(self.nix_version.get_or_init(|| known.version).clone());
        }
        let version = self.ask_version().await?;
        if let Some(library) = library {
            // Not remembered is asked again.
            let known = KnownVersion { version: version.clone(), ..library };
            let _ = remember(&file, &known);
        }
        Ok(version)
    }
}

/// The locked reference of an evaluation whose results depend on nothing else but what the request says.
/// Some extras are kept, others are not.
fn cacheable(evaluation: &Evaluation) -> Option<&str> {
    let Source { expression, fragment: _, select, extras, cache: _ } = &evaluation.source;
    match expression {
        Expression::Flake(reference) if select.is_none() && extras.are_kept() => Some(reference),
        Expression::Flake(_) | Expression::Text(_) => None,
    }
}

fn look_at_library(lib_dir: Option<&Path>) -> Option<KnownVersion> {
    let library = std::fs::canonicalize(gradient_nix::library::locate(lib_dir)?).ok()?;
    let found = std::fs::metadata(&library).ok()?;
    let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let modified_ns = u64::try_from(modified.as_nanos()).ok()?;
    Some(KnownVersion { library, len: found.len(), modified_ns, version: String::new() })
}

fn remember(file: &Path, known: &KnownVersion) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let new = file.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&new, serde_json::to_vec(known)?)?;
    std::fs::rename(&new, file)
}

impl EvaluationCache {
    /// The fingerprint of the flake.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Where the cache is kept, or will be.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.file(&self.fingerprint)
    }

    /// The folder that it is kept in.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The file, for the children.
    pub(crate) fn file(&self) -> CacheFile {
        let path = self.folder.file(&self.fingerprint).display().to_string();
        CacheFile { path, fingerprint: self.fingerprint.clone() }
    }

    fn exists(&self) -> impl Fn(&StorePath) -> bool + use<> {
        let store_dir = self.store_dir.clone();
        move |path| store_dir.join(path.base_name()).exists()
    }

    /// The answer, if the cache has all of it. A cache that does not answer is a miss.
    pub(crate) async fn replay(&self) -> Option<Evaluated> {
        let cache = self.clone();
        let answer =
            tokio::task::spawn_blocking(move || cache.replay_now()).await.ok().flatten()?;
        self.is_known(&answer).await.then_some(answer)
    }

    /// Whether the store knows every derivation of an answer. A file that lies in the store's folder
    /// says little: a stop may have left it half-way. The evaluators look at each of them again.
    async fn is_known(&self, answer: &Evaluated) -> bool {
        let Some(store) = &self.known_paths else {
            return true;
        };
        let paths: BTreeSet<_> = answer.jobs.iter().map(|(_, job)| job.drv_path.clone()).collect();
        let known = store.known(&paths).await.unwrap_or_default();
        let unknown = paths.difference(&known).count();
        if unknown > 0 {
            tracing::warn!(unknown, "derivations are in the store's folder and not in the store");
        }
        unknown == 0
    }

    fn replay_now(&self) -> Option<Evaluated> {
        let path = self.folder.file(&self.fingerprint);
        let opened = EvalCache::open_existing(&path, &self.fingerprint);
        let answer = opened.and_then(|cache| match cache {
            None => Ok(None),
            Some(cache) => match replay(cache, &self.request, self.exists())? {
                Replay::Complete(outcome) => {
                    self.folder.touch(&self.fingerprint);
                    Ok(Some(outcome))
                }
                // What the children are going to read is looked at in full first.
                Replay::Incomplete => match EvalCache::open_existing(&path, &self.fingerprint)? {
                    None => Ok(None),
                    Some(cache) => cache.check().map(|()| None),
                },
            },
        });
        answer.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn Error, path = %path.display(), "the evaluation cache does not answer");
            if error.is_of_no_use() {
                // Whoever opens it next tries again.
                let _ = gradient_evalcache::remove(&path);
            }
            None
        })
    }

    /// What evaluations before warned of, of whatever part of the flake.
    pub(crate) async fn warnings(&self) -> Vec<Warned> {
        self.look(|file| file.warnings()).await
    }

    /// Reads something from the file; nothing if there is none, or it does not answer.
    async fn look<T: Default + Send + 'static>(
        &self,
        read: impl FnOnce(&EvalCache) -> Result<T, CacheError> + Send + 'static,
    ) -> T {
        let cache = self.clone();
        let look = move || {
            let found = EvalCache::open_existing(&cache.path(), &cache.fingerprint)?;
            found.as_ref().map_or_else(|| Ok(T::default()), read)
        };
        let looked = tokio::task::spawn_blocking(look).await;
        // Whoever evaluates next meets the same error and heals the file.
        looked.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// Of those the ones that concern what was found.
    pub(crate) fn concerning<'a>(
        &'a self,
        warnings: Vec<Warned>,
        found: impl IntoIterator<Item = &'a AttrPath>,
    ) -> Vec<Warned> {
        self.request.concerning(warnings, found)
    }

    /// Notes that the evaluation is complete, if the cache can now answer it alone; then makes room
    /// for others.
    pub(crate) async fn complete(&self, warnings: Vec<Warned>) -> bool {
        let cache = self.clone();
        let completed = tokio::task::spawn_blocking(move || cache.complete_now(&warnings)).await;
        match completed {
            Ok(Ok(complete)) => return complete,
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn Error,
                    "the evaluation cache is not complete"
                );
            }
            Err(error) => tracing::warn!(%error, "the evaluation cache is not complete"),
        }
        false
    }

    fn complete_now(&self, warnings: &[Warned]) -> Result<bool, CacheError> {
        let path = self.folder.file(&self.fingerprint);
        let cache = EvalCache::open(&path, &self.fingerprint)?;
        let complete = cache.complete(&self.request, warnings, self.exists())?;
        let swept = self.folder.sweep(SystemTime::now(), UNUSED_MAX, FOLDER_BYTES_MAX)?;
        if !swept.is_empty() {
            tracing::info!(caches = swept.len(), "evaluation caches removed to make room");
        }
        Ok(complete)
    }
}
