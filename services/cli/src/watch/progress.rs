//! Progress: a bar on a terminal, plain lines elsewhere, JSON where it is asked for.

use std::io::IsTerminal;

use gradient_api::types::{EvaluationSummary, Waiting};
use gradient_domain::EvaluationId;
use gradient_events::event::EvaluationState;
use indicatif::{ProgressBar, ProgressStyle};

use crate::say;

/// What is shown, and how.
pub(super) struct Progress {
    how: How,
    last: String,
}

enum How {
    Bar(ProgressBar),
    Lines,
    Json,
}

impl Progress {
    pub(super) fn new(id: EvaluationId, json: bool) -> Self {
        let how = if json {
            How::Json
        } else if std::io::stderr().is_terminal() {
            let style =
                ProgressStyle::with_template("{spinner} {elapsed:>4} [{bar:30}] {pos}/{len} {msg}");
            let bar = ProgressBar::new(0)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(std::time::Duration::from_millis(120));
            How::Bar(bar)
        } else {
            How::Lines
        };
        let progress = Self { how, last: String::new() };
        progress.note(&format!("evaluation {id}"));
        progress
    }

    pub(super) fn show(&mut self, summary: &EvaluationSummary) -> anyhow::Result<()> {
        let text = text(summary);
        let (total, over) =
            (summary.builds.total(), summary.builds.succeeded() + summary.builds.failed());
        match &self.how {
            How::Json => say::json(summary)?,
            How::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(over);
                bar.set_message(text);
            }
            How::Lines => {
                let line = format!("{over}/{total} builds, {text}");
                if line != self.last {
                    say::note(&line);
                    self.last = line;
                }
            }
        }
        Ok(())
    }

    pub(super) fn note(&self, text: &str) {
        match &self.how {
            How::Bar(bar) => bar.suspend(|| say::note(text)),
            How::Lines => say::note(text),
            How::Json => {}
        }
    }

    pub(super) fn end(&self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

fn text(summary: &EvaluationSummary) -> String {
    let builds = &summary.builds;
    let mut parts = vec![summary.state.name().replace('_', " ")];
    let running = builds.assigned + builds.building;
    if running > 0 {
        parts.push(format!("{running} running"));
    }
    if builds.queued > 0 {
        parts.push(format!("{} queued", builds.queued));
    }
    if builds.failed() > 0 {
        parts.push(format!("{} failed", builds.failed()));
    }
    if summary.errors > 0 {
        parts.push(format!("{} errors", summary.errors));
    }
    if summary.state != EvaluationState::Building
        && let Some(waiting) = &summary.waiting
    {
        parts.push(waits(waiting));
    }
    parts.join(", ")
}

/// What something waits for, in words.
pub(crate) fn waits(waiting: &Waiting) -> String {
    match waiting {
        Waiting::EvalWorkers { connected_workers } => {
            format!("waits for a worker that evaluates ({connected_workers} workers are connected)")
        }
        Waiting::Workers { unmet, .. } => {
            let needs: Vec<String> =
                unmet.iter().map(|unmet| unmet.requirement.to_string()).collect();
            format!("waits for a worker that builds {}", needs.join(" or "))
        }
        Waiting::Retry { error } => {
            format!("failed and will be tried again: {}", say::first_line(error))
        }
        Waiting::Slot { .. } => "waits for a free slot".into(),
        Waiting::Worker { .. } => "handed out".into(),
        Waiting::Dependencies { missing, .. } => format!("waits for {missing} inputs"),
        Waiting::NotRecorded => "is not recorded yet".into(),
        Waiting::Unwanted => "nobody wants it".into(),
        Waiting::Backoff { .. } => "failed and will be tried again".into(),
    }
}
