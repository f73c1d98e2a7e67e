//! What becomes of builds: ready, failed, retried, cascaded, stopped.

use gradient_domain::{BuildId, JobId};
use gradient_events::event::AbortCause;
use gradient_events::{Event, FailureKind};

use super::Decision;
use crate::graph::BuildState;

/// Longest stored failure message, in bytes (reference 2.7).
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

impl Decision<'_> {
    /// Brings a waiting build into the state that the graph calls for.
    pub(super) fn settle_build(&mut self, build: BuildId) {
        let node = self.state.graph.node(build);
        if node.state != BuildState::Created || node.wanted_by.is_empty() {
            return;
        }
        if let Some(cause) = self.state.graph.failed_below(build) {
            self.emit(Event::DependencyFailed { build, cause });
            self.touch(build);
            self.cascade(build);
        } else if self.state.graph.is_ready(build) {
            self.emit(Event::BuildReady { build });
            self.queue_build(build);
        }
    }

    fn queue_build(&mut self, build: BuildId) {
        let (job, offer) = (JobId::Build(build), self.next_offer());
        self.emit(Event::JobQueued { job, offer });
        self.note_offer(job);
    }

    /// What a success opens.
    pub(super) fn after_success(&mut self, build: BuildId) {
        self.touch(build);
        for dependent in self.state.graph.node(build).dependents.clone() {
            self.settle_build(dependent);
        }
    }

    /// A failure that another try may mend: until the attempts are used up (reference 3.7).
    pub(super) fn fail_or_retry_build(
        &mut self,
        build: BuildId,
        kind: FailureKind,
        message: String,
    ) {
        let settings = &self.state.settings;
        let failures = self.state.graph.node(build).failures;
        if failures + 1 >= settings.build_max_attempts {
            let message = format!(
                "{message} (attempt {} of {})",
                failures + 1,
                settings.build_max_attempts
            );
            return self.fail_build(build, FailureKind::Permanent, message);
        }
        if self.state.graph.node(build).wanted_by.is_empty() {
            return self.abort_build(build, message);
        }
        let backoff_ms = settings.build_retry_backoff_ms << failures.min(16);
        let retry_at_ms = Some(self.now().plus_ms(backoff_ms).0);
        self.emit(Event::BuildFailed {
            build,
            kind,
            retry_at_ms,
            message: cut(message),
        });
    }

    /// A failure for good; whatever needs the build fails with it.
    pub(super) fn fail_build(&mut self, build: BuildId, kind: FailureKind, message: String) {
        self.emit(Event::BuildFailed {
            build,
            kind,
            retry_at_ms: None,
            message: cut(message),
        });
        self.touch(build);
        self.cascade(build);
    }

    /// A stop for good; to those that need the build it is a failure.
    pub(super) fn abort_build(&mut self, build: BuildId, reason: String) {
        self.emit(Event::BuildAborted {
            build,
            reason: cut(reason),
        });
        self.touch(build);
        self.cascade(build);
    }

    /// Fails everything that waits for a build which will not come, across evaluations (reference 3.8).
    pub(super) fn cascade(&mut self, from: BuildId) {
        let cause = match &self.state.graph.node(from).state {
            BuildState::DependencyFailed { cause } => *cause,
            _ => from,
        };
        let mut stack = self.state.graph.node(from).dependents.clone();
        while let Some(build) = stack.pop() {
            let node = self.state.graph.node(build);
            let waits = matches!(
                node.state,
                BuildState::Created | BuildState::Queued | BuildState::Backoff { .. }
            );
            if waits && !node.wanted_by.is_empty() {
                stack.extend_from_slice(&node.dependents);
                self.emit(Event::DependencyFailed { build, cause });
                self.touch(build);
            }
        }
    }

    /// Lets go of builds that no live evaluation wants any more.
    pub(super) fn release_builds(&mut self, builds: &[BuildId]) {
        for &build in builds {
            let node = self.state.graph.node(build);
            if !node.wanted_by.is_empty() {
                continue;
            }
            match node.state {
                BuildState::Created | BuildState::Queued | BuildState::Backoff { .. } => {
                    self.emit(Event::BuildSkipped { build });
                }
                BuildState::Assigned { assignment } => {
                    self.request_abort(JobId::Build(build), assignment, AbortCause::Unwanted);
                }
                BuildState::Succeeded { .. }
                | BuildState::Failed { .. }
                | BuildState::DependencyFailed { .. }
                | BuildState::Aborted
                | BuildState::Skipped => {}
            }
        }
    }

    /// Starts builds over that failed for earlier evaluations (reference 3.3).
    pub(super) fn thaw_builds(&mut self, builds: &[BuildId]) {
        for &build in builds {
            if self.state.graph.node(build).state.is_failure() {
                self.emit(Event::BuildThawed { build });
            }
        }
    }

    /// Brings back a build whose backoff is over.
    pub(super) fn retry_build(&mut self, build: BuildId) {
        self.queue_build(build);
    }

    /// Notes that the evaluations which want a build may have come to their end.
    pub(super) fn touch(&mut self, build: BuildId) {
        self.touched
            .extend(self.state.graph.node(build).wanted_by.iter().copied());
    }
}

fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX)
            .rev()
            .find(|n| message.is_char_boundary(*n))
            .unwrap_or(0);
        message.truncate(end);
        message.push_str(" [truncated]");
    }
    message
}
