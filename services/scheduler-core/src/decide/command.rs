//! What users ask for.

use gradient_domain::flake::{FetchOptions, check_overrides};
use gradient_domain::{BuildId, EvaluationId, JobId};
use gradient_events::event::AbortCause;
use gradient_events::{Command, Event};

use super::Decision;
use crate::graph::BuildState;

/// Most patterns of one evaluation.
const PATTERNS_MAX: usize = 256;

impl Decision<'_> {
    pub(super) fn command(&mut self, command: &Command) {
        match command {
            Command::Submit { evaluation, patterns, fetch, .. } => {
                self.submit(*evaluation, patterns, fetch);
            }
            Command::CancelEvaluation { evaluation } => match self.state.evaluation(*evaluation) {
                None => self.refuse(format!("there is no evaluation {evaluation}")),
                Some(known) if known.state.is_terminal() => {
                    self.refuse(format!("evaluation {evaluation} is over already"));
                }
                Some(_) => self.abort_evaluation(*evaluation, "canceled by a user".into()),
            },
            Command::CancelBuild { build } => self.cancel_build(*build),
        }
    }

    /// A repeat of a known id changes nothing: the submitter tried again.
    fn submit(&mut self, id: EvaluationId, patterns: &[String], fetch: &FetchOptions) {
        if self.state.evaluation(id).is_some() {
            return;
        }
        if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
            return self.refuse(format!("an evaluation has 1 to {PATTERNS_MAX} patterns"));
        }
        if let Err(error) = check_overrides(&fetch.overrides) {
            return self.refuse(error.to_string());
        }
        self.emit(Event::EvaluationRequested { evaluation: id });
        let (job, offer) = (JobId::Evaluate(id), self.next_offer());
        self.emit(Event::JobQueued { job, offer });
        self.note_offer(job);
        self.review_queued_evaluation(id);
    }

    fn cancel_build(&mut self, build: BuildId) {
        let Some(node) = self.state.graph.get(build) else {
            return self.refuse(format!("there is no build {build}"));
        };
        match node.state {
            BuildState::Created | BuildState::Queued | BuildState::Backoff { .. } => {
                self.abort_build(build, AbortCause::Canceled.text().into());
            }
            BuildState::Assigned { assignment } => {
                self.request_abort(JobId::Build(build), assignment, AbortCause::Canceled);
            }
            BuildState::Succeeded { .. }
            | BuildState::Failed { .. }
            | BuildState::DependencyFailed { .. }
            | BuildState::Aborted
            | BuildState::Skipped => self.refuse(format!("build {build} is over already")),
        }
    }
}
