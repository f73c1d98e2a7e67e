//! A folder of caches: what is in it, whether it is well, and what goes when there is too much.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};

use crate::file::{
    CacheError, SIDE_FILES, TABLES, io_error, lock, remove_files, remove_sides, with_suffix,
};

/// Suffix of cache files.
const SUFFIX: &str = ".sqlite";
/// Length of a fingerprint in hexadecimal.
const FINGERPRINT_LEN: usize = 64;

/// A folder that caches are kept in, one file per fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    path: PathBuf,
}

/// A cache in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Fingerprint of the flake.
    pub fingerprint: String,
    /// The file.
    pub path: PathBuf,
    /// Size with its log, in bytes.
    pub bytes: u64,
    /// When it was last written or answered from.
    pub used_at: SystemTime,
}

/// What a check says of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is well and holds this.
    Well {
        /// Attributes of every kind.
        attributes: u64,
        /// Requests that it can answer alone.
        requests: Vec<String>,
    },
    /// It is of no use: the next evaluation makes it anew.
    Useless(String),
}

impl Folder {
    /// The caches below this path.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a fingerprint.
    #[must_use]
    pub fn file(&self, fingerprint: &str) -> PathBuf {
        self.path.join(format!("{fingerprint}{SUFFIX}"))
    }

    /// The caches, the one used last first.
    ///
    /// # Errors
    /// If the folder cannot be read. A folder that is not there is empty.
    pub fn list(&self) -> Result<Vec<Kept>, CacheError> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&self.path).map_err(|source| io_error(&self.path, source))?;
        let mut kept: Vec<Kept> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                let fingerprint = name.strip_suffix(SUFFIX)?.to_owned();
                let is_one = fingerprint.len() == FINGERPRINT_LEN
                    && fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_one.then(|| self.look(fingerprint)).flatten()
            })
            .collect();
        kept.sort_by(|a, b| (b.used_at, &a.fingerprint).cmp(&(a.used_at, &b.fingerprint)));
        Ok(kept)
    }

    fn look(&self, fingerprint: String) -> Option<Kept> {
        let path = self.file(&fingerprint);
        let files = [path.clone(), with_suffix(&path, "-wal")];
        let found: Vec<_> = files.iter().filter_map(|file| fs::metadata(file).ok()).collect();
        let used_at = found.iter().filter_map(|file| file.modified().ok()).max()?;
        let bytes = found.iter().map(fs::Metadata::len).sum();
        Some(Kept { fingerprint, path, bytes, used_at })
    }

    /// Looks at every page of a cache, and whether it is what its name says. Changes nothing.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn check(&self, fingerprint: &str) -> Result<Finding, CacheError> {
        inspect(&self.file(fingerprint), fingerprint)
    }

    /// Puts a file that came from elsewhere in the place of a cache, if it is well and can answer a
    /// request alone. Whatever SQLite kept beside the old one goes.
    ///
    /// # Errors
    /// If the file cannot be read or moved.
    pub fn stage(&self, fingerprint: &str, file: &Path) -> Result<Finding, CacheError> {
        let found = inspect(file, fingerprint)?;
        match &found {
            Finding::Useless(_) => return Ok(found),
            Finding::Well { requests, .. } if requests.is_empty() => {
                return Ok(Finding::Useless("no evaluation of it is complete".to_owned()));
            }
            Finding::Well { .. } => {}
        }
        self.put(fingerprint, file)?;
        Ok(found)
    }

    /// As [`Folder::stage`], for those who have looked at the file already.
    ///
    /// # Errors
    /// If the file cannot be moved.
    pub fn put(&self, fingerprint: &str, file: &Path) -> Result<(), CacheError> {
        fs::create_dir_all(&self.path).map_err(|source| io_error(&self.path, source))?;
        let path = self.file(fingerprint);
        let _lock = lock(&self.path)?;
        // The log of the looking belongs to the name that it has now; that of the old one goes
        // before the new file comes, which takes the old one's place in one step.
        for suffix in SIDE_FILES {
            let _ = fs::remove_file(with_suffix(file, suffix));
        }
        remove_sides(&path).map_err(|source| io_error(&path, source))?;
        fs::rename(file, &path).map_err(|source| io_error(&path, source))
    }

    /// Notes that a cache was of use just now.
    pub fn touch(&self, fingerprint: &str) {
        // A cache that looks older than it is goes earlier, no more.
        let file = fs::File::options().append(true).open(self.file(fingerprint));
        let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// Removes the caches that `is_chosen`, and gives them.
    ///
    /// # Errors
    /// If the folder cannot be read or a file not removed.
    pub fn purge(&self, is_chosen: impl Fn(&Kept) -> bool) -> Result<Vec<Kept>, CacheError> {
        let chosen: Vec<Kept> = self.list()?.into_iter().filter(|kept| is_chosen(kept)).collect();
        if chosen.is_empty() {
            return Ok(chosen);
        }
        let _lock = lock(&self.path)?;
        for kept in &chosen {
            remove_files(&kept.path).map_err(|source| io_error(&kept.path, source))?;
        }
        Ok(chosen)
    }

    /// Removes what nobody used for `age`, then the longest unused ones until the rest fits into
    /// `bytes_max`. Gives what was removed.
    ///
    /// # Errors
    /// As [`Folder::purge`].
    pub fn sweep(
        &self,
        now: SystemTime,
        age: Duration,
        bytes_max: u64,
    ) -> Result<Vec<Kept>, CacheError> {
        let mut sum = 0_u64;
        let keep: Vec<String> = self
            .list()?
            .into_iter()
            .filter(|kept| {
                sum = sum.saturating_add(kept.bytes);
                let unused = now.duration_since(kept.used_at).unwrap_or_default();
                sum <= bytes_max && unused <= age
            })
            .map(|kept| kept.fingerprint)
            .collect();
        self.purge(|kept| !keep.contains(&kept.fingerprint))
    }
}

/// Looks at every page of a file, and whether it is the cache of this fingerprint. Changes nothing,
/// and runs nothing that the file brings: views, triggers and checks of its own make it useless.
///
/// # Errors
/// If it does not answer.
pub fn inspect(path: &Path, fingerprint: &str) -> Result<Finding, CacheError> {
    match look_into(path, fingerprint) {
        Err(error) if error.is_of_no_use() => Ok(Finding::Useless(error.to_string())),
        found => found,
    }
}

fn look_into(path: &Path, fingerprint: &str) -> Result<Finding, CacheError> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    if shape(&connection)? != expected_shape()? {
        return Err(CacheError::Foreign);
    }
    let fault: String = connection.query_row("pragma quick_check(1)", [], |row| row.get(0))?;
    if fault != "ok" {
        return Err(CacheError::Damaged(fault));
    }
    let (schema, of): (u32, String) =
        connection.query_row("select schema, fingerprint from GradientCache", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if schema != gradient_ipc::fingerprint::CACHE_SCHEMA || of != fingerprint {
        return Err(CacheError::Foreign);
    }
    let attributes = connection.query_row("select count(*) from Attributes", [], |r| r.get(0))?;
    let mut all = connection.prepare("select request from GradientComplete order by request")?;
    let requests = all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(Finding::Well { attributes, requests })
}

/// What a file declares: kind, name and text of each.
type Shape = Vec<(String, String, Option<String>)>;

fn shape(connection: &Connection) -> Result<Shape, CacheError> {
    // One more than ours says enough of a file with many.
    let all = "select type, name, sql from sqlite_master order by name limit 32";
    let mut all = connection.prepare(all)?;
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn expected_shape() -> Result<Shape, CacheError> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(TABLES)?;
    shape(&ours)
}
