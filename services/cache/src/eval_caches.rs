//! Evaluation caches of the fleet: whole SQLite files, one per fingerprint, looked at before anybody
//! can fetch them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use gradient_evalcache::{CacheError, Finding, Folder, inspect};
use tokio::sync::Semaphore;
use uuid::Uuid;
use zstd::stream::write::Decoder;

use crate::error::Error;
use crate::settings::{CacheSettings, OpenError};

/// Folder of files that are being received; emptied at start.
const STAGING: &str = "staging";
/// A cache that nobody fetched or renewed for so long goes.
const UNUSED_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Caches that are sent at the same time; others wait.
const READERS_MAX: usize = 16;
/// Largest window of a compressed file, as a power of two: 8 MiB of memory per upload.
const WINDOW_LOG_MAX: u32 = 23;

/// The key of an evaluation cache: SHA-256 of what it depends on, 64 digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(String);

impl Fingerprint {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text.len() == 64 && text.bytes().all(is_digit) {
            true => Ok(Fingerprint(text.to_owned())),
            false => Err(Error::Malformed("a fingerprint has 64 digits of base 16".into())),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The folder of evaluation caches.
#[derive(Debug)]
pub(crate) struct EvalCaches {
    folder: Folder,
    staging: PathBuf,
    size_max_bytes: u64,
    total_max_bytes: u64,
    /// Comparing with what is there, placing and sweeping are one step.
    placing: Mutex<()>,
    pub(crate) writers: Semaphore,
    pub(crate) readers: Arc<Semaphore>,
}

impl EvalCaches {
    pub(crate) fn open(dir: &Path, settings: &CacheSettings) -> Result<Self, OpenError> {
        let staging = dir.join(STAGING);
        let prepare = || {
            match fs::remove_dir_all(&staging) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::create_dir_all(&staging)
        };
        prepare().map_err(|source| OpenError::File { path: staging.clone(), source })?;
        Ok(EvalCaches {
            folder: Folder::new(dir),
            staging,
            size_max_bytes: settings.eval_cache_size_max_bytes,
            total_max_bytes: settings.eval_cache_total_max_bytes,
            placing: Mutex::default(),
            writers: Semaphore::new(settings.eval_cache_uploads_max.max(1)),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
        })
    }

    /// A file that nobody can see yet, for a cache that comes. Blocks.
    pub(crate) fn receive(&self) -> Result<Incoming, Error> {
        // Somebody may have made room by hand.
        fs::create_dir_all(&self.staging).map_err(|error| Error::storage(&error))?;
        let path = self.staging.join(format!("{}.sqlite", Uuid::new_v4()));
        let staged = Staged(path);
        let file = File::options().write(true).create_new(true).open(&staged.0);
        let file = file.map_err(|error| Error::storage(&error))?;
        let limit = self.size_max_bytes;
        let bounded = Bounded { file, written: 0, limit, fault: None };
        let decoder = Decoder::new(bounded).and_then(|mut decoder| {
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            Ok(decoder)
        });
        let decoder = decoder.map_err(|error| Error::storage(&error))?;
        Ok(Incoming { decoder, staged, compressed: 0, limit })
    }

    /// Puts a received file in its place, if it is well and answers all that the one there answers
    /// and more; whether it did. Blocks.
    pub(crate) fn place(&self, of: &Fingerprint, staged: &Staged) -> Result<bool, Error> {
        let new = match inspect(&staged.0, of.as_str()).map_err(storage)? {
            Finding::Useless(reason) => return Err(Error::Unverified(reason)),
            Finding::Well { requests, .. } if requests.is_empty() => {
                return Err(Error::Unverified("no evaluation of it is complete".into()));
            }
            Finding::Well { requests, .. } => BTreeSet::from_iter(requests),
        };
        let _placing = self.placing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.answered(of)?;
        if !new.is_superset(&old) || new.len() == old.len() {
            return Ok(false);
        }
        match self.folder.stage(of.as_str(), &staged.0).map_err(storage)? {
            Finding::Useless(reason) => return Err(Error::Unverified(reason)),
            Finding::Well { .. } => {}
        }
        if let Err(error) = self.sweep_now(SystemTime::now()) {
            tracing::warn!(%error, "evaluation caches cannot be swept");
        }
        Ok(true)
    }

