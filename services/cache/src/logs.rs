//! Logs of builds: files that grow at their end until they are finished.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::watch;

use crate::error::Error;

/// Longest id of a log, in characters.
pub const LOG_ID_LEN_MAX: usize = 64;

/// Entries of the table of open logs at which those nobody uses are removed.
const OPEN_SWEEP_AT: usize = 1024;

/// Bytes that a reader gets at once.
const READ_BYTES: u64 = 64 << 10;

/// Name of a log: 1 to 64 of `a-z`, `0-9` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LogId(String);

impl LogId {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        match (1..=LOG_ID_LEN_MAX).contains(&text.len()) && text.bytes().all(allowed) {
            true => Ok(LogId(text.to_owned())),
            false => Err(Error::Malformed(format!(
                "a log id is 1 to {LOG_ID_LEN_MAX} of a-z, 0-9 and -"
            ))),
        }
    }

    /// Whether it is the log of this assignment, or one beside it: `<assignment>-<more>`.
    pub(crate) fn belongs_to(&self, assignment: &str) -> bool {
        match self.0.strip_prefix(assignment) {
            Some(rest) => !assignment.is_empty() && (rest.is_empty() || rest.starts_with('-')),
            None => false,
        }
    }
}

/// How far a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes.
    pub(crate) length: u64,
    pub(crate) is_finished: bool,
}

/// All logs.
#[derive(Debug)]
pub(crate) struct Logs {
    dir: PathBuf,
    size_max: u64,
    open: Mutex<HashMap<LogId, Weak<Log>>>,
}

/// One log that somebody reads or writes.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    end_marker: PathBuf,
    size_max: u64,
    writing: tokio::sync::Mutex<()>,
    progress: watch::Sender<Progress>,
}

impl Logs {
    pub(crate) fn new(dir: PathBuf, size_max: u64) -> Self {
        Logs { dir, size_max, open: Mutex::default() }
    }

    /// The log with this id; `None` if there is none and none shall be made.
    pub(crate) fn log(&self, id: &LogId, make: bool) -> Result<Option<Arc<Log>>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = open.get(id).and_then(Weak::upgrade) {
            return Ok(Some(log));
        }
        let path = self.dir.join(format!("{}.log", id.0));
        let end_marker = self.dir.join(format!("{}.end", id.0));
        let length = match std::fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound && make => 0,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::storage(&error)),
        };
        let is_finished = end_marker.exists();
        let log = Arc::new(Log {
            path,
            end_marker,
            size_max: self.size_max,
            writing: tokio::sync::Mutex::default(),
            progress: watch::Sender::new(Progress { length, is_finished }),
        });
        if open.len() >= OPEN_SWEEP_AT {
            open.retain(|_, log| log.strong_count() > 0);
        }
        open.insert(id.clone(), Arc::downgrade(&log));
        Ok(Some(log))
    }
}

impl Log {
    /// How far it is, now and from now on.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Adds bytes at the end, which must be at `offset`; returns the new length. All of them or
    /// none.
    pub(crate) async fn append(&self, offset: u64, bytes: Bytes) -> Result<u64, Error> {
        let _writing = self.writing.lock().await;
        let Progress { length, is_finished } = *self.progress.borrow();
        if is_finished {
            return Err(Error::Finished);
        }
        if offset != length {
            return Err(Error::WrongOffset { offset, length });
        }
        let new_length = length + bytes.len() as u64;
        if new_length > self.size_max {
            let limit = self.size_max;
            return Err(Error::TooLarge { what: "the log", limit });
        }
        let path = self.path.clone();
        blocking(move || append_whole(&path, length, &bytes)).await?;
        self.progress.send_modify(|progress| progress.length = new_length);
        Ok(new_length)
    }

    /// Nothing will be added any more. Finishing twice is fine.
    pub(crate) async fn finish(&self) -> Result<u64, Error> {
        let _writing = self.writing.lock().await;
        let Progress { length, is_finished } = *self.progress.borrow();
        if !is_finished {
            let (path, marker) = (self.path.clone(), self.end_marker.clone());
            blocking(move || {
                append_whole(&path, length, b"")?;
                File::create(marker).map(drop)
            })
            .await?;
            self.progress.send_modify(|progress| progress.is_finished = true);
        }
        Ok(length)
    }

    /// Up to 64 KiB from `offset` on, which is below the length.
    pub(crate) async fn read(&self, offset: u64) -> Result<Bytes, Error> {
        use std::os::unix::fs::FileExt as _;
        let wanted = READ_BYTES.min(self.progress.borrow().length.saturating_sub(offset));
        let path = self.path.clone();
        blocking(move || {
            let mut bytes = vec![0; usize::try_from(wanted).unwrap_or(0)];
            File::open(path)?.read_exact_at(&mut bytes, offset)?;
            Ok(bytes.into())
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)
        .flatten()
        .map_err(|error| Error::storage(&error))
}

/// Adds `bytes` to a file of `length` bytes; when that fails, the file is as it was.
fn append_whole(path: &Path, length: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let written = file.write_all(bytes);
    if written.is_err() {
        file.set_len(length)?;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed() {
        for good in ["a12", "0", "a-b", &"x".repeat(64)] {
            assert!(LogId::parse(good).is_ok(), "{good}");
        }
        for junk in ["", "A", "a/b", "..", "a.b", "ä", &"x".repeat(65)] {
            assert!(LogId::parse(junk).is_err(), "{junk}");
        }
        let belongs =
            |id: &str, assignment| LogId::parse(id).expect("valid").belongs_to(assignment);
        assert!(belongs("a12", "a12") && belongs("a12-eval", "a12"));
        assert!(!belongs("a123", "a12") && !belongs("a1", "a12") && !belongs("a1", ""));
    }

    #[tokio::test]
    async fn appending_needs_the_right_offset() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let id = LogId::parse("a1").expect("valid");
        let logs = Logs::new(dir.path().to_owned(), 10);
        assert!(logs.log(&id, false).expect("looks").is_none());
        let log = logs.log(&id, true).expect("makes").expect("made");
        assert_eq!(log.append(0, Bytes::from("hello")).await.expect("appends"), 5);
        let wrong = log.append(0, Bytes::from("hello")).await;
        assert!(matches!(wrong, Err(Error::WrongOffset { length: 5, .. })));
        let large = log.append(5, Bytes::from("world!")).await;
        assert!(matches!(large, Err(Error::TooLarge { limit: 10, .. })));
        assert_eq!(log.read(1).await.expect("reads"), "ello");
        drop(log);
        // Found again from the disk.
        let log = logs.log(&id, false).expect("looks").expect("there");
        assert_eq!(log.finish().await.expect("ends"), 5);
        assert_eq!(log.finish().await.expect("ends"), 5);
        assert!(matches!(log.append(5, Bytes::new()).await, Err(Error::Finished)));
        drop(log);
        let log = logs.log(&id, false).expect("looks").expect("there");
        assert!(log.progress().borrow().is_finished);
    }
}
