//! The log of a build on its way to the cache service. It never holds a build up and never fails
//! it: what does not fit or cannot be sent is lost, and the log says so.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::cache_client::CacheClient;

/// Bytes that wait to be sent; what comes beyond them is dropped.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Bytes that are sent at once, even before the second is over.
const PIECE_BYTES: usize = 64 << 10;
/// Longest time that a line waits to be sent.
const PIECE_WAIT: Duration = Duration::from_secs(1);
/// Longest single line that is kept, in bytes.
const LINE_LEN_MAX: usize = 32 << 10;
/// Time that the end of a log may take to be sent.
const FINISH_MAX: Duration = Duration::from_secs(10);

const TRUNCATED: &[u8] = "[gradient: log truncated — rate limit exceeded]\n".as_bytes();

/// How much may be logged (reference 1.1): bytes in a minute and in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes per minute.
    pub burst_bytes_per_min: u64,
    /// Bytes per hour.
    pub sustained_bytes_per_hour: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        LogLimits { burst_bytes_per_min: 8 << 20, sustained_bytes_per_hour: 64 << 20 }
    }
}

/// Takes the lines of a build's log.
pub trait LogSink: Send {
    /// Takes one line, without its line feed. Must not block.
    fn line(&mut self, line: &[u8]);
}

impl LogSink for Vec<u8> {
    fn line(&mut self, line: &[u8]) {
        self.extend_from_slice(line);
        self.push(b'\n');
    }
}

/// A bucket of bytes that fills evenly.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    capacity: u64,
    period_ms: u64,
    /// In bytes times milliseconds of the period, so that nothing is lost in rounding.
    level: u128,
    at_ms: u64,
}

impl Bucket {
    fn new(capacity: u64, period: Duration) -> Self {
        let period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        let level = u128::from(capacity) * u128::from(period_ms);
        Bucket { capacity, period_ms, level, at_ms: 0 }
    }

    fn fill(&mut self, now_ms: u64) {
        let full = u128::from(self.capacity) * u128::from(self.period_ms);
        let gained = u128::from(self.capacity) * u128::from(now_ms.saturating_sub(self.at_ms));
        self.level = (self.level + gained).min(full);
        self.at_ms = now_ms;
    }

    fn cost(&self, bytes: u64) -> u128 {
        u128::from(bytes) * u128::from(self.period_ms)
    }
}

/// Both limits together.
#[derive(Clone, Copy, Debug)]
struct RateLimit([Bucket; 2]);

impl RateLimit {
    fn new(limits: LogLimits) -> Self {
        RateLimit([
            Bucket::new(limits.burst_bytes_per_min, Duration::from_secs(60)),
            Bucket::new(limits.sustained_bytes_per_hour, Duration::from_secs(3600)),
        ])
    }

    /// Whether so many bytes may pass now; they are counted if so.
    fn take(&mut self, now_ms: u64, bytes: u64) -> bool {
        self.0.iter_mut().for_each(|bucket| bucket.fill(now_ms));
        let fits = self.0.iter().all(|bucket| bucket.cost(bytes) <= bucket.level);
        if fits {
            self.0.iter_mut().for_each(|bucket| bucket.level -= bucket.cost(bytes));
        }
        fits
    }
}

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    /// Whether lines were dropped since the last note about it.
    is_truncated: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Something came, or the log was closed.
    came: Notify,
}

impl Shared {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end into which lines are put.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    limit: RateLimit,
    started: Instant,
}

impl LogSink for LogWriter {
    fn line(&mut self, line: &[u8]) {
        let line = &line[..line.len().min(LINE_LEN_MAX)];
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let allowed = self.limit.take(now_ms, line.len() as u64 + 1);
        let mut waiting = self.shared.waiting();
        let fits = waiting.bytes.len() + line.len() + 1 + TRUNCATED.len() <= WAITING_BYTES_MAX;
        if allowed && fits {
            waiting.is_truncated = false;
            waiting.bytes.extend_from_slice(line);
            waiting.bytes.push(b'\n');
        } else if !waiting.is_truncated {
            waiting.is_truncated = true;
            waiting.bytes.extend_from_slice(TRUNCATED);
        }
        drop(waiting);
        self.shared.came.notify_one();
    }
}