    /// The requests that the cache there answers.
    fn answered(&self, of: &Fingerprint) -> Result<BTreeSet<String>, Error> {
        if !self.folder.file(of.as_str()).exists() {
            return Ok(BTreeSet::new());
        }
        match self.folder.check(of.as_str()).map_err(storage)? {
            Finding::Well { requests, .. } => Ok(requests.into_iter().collect()),
            Finding::Useless(reason) => {
                tracing::warn!(fingerprint = of.as_str(), reason, "an evaluation cache is damaged");
                Ok(BTreeSet::new())
            }
        }
    }

    /// A cache to read and its size in bytes; notes that it was of use. Blocks.
    pub(crate) fn file(&self, of: &Fingerprint) -> Result<(File, u64), Error> {
        let opened = File::open(self.folder.file(of.as_str()));
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NotFound(format!("evaluation cache {}", of.as_str())),
            _ => Error::storage(&error),
        })?;
        let size = file.metadata().map_err(|error| Error::storage(&error))?.len();
        self.folder.touch(of.as_str());
        Ok((file, size))
    }

    /// Removes what is too old or too much; how many. Blocks.
    pub(crate) fn sweep(&self, now: SystemTime) -> Result<usize, Error> {
        let _placing = self.placing.lock().unwrap_or_else(PoisonError::into_inner);
        self.sweep_now(now).map_err(storage)
    }

    fn sweep_now(&self, now: SystemTime) -> Result<usize, CacheError> {
        let swept = self.folder.sweep(now, UNUSED_MAX, self.total_max_bytes)?.len();
        if swept > 0 {
            let count = u64::try_from(swept).unwrap_or(u64::MAX);
            metrics::counter!("gradient_cache_eval_caches_swept_total").increment(count);
            tracing::info!(caches = swept, "evaluation caches removed to make room");
        }
        Ok(swept)
    }
}

fn storage(error: CacheError) -> Error {
    Error::storage(&error)
}

/// A received file; gone when this is dropped, unless it was placed.
#[derive(Debug)]
pub(crate) struct Staged(PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = gradient_evalcache::remove(&self.0) {
            tracing::warn!(%error, "an unfinished upload cannot be removed");
        }
    }
}

/// A cache that is being received, decompressed as it comes.
pub(crate) struct Incoming {
    decoder: Decoder<'static, Bounded>,
    staged: Staged,
    compressed: u64,
    limit: u64,
}

impl Incoming {
    /// Takes the next bytes. Blocks.
    pub(crate) fn take(mut self, bytes: &Bytes) -> Result<Self, Error> {
        self.compressed += bytes.len() as u64;
        if self.compressed > self.limit {
            let what = "the compressed evaluation cache";
            return Err(Error::TooLarge { what, limit: self.limit });
        }
        let written = self.decoder.write_all(bytes);
        written.map_err(|error| self.fault(&error))?;
        Ok(self)
    }

    /// All bytes have come. Blocks.
    pub(crate) fn finish(mut self) -> Result<Staged, Error> {
        let flushed = self.decoder.flush();
        flushed.map_err(|error| self.fault(&error))?;
        Ok(self.staged)
    }

    fn fault(&mut self, error: &io::Error) -> Error {
        let fault = self.decoder.get_mut().fault.take();
        fault.unwrap_or_else(|| Error::Unverified(format!("not compressed with zstd: {error}")))
    }
}

/// A file with a limit, that remembers why it took no more.
struct Bounded {
    file: File,
    written: u64,
    limit: u64,
    fault: Option<Error>,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written + bytes.len() as u64 > self.limit {
            let what = "the evaluation cache";
            self.fault = Some(Error::TooLarge { what, limit: self.limit });
            return Err(io::Error::other("too large"));
        }
        match self.file.write(bytes) {
            Ok(count) => {
                self.written += count as u64;
                Ok(count)
            }
            Err(error) => {
                self.fault = Some(Error::storage(&error));
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_parsed_not_used() {
        let right = "0123456789abcdef".repeat(4);
        assert_eq!(Fingerprint::parse(&right).expect("a fingerprint").as_str(), right);
        for junk in ["", "../../etc/passwd", &right[1..], &right.to_uppercase(), &right.repeat(2)] {
            assert!(Fingerprint::parse(junk).is_err(), "{junk}");
        }
    }
}
