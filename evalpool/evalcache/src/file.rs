//! One cache file: opened, checked, healed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gradient_ipc::fingerprint::CACHE_SCHEMA;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

/// How long a write waits for the other writers of the file. Each of them writes for milliseconds.
const BUSY_WAIT: Duration = Duration::from_secs(30);
/// How long to wait for the lock of a folder, and between two looks at it.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// SQLite's own suffixes of the files beside the main one.
pub(crate) const SIDE_FILES: [&str; 2] = ["-wal", "-shm"];
/// Serialises opening and healing in a folder.
const LOCK_FILE: &str = ".lock";

/// `Attributes` is Nix's table (`eval-cache.cc`); readers of Nix's own cache understand it. The rest
/// is ours: what a forced value is, or why it cannot be had; what a derivation is in short; and which
/// evaluations are complete.
pub(crate) const TABLES: &str = "
create table if not exists Attributes(
  parent integer not null,
  name text,
  type integer not null,
  value text,
  context text,
  primary key (parent, name)
);
create table if not exists GradientCache(
  schema integer not null,
  fingerprint text not null
);
create table if not exists GradientNode(
  attribute integer primary key,
  kind integer,
  unkind text,
  recurses integer,
  unsure text,
  error text,
  plain integer,
  uncallable text
);
create table if not exists GradientOutline(
  attribute integer primary key,
  outline text not null
);
create table if not exists GradientComplete(
  request text primary key,
  digest text not null,
  attributes integer not null,
  errors integer not null
);
create table if not exists GradientWarning(
  attribute text not null,
  warning text not null,
  primary key (attribute, warning)
);
";

/// Why a cache cannot be used. None of these fails an evaluation.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The folder or file cannot be had.
    #[error("the evaluation cache '{path}' cannot be opened")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file holds no cache, or a damaged one.
    #[error("the evaluation cache is damaged: {0}")]
    Damaged(String),
    /// The file is of another flake, another Nix or another version of Gradient.
    #[error("the evaluation cache is of another flake, Nix or schema")]
    Foreign,
    /// SQLite says no for another reason: busy for too long, disk full.
    #[error("the evaluation cache does not answer")]
    Sqlite(#[source] rusqlite::Error),
}

impl CacheError {
    /// Whether the file itself is of no use, now and later.
    #[must_use]
    pub fn is_of_no_use(&self) -> bool {
        match self {
            CacheError::Damaged(_) | CacheError::Foreign => true,
            CacheError::Io { .. } | CacheError::Sqlite(_) => false,
        }
    }
}

