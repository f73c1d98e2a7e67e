//! Opening a cache: its folder, its key, its settings.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gradient_daemon::{PublicKey, SecretKey};
use tokio::sync::Semaphore;

use crate::error::Error;
use crate::eval_cache_http::blocking;
use crate::eval_caches::EvalCaches;
use crate::logs::Logs;
use crate::objects::Objects;
use crate::token::{self, UploadToken};

/// Shortest secret or static token that is accepted, in bytes.
const SECRET_LEN_MIN: usize = 16;
/// Pause between two sweeps of the evaluation caches; each placement sweeps, too.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);

/// Settings of a cache.
#[derive(Clone)]
pub struct CacheSettings {
    /// Folder for everything that is kept; made if it is missing.
    pub dir: PathBuf,
    /// Name of the signing key; used when the key is made.
    pub key_name: String,
    /// Secret that signs upload tokens; at least 16 bytes.
    pub secret: Vec<u8>,
    /// Static token for those who submit sources, at least 16 bytes; it allows content-addressed
    /// paths only. `None` allows nobody.
    pub cluster_token: Option<String>,
    /// Largest NAR that is accepted, in bytes.
    pub nar_size_max_bytes: u64,
    /// Largest log that is kept, in bytes.
    pub log_size_max_bytes: u64,
    /// Uploads that are received at the same time; others wait.
    pub uploads_max: usize,
    /// Seconds without a byte after which an upload is given up.
    pub stall_secs: u64,
    /// Largest evaluation cache that is accepted, in bytes.
    pub eval_cache_size_max_bytes: u64,
    /// Most bytes of all evaluation caches; those unused for longest go first.
    pub eval_cache_total_max_bytes: u64,
    /// Evaluation caches that are received at the same time; others wait.
    pub eval_cache_uploads_max: usize,
    /// Whether a NAR reaches the disk before its narinfo is written, so that a power failure loses
    /// uploads but never leaves a narinfo without its NAR.
    pub is_synced: bool,
}

impl CacheSettings {
    /// Settings with the defaults: NARs up to 8 GiB, logs up to 64 MiB, 64 uploads at once, given
    /// up after 60 s without a byte, synced, evaluation caches up to 512 MiB each and 10 GiB in
    /// all, 4 received at once, no static token.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, key_name: &str, secret: Vec<u8>) -> Self {
        CacheSettings {
            dir: dir.into(),
            key_name: key_name.to_owned(),
            secret,
            cluster_token: None,
            nar_size_max_bytes: 8 << 30,
            log_size_max_bytes: 64 << 20,
            uploads_max: 64,
            stall_secs: 60,
            eval_cache_size_max_bytes: 512 << 20,
            eval_cache_total_max_bytes: 10 << 30,
            eval_cache_uploads_max: 4,
            is_synced: true,
        }
    }
}

impl std::fmt::Debug for CacheSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheSettings")
            .field("dir", &self.dir)
            .field("key_name", &self.key_name)
            .field("nar_size_max_bytes", &self.nar_size_max_bytes)
            .finish_non_exhaustive()
    }
}

/// Why a cache cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The object store cannot use the folder.
    #[error("{path}: {source}")]
    Objects {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: object_store::Error,
    },
    /// Another process has the folder open.
    #[error("{path} is in use by another cache service")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The key file or the key's name is wrong.
    #[error("signing key {path}: {source}")]
    Key {
        /// The key file.
        path: PathBuf,
        /// Why.
        source: gradient_daemon::signature::ParseKeyError,
    },
    /// A secret is too short to be one.
    #[error("{name} must have at least {SECRET_LEN_MIN} bytes")]
    WeakSecret {
        /// Which one.
        name: &'static str,
    },
}

/// An open cache. Cloning shares it.
#[derive(Clone, Debug)]
pub struct CacheState(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) settings: CacheSettings,
    pub(crate) key: SecretKey,
    pub(crate) objects: Objects,
    pub(crate) logs: Logs,
    pub(crate) uploads: Semaphore,
    pub(crate) eval_caches: EvalCaches,
    /// Held as long as the cache is open.
    _lock: File,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.settings.fmt(f)
    }
}

/// Who asks.
pub(crate) enum Caller {
    /// Somebody with the static token of the cluster.
    Cluster,
    /// A worker, for one assignment.
    Assignment(UploadToken),
}

impl CacheState {
    /// Opens the folder, makes the signing key at the first start (`secret-key`, mode 0600, and
    /// `public-key`), and removes what interrupted uploads left.
    ///
    /// # Errors
    /// If the folder cannot be used or is in use, the key is malformed, or a secret is too short.
    pub fn open(settings: CacheSettings) -> Result<Self, OpenError> {
        if settings.secret.len() < SECRET_LEN_MIN {
            return Err(OpenError::WeakSecret { name: "the secret" });
        }
        let static_token = settings.cluster_token.as_ref();
        if static_token.is_some_and(|token| token.len() < SECRET_LEN_MIN) {
            let name = "the cluster token";
            return Err(OpenError::WeakSecret { name });
        }
        let dir = &settings.dir;
        make_folder(dir)?;
        let lock = lock(dir)?;
        let key = signing_key(dir, &settings.key_name)?;
        let objects = Objects::open(&dir.join("cache"), settings.is_synced)?;
        let log_dir = dir.join("logs");
        make_folder(&log_dir)?;
        let logs = Logs::new(log_dir, settings.log_size_max_bytes);
        let uploads = Semaphore::new(settings.uploads_max.max(1));
        let eval_caches = EvalCaches::open(&dir.join("eval-cache"), &settings)?;
        let inner = Inner { settings, key, objects, logs, uploads, eval_caches, _lock: lock };
        Ok(CacheState(Arc::new(inner)))
    }

