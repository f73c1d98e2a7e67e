//! The standard error of a child: always drained, kept in bounds, cut at the end of each request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradient_ipc::message::STDERR_MARK;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// Most lines kept; older ones go.
const LINES_MAX: usize = 4096;
/// Longest line kept, in bytes; the rest of it goes.
const LINE_LEN_MAX: usize = 16 * 1024;
/// How long to wait for the end mark of a request that has been answered already.
const MARK_WAIT: Duration = Duration::from_secs(2);

/// Lines that a child printed since the last request.
pub(crate) struct StderrLog {
    lines: Mutex<VecDeque<String>>,
    /// Number of the last request whose end was seen; `u64::MAX` when the pipe is closed.
    done: watch::Sender<u64>,
}

impl StderrLog {
    pub(crate) fn new() -> Arc<StderrLog> {
        let (done, _) = watch::channel(0);
        Arc::new(StderrLog { lines: Mutex::default(), done })
    }

    /// Reads to the end of the pipe.
    pub(crate) async fn drain(self: Arc<Self>, mut pipe: impl AsyncRead + Unpin) {
        let (mut chunk, mut line) = (vec![0; 8192], Vec::new());
        loop {
            match pipe.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(len) => self.feed(&chunk[..len], &mut line),
            }
        }
        self.push(&line);
        self.done.send_replace(u64::MAX);
    }

    fn feed(&self, bytes: &[u8], line: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ended) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = LINE_LEN_MAX.saturating_sub(line.len());
            line.extend_from_slice(&text[..text.len().min(room)]);
            if ended {
                self.push(line);
                line.clear();
            }
        }
    }

    fn push(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if let Some(number) = line.strip_prefix(STDERR_MARK) {
            if let Ok(number) = number.trim().parse() {
                self.done.send_replace(number);
            }
        } else if !line.trim().is_empty() {
            tracing::debug!(line = %line, "evaluator");
            let mut lines = self.lines();
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(line.into_owned());
        }
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines up to the end of this request. The child marks the end before it answers, so the
    /// wait is for the pipe only, and has a limit for a child that marks nothing.
    pub(crate) async fn take_until(&self, request: u64) -> Vec<String> {
        let mut done = self.done.subscribe();
        let marked = done.wait_for(|done| *done >= request);
        let _ = tokio::time::timeout(MARK_WAIT, marked).await;
        self.lines().drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_at_the_mark_of_the_request() {
        let log = StderrLog::new();
        let text = format!("warning: one\ntwo\n\n{STDERR_MARK}1\npartial");
        log.clone().drain(text.as_bytes()).await;
        assert_eq!(log.take_until(1).await, ["warning: one", "two", "partial"]);
    }

    #[tokio::test]
    async fn a_flood_is_kept_in_bounds() {
        let log = StderrLog::new();
        let flood = "x".repeat(3 * LINE_LEN_MAX) + "\n" + &"y\n".repeat(2 * LINES_MAX);
        log.clone().drain(flood.as_bytes()).await;
        let lines = log.take_until(u64::MAX).await;
        assert_eq!(lines.len(), LINES_MAX);
        let long = StderrLog::new();
        long.clone().drain("x".repeat(3 * LINE_LEN_MAX).as_bytes()).await;
        assert_eq!(long.take_until(u64::MAX).await[0].len(), LINE_LEN_MAX);
    }
}
