//! How far the evaluation is, on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use gradient_domain::AttrPath;
use indicatif::{ProgressBar, ProgressStyle};

use crate::say;

/// How often the line is drawn again.
const TICK: Duration = Duration::from_millis(120);

/// Counts what was found, and shows it if standard error is a terminal.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    begin: Instant,
    pub(super) found: u64,
    pub(super) failed: u64,
}

/// However it ends, the terminal is left clean.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress {
    pub(super) fn new() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
            let bar = ProgressBar::new_spinner()
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(TICK);
            bar
        });
        Progress { bar, begin: Instant::now(), found: 0, failed: 0 }
    }

    /// Notes a result.
    pub(super) fn note(&mut self, attr: &str, failed: bool) {
        self.found += u64::from(!failed);
        self.failed += u64::from(failed);
        if let Some(bar) = &self.bar {
            let told = self.found + self.failed;
            let rate = told as f64 / self.begin.elapsed().as_secs_f64().max(0.001);
            let attr = say::first_line(attr);
            bar.set_message(format!("{}, {rate:.0}/s: {attr}", self.counts()));
        }
    }

    fn counts(&self) -> String {
        format!("{} jobs, {} errors", self.found, self.failed)
    }

    /// Prints a warning.
    pub(super) fn warn(&self, path: Option<&AttrPath>, text: &str) {
        let line = warning(path, text);
        self.aside(|| {
            // Who cannot be warned is not.
            let _ = std::io::stderr().write_all(line.as_bytes());
        });
    }

    /// Runs something that prints, with the progress out of its way.
    pub(super) fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// The end: one line of what it came to, on a terminal.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            let ms = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            say::note(format_args!("{} in {}", self.counts(), say::duration(ms)));
        }
    }
}

/// A warning as one line. It is for a person, so nothing in it can steer a terminal.
pub(super) fn warning(path: Option<&AttrPath>, text: &str) -> String {
    // Texts of Nix's own say it themselves.
    let text = say::plain(text.strip_prefix("warning: ").unwrap_or(text));
    match path.filter(|path| !path.is_empty()) {
        Some(path) => format!("warning: {path}: {text}\n"),
        None => format!("warning: {text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_says_so_once() {
        let path = AttrPath(vec!["a".into(), "b".into()]);
        assert_eq!(warning(None, "warning: old\u{1b}"), "warning: old\\u{1b}\n");
        assert_eq!(warning(Some(&path), "warning: old"), "warning: a.b: old\n");
        assert_eq!(warning(None, "a warning: b"), "warning: a warning: b\n");
    }
}