    /// The key that verifies what this cache signs: for `trusted-public-keys`.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.0.key.public()
    }

    /// Removes the evaluation caches that are unused for 30 days at `now`, and the longest unused
    /// ones beyond the limit of all; how many.
    ///
    /// # Errors
    /// If their folder cannot be read or a file not removed.
    pub async fn sweep_eval_caches(&self, now: SystemTime) -> Result<usize, Error> {
        let state = self.clone();
        blocking(move || state.0.eval_caches.sweep(now)).await
    }

    /// Sweeps the evaluation caches every hour, for as long as it is polled.
    pub async fn keep_sweeping(&self) {
        loop {
            if let Err(error) = self.sweep_eval_caches(SystemTime::now()).await {
                tracing::warn!(%error, "evaluation caches cannot be swept");
            }
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }

    /// Who has this token.
    pub(crate) fn caller(&self, token: Option<&str>) -> Result<Caller, Error> {
        let Some(token) = token else {
            return Err(Error::Unauthorized("a bearer token is needed".into()));
        };
        let settings = &self.0.settings;
        if let Some(cluster) = &settings.cluster_token
            && token::is_equal(&settings.secret, token, cluster)
        {
            return Ok(Caller::Cluster);
        }
        match token::verify(&settings.secret, now_ms(), token) {
            Ok(token) => Ok(Caller::Assignment(token)),
            Err(error) => Err(Error::Unauthorized(error.to_string())),
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn at(path: &Path) -> impl Fn(io::Error) -> OpenError + '_ {
    move |source| OpenError::File { path: path.to_owned(), source }
}

fn make_folder(dir: &Path) -> Result<(), OpenError> {
    std::fs::create_dir_all(dir).map_err(at(dir))
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(at(&path)(source)),
    }
}

fn signing_key(dir: &Path, name: &str) -> Result<SecretKey, OpenError> {
    let path = dir.join("secret-key");
    let key_error = |source| OpenError::Key { path: path.clone(), source };
    match std::fs::read_to_string(&path) {
        Ok(text) => return SecretKey::parse(&text).map_err(key_error),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(at(&path)(error)),
    }
    let mut seed = [0; 32];
    let source = Path::new("/dev/urandom");
    File::open(source).and_then(|mut random| random.read_exact(&mut seed)).map_err(at(source))?;
    let key = SecretKey::from_seed(name, &seed).map_err(key_error)?;
    write_whole(&path, 0o600, &key.expose())?;
    write_whole(&dir.join("public-key"), 0o644, &key.public().to_string())?;
    Ok(key)
}

/// Writes a file beside its place and moves it there, so that it is whole or not there.
fn write_whole(path: &Path, mode: u32, text: &str) -> Result<(), OpenError> {
    let partial = path.with_extension("partial");
    let write = || {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(mode);
        let mut file = options.open(&partial)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        std::fs::rename(&partial, path)
    };
    write().map_err(at(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn settings(dir: &Path) -> CacheSettings {
        CacheSettings::new(dir, "fleet-1", b"0123456789abcdef".to_vec())
    }

    #[test]
    fn the_key_is_made_once_and_kept_private() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let first = CacheState::open(settings(dir.path())).expect("opens");
        let key = first.public_key();
        let in_use = CacheState::open(settings(dir.path()));
        assert!(matches!(in_use, Err(OpenError::InUse { .. })));
        drop(first);
        let second = CacheState::open(settings(dir.path())).expect("opens");
        assert_eq!(second.public_key(), key);
        let mode = |name: &str| {
            let metadata = std::fs::metadata(dir.path().join(name)).expect("there");
            metadata.permissions().mode() & 0o777
        };
        assert_eq!((mode("secret-key"), mode("public-key")), (0o600, 0o644));
    }

    #[test]
    fn weak_secrets_and_bad_names_are_refused() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let mut weak = settings(dir.path());
        weak.secret.pop();
        assert!(matches!(CacheState::open(weak), Err(OpenError::WeakSecret { .. })));
        let mut weak = settings(dir.path());
        weak.cluster_token = Some(String::new());
        assert!(matches!(CacheState::open(weak), Err(OpenError::WeakSecret { .. })));
        let mut named = settings(dir.path());
        named.key_name = "a:b".into();
        assert!(matches!(CacheState::open(named), Err(OpenError::Key { .. })));
    }
}
