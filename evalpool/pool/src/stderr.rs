//! The standard error of a child: always drained, kept in bounds, cut at the end of each request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradient_domain::AttrPath;
use gradient_ipc::marks::{Mark, Marks};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// Most lines kept; older ones go.
const LINES_MAX: usize = 4096;
/// Longest line kept, in bytes; the rest of it goes.
const LINE_LEN_MAX: usize = 16 * 1024;
/// How long to wait for the end mark of a request that has been answered already.
const MARK_WAIT: Duration = Duration::from_secs(2);

/// A line, and the attribute that the child was looking at.
pub(crate) type Line = (Option<Arc<AttrPath>>, String);

#[derive(Default)]
struct Printed {
    lines: VecDeque<Line>,
    /// The attribute that the child looks at, as it says.
    about: Option<Arc<AttrPath>>,
}

/// Lines that a child printed since the last request.
pub(crate) struct StderrLog {
    /// How the child says where it is.
    marks: Marks,
    printed: Mutex<Printed>,
    /// Number of the last request whose end was seen; `u64::MAX` when the pipe is closed.
    done: watch::Sender<u64>,
}

impl StderrLog {
    pub(crate) fn new(marks: Marks) -> Arc<StderrLog> {
        let (done, _) = watch::channel(0);
        Arc::new(StderrLog { marks, printed: Mutex::default(), done })
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
        match self.marks.read(&line) {
            Some(Mark::Done(number)) => {
                self.printed().about = None;
                self.done.send_replace(number);
            }
            Some(Mark::At(path)) => self.printed().about = path.map(Arc::new),
            None => self.keep(line.into_owned()),
        }
    }

    /// Keeps a line of text.
    fn keep(&self, line: String) {
        if !line.trim().is_empty() {
            tracing::debug!(line = %line, "evaluator");
            let mut printed = self.printed();
            if printed.lines.len() == LINES_MAX {
                printed.lines.pop_front();
            }
            let about = printed.about.clone();
            printed.lines.push_back((about, line));
        }
    }

    fn printed(&self) -> MutexGuard<'_, Printed> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines up to the end of this request. The child marks the end before it answers, so the
    /// wait is for the pipe only, and has a limit for a child that marks nothing.
    pub(crate) async fn take_until(&self, request: u64) -> Vec<Line> {
        let mut done = self.done.subscribe();
        let marked = done.wait_for(|done| *done >= request);
        let _ = tokio::time::timeout(MARK_WAIT, marked).await;
        self.printed().lines.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_at_the_mark_of_the_request() {
        let marks = Marks::new("ours");
        let log = StderrLog::new(marks.clone());
        let path: AttrPath = ["a", "b.c"].into_iter().collect();
        let begin = format!("start{}warning: one\ntwo\n", marks.at(&path));
        log.clone().drain(format!("{begin}{}partial", marks.done(1)).as_bytes()).await;
        let about = Some(Arc::new(path));
        let line = |about: &Option<_>, text: &str| (about.clone(), text.to_owned());
        let expected = [
            line(&None, "start"),
            line(&about, "warning: one"),
            line(&about, "two"),
            line(&None, "partial"),
        ];
        assert_eq!(log.take_until(1).await, expected);
    }

    #[tokio::test]
    async fn a_mark_with_another_secret_is_text() {
        let (ours, forged) = (Marks::new("ours"), Marks::new("forged"));
        let log = StderrLog::new(ours.clone());
        let (mut line, done) = (Vec::new(), log.done.subscribe());
        let (real, false_path) = (AttrPath(vec!["real".into()]), AttrPath(vec!["false".into()]));
        let text = format!("{}{}{}", ours.at(&real), forged.at(&false_path), forged.done(u64::MAX));
        log.feed(text.as_bytes(), &mut line);
        assert_eq!(*done.borrow(), 0, "the request is not over");
        log.feed(ours.done(1).as_bytes(), &mut line);
        let lines = log.take_until(1).await;
        assert_eq!(lines.len(), 2);
        for (about, line) in lines {
            assert_eq!(about.as_deref(), Some(&real), "{line:?}");
        }
    }

    #[tokio::test]
    async fn a_flood_is_kept_in_bounds() {
        let log = StderrLog::new(Marks::new("ours"));
        let flood = "x".repeat(3 * LINE_LEN_MAX) + "\n" + &"y\n".repeat(2 * LINES_MAX);
        log.clone().drain(flood.as_bytes()).await;
        let lines = log.take_until(u64::MAX).await;
        assert_eq!(lines.len(), LINES_MAX);
        let long = StderrLog::new(Marks::new("ours"));
        long.clone().drain("x".repeat(3 * LINE_LEN_MAX).as_bytes()).await;
        assert_eq!(long.take_until(u64::MAX).await[0].1.len(), LINE_LEN_MAX);
    }
}