/// The end that sends. Dropped, it sends what waits and ends by itself; [`LogUpload::finish`] waits
/// for that.
#[derive(Debug)]
pub struct LogUpload {
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

impl Drop for LogUpload {
    fn drop(&mut self) {
        self.shared.waiting().is_closed = true;
        self.shared.came.notify_one();
    }
}

/// Starts to send the log with this id to the cache. It exists there from now on, so that people
/// can follow it before its first line.
#[must_use]
pub fn start(
    cache: CacheClient,
    id: &str,
    token: &str,
    limits: LogLimits,
) -> (LogWriter, LogUpload) {
    let waiting = Waiting { bytes: Vec::new(), is_truncated: false, is_closed: false };
    let shared = Arc::new(Shared { waiting: Mutex::new(waiting), came: Notify::new() });
    let sender = Sender {
        cache,
        id: id.to_owned(),
        token: token.to_owned(),
        shared: Arc::clone(&shared),
        offset: 0,
    };
    let task = tokio::spawn(sender.run());
    let limit = RateLimit::new(limits);
    let writer = LogWriter { shared: Arc::clone(&shared), limit, started: Instant::now() };
    (writer, LogUpload { shared, task: Some(task) })
}

impl LogUpload {
    /// Sends what waits and marks the log as finished, within 10 s.
    pub async fn finish(mut self) {
        let Some(task) = self.task.take() else {
            return;
        };
        drop(self);
        let abort = task.abort_handle();
        if tokio::time::timeout(FINISH_MAX, task).await.is_err() {
            abort.abort();
            tracing::warn!("the end of a build log could not be sent in time");
        }
    }
}

struct Sender {
    cache: CacheClient,
    id: String,
    token: String,
    shared: Arc<Shared>,
    offset: u64,
}

impl Sender {
    async fn run(mut self) {
        let mut is_broken = !self.send(Bytes::new()).await;
        loop {
            let (piece, is_closed) = self.next_piece().await;
            if !piece.is_empty() && !is_broken {
                is_broken = !self.send(piece.into()).await;
            }
            if is_closed && self.shared.waiting().bytes.is_empty() {
                break;
            }
        }
        if let Err(error) = self.cache.finish_log(&self.id, &self.token).await {
            tracing::warn!(id = %self.id, error = %error.in_full(), "a log is not finished");
        }
    }

    /// What is to be sent next: after a second, or as soon as there is much.
    async fn next_piece(&self) -> (Vec<u8>, bool) {
        let deadline = tokio::time::sleep(PIECE_WAIT);
        tokio::pin!(deadline);
        loop {
            {
                let waiting = self.shared.waiting();
                if waiting.is_closed || waiting.bytes.len() >= PIECE_BYTES {
                    break;
                }
            }
            tokio::select! {
                () = self.shared.came.notified() => {}
                () = &mut deadline => break,
            }
        }
        let mut waiting = self.shared.waiting();
        let taken = waiting.bytes.len().min(4 * PIECE_BYTES);
        let rest = waiting.bytes.split_off(taken);
        let piece = std::mem::replace(&mut waiting.bytes, rest);
        (piece, waiting.is_closed)
    }

    /// Sends a piece: whether the log can go on.
    async fn send(&mut self, piece: Bytes) -> bool {
        match self.cache.append_log(&self.id, &self.token, self.offset, &piece).await {
            Ok(length) => {
                self.offset = length;
                true
            }
            Err(error) => {
                tracing::warn!(id = %self.id, error = %error.in_full(), "a build log is lost");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_fill_again() {
        let limits = LogLimits { burst_bytes_per_min: 60, sustained_bytes_per_hour: 100 };
        let mut limit = RateLimit::new(limits);
        assert!(limit.take(0, 50));
        assert!(!limit.take(0, 20));
        assert!(limit.take(0, 10));
        assert!(!limit.take(500, 1));
        assert!(limit.take(30_000, 30), "half a minute later half of it");
        assert!(!limit.take(3_000_000, 100), "the hour counts as well");
        assert!(limit.take(4_000_000, 60));
    }

    #[test]
    fn what_is_too_much_is_dropped_once_noted() {
        let waiting = Waiting { bytes: Vec::new(), is_truncated: false, is_closed: false };
        let shared = Arc::new(Shared { waiting: Mutex::new(waiting), came: Notify::new() });
        let limits = LogLimits { burst_bytes_per_min: 10, sustained_bytes_per_hour: 1000 };
        let limit = RateLimit::new(limits);
        let mut writer = LogWriter { shared: Arc::clone(&shared), limit, started: Instant::now() };
        for line in ["hello", "a line too long", "another too long", "ok"] {
            writer.line(line.as_bytes());
        }
        let bytes = shared.waiting().bytes.clone();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text, "hello\n[gradient: log truncated — rate limit exceeded]\nok\n");
    }
}