impl From<rusqlite::Error> for CacheError {
    fn from(error: rusqlite::Error) -> CacheError {
        let text = error.to_string();
        let is_damage = match &error {
            rusqlite::Error::SqliteFailure(code, _) => {
                matches!(code.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                    || text.contains("no such table")
                    || text.contains("no such column")
            }
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::SqlInputError { .. }
            | rusqlite::Error::QueryReturnedNoRows
            | rusqlite::Error::Utf8Error(..) => true,
            _ => false,
        };
        if is_damage { CacheError::Damaged(text) } else { CacheError::Sqlite(error) }
    }
}

/// An open cache of one flake.
#[derive(Debug)]
pub struct EvalCache {
    pub(crate) connection: Connection,
    path: PathBuf,
}

impl EvalCache {
    /// Opens the cache of a fingerprint, or makes it. A file that is of no use is removed first: it
    /// counts as a miss.
    ///
    /// # Errors
    /// If the folder cannot be written, or SQLite does not answer.
    pub fn open(path: &Path, fingerprint: &str) -> Result<EvalCache, CacheError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|source| io_error(folder, source))?;
        let _lock = lock(folder)?;
        match Self::try_open(path, fingerprint) {
            Err(error) if error.is_of_no_use() => {
                remove_files(path).map_err(|source| io_error(path, source))?;
                Self::try_open(path, fingerprint)
            }
            opened => opened,
        }
    }

    /// Opens the cache of a fingerprint if there is one. A file that is of no use is removed.
    ///
    /// # Errors
    /// If SQLite does not answer.
    pub fn open_existing(path: &Path, fingerprint: &str) -> Result<Option<EvalCache>, CacheError> {
        match path.exists() {
            true => Self::open(path, fingerprint).map(Some),
            false => Ok(None),
        }
    }

    fn try_open(path: &Path, fingerprint: &str) -> Result<EvalCache, CacheError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_WAIT)?;
        // The last one to close must not remove the log of a file that was made anew meanwhile.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Every query is a look-up by its key. Without this each new value bound to a statement would
        // have it planned anew.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.set_prepared_statement_cache_capacity(32);
        let found = connection.query_row(
            "select count(*) from sqlite_master where name = 'GradientCache'",
            [],
            |row| row.get::<_, i64>(0),
        )?;
        if found == 0 {
            let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let others: i64 =
                begun.query_row("select count(*) from sqlite_master", [], |row| row.get(0))?;
            if others > 0 {
                return Err(CacheError::Foreign);
            }
            begun.execute_batch(TABLES)?;
            begun.execute(
                "insert into GradientCache(schema, fingerprint) values (?, ?)",
                (CACHE_SCHEMA, fingerprint),
            )?;
            begun.commit()?;
        }
        let cache = EvalCache { connection, path: path.to_owned() };
        let (schema, of) = cache.identity()?;
        match schema == CACHE_SCHEMA && of == fingerprint {
            true => Ok(cache),
            false => Err(CacheError::Foreign),
        }
    }

    /// The schema and the fingerprint that the file says it is of.
    pub(crate) fn identity(&self) -> Result<(u32, String), CacheError> {
        let one = "select schema, fingerprint from GradientCache";
        Ok(self.connection.query_row(one, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets SQLite look at every page of the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), CacheError> {
        let found: String =
            self.connection.query_row("pragma integrity_check(1)", [], |row| row.get(0))?;
        match found.as_str() {
            "ok" => Ok(()),
            fault => Err(CacheError::Damaged(fault.to_owned())),
        }
    }

    /// Moves what was written from the log into the file, as far as no reader needs the log. Waits
    /// for nobody.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn checkpoint(&self) -> Result<(), CacheError> {
        let _: i64 =
            self.connection.query_row("pragma wal_checkpoint(passive)", [], |r| r.get(0))?;
        Ok(())
    }
}

/// Removes a cache file and what SQLite keeps beside it. Whoever has it open writes into the void.
/// Nobody opens a cache of the same folder meanwhile.
///
/// # Errors
/// If a file cannot be removed, or the folder not locked.
pub fn remove(path: &Path) -> Result<(), CacheError> {
    let _lock = lock(path.parent().unwrap_or(Path::new(".")))?;
    remove_files(path).map_err(|source| io_error(path, source))
}

/// As [`remove`], for those who hold the lock of the folder, or a file that nobody else knows.
pub(crate) fn remove_files(path: &Path) -> io::Result<()> {
    // The log first: it must never meet a new main file.
    remove_sides(path)?;
    remove_file(path)
}

/// Removes what SQLite keeps beside a cache file.
pub(crate) fn remove_sides(path: &Path) -> io::Result<()> {
    SIDE_FILES.iter().try_for_each(|suffix| remove_file(&with_suffix(path, suffix)))
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A file beside the main one.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Locks a folder of caches until the result is dropped. Held for milliseconds.
pub(crate) fn lock(folder: &Path) -> Result<File, CacheError> {
    let path = folder.join(LOCK_FILE);
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(|source| io_error(&path, source))?;
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_WAIT => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                let source = io::Error::from(io::ErrorKind::TimedOut);
                return Err(io_error(&path, source));
            }
            Err(TryLockError::Error(source)) => return Err(io_error(&path, source)),
        }
    }
}

pub(crate) fn io_error(path: &Path, source: io::Error) -> CacheError {
    CacheError::Io { path: path.to_owned(), source }
}
