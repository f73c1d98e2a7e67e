//! What becomes of builds: ready, failed, retried, cascaded, stopped.

use std::collections::BTreeSet;

use gradient_domain::text::cut;
use gradient_domain::{BuildId, JobId};
use gradient_events::event::AbortCause;
use gradient_events::{Event, FailureKind};

use super::Decision;
use super::limits::{BUILDS_PER_EVENT_MAX, JOBS_PER_DECISION_MAX};
use crate::graph::BuildState;

/// Longest stored failure message, in bytes (reference 2.7).
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

impl Decision<'_> {
    /// Brings waiting builds into the state that the graph calls for.
    pub(super) fn settle_builds(&mut self, candidates: &[BuildId]) {
        let graph = &self.state.graph;
        let waits = |build: &&BuildId| {
            let node = graph.node(**build);
            node.state == BuildState::Created && !node.wanted_by.is_empty()
        };
        let (mut ready, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for &build in candidates.iter().filter(waits) {
            match graph.failed_below(build, &self.state.frozen) {
                Some(cause) => drop(failed.insert((cause, build))),
                None if graph.is_ready(build) => drop(ready.insert(build)),
                None => {}
            }
        }
        let ready: Vec<BuildId> = ready.into_iter().take(BUILDS_PER_EVENT_MAX).collect();
        if !ready.is_empty() {
            let first_offer = self.next_offer();
            self.emit(Event::BuildsReady { builds: ready.clone(), first_offer });
            for build in ready {
                self.note_offer(JobId::Build(build));
            }
        }
        for (cause, build) in failed {
            if self.state.graph.node(build).state == BuildState::Created {
                self.emit(Event::DependencyFailed { builds: vec![build], cause });
                self.touch(build);
                self.cascade(build);
            }
        }
    }

    /// What a success opens.
    pub(super) fn after_success(&mut self, build: BuildId) {
        self.touch(build);
        let dependents = self.state.graph.node(build).dependents.clone();
        self.settle_builds(&dependents);
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
            let message =
                format!("{message} (attempt {} of {})", failures + 1, settings.build_max_attempts);
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
            message: cut(message, MESSAGE_BYTES_MAX),
        });
    }

    /// A failure for good; whatever needs the build fails with it.
    pub(super) fn fail_build(&mut self, build: BuildId, kind: FailureKind, message: String) {
        self.emit(Event::BuildFailed {
            build,
            kind,
            retry_at_ms: None,
            message: cut(message, MESSAGE_BYTES_MAX),
        });
        self.touch(build);
        self.cascade(build);
    }

    /// A stop for good; to those that need the build it is a failure.
    pub(super) fn abort_build(&mut self, build: BuildId, reason: String) {
        self.emit(Event::BuildAborted { build, reason: cut(reason, MESSAGE_BYTES_MAX) });
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
        let mut failed = BTreeSet::new();
        while let Some(build) = stack.pop() {
            let node = self.state.graph.node(build);
            let waits = match node.state {
                BuildState::Created | BuildState::Queued | BuildState::Backoff { .. } => true,
                BuildState::Assigned { .. }
                | BuildState::Succeeded { .. }
                | BuildState::Failed { .. }
                | BuildState::DependencyFailed { .. }
                | BuildState::Aborted
                | BuildState::Skipped => false,
            };
            if waits
                && !node.wanted_by.is_empty()
                && failed.len() < BUILDS_PER_EVENT_MAX
                && failed.insert(build)
            {
                stack.extend_from_slice(&node.dependents);
            }
        }
        if failed.is_empty() {
            return;
        }
        let builds: Vec<BuildId> = failed.into_iter().collect();
        for build in &builds {
            self.touch(*build);
        }
        self.emit(Event::DependencyFailed { builds, cause });
    }

    /// Lets go of builds that no live evaluation wants any more; what is over the limit of one entry
    /// follows with the next tick.
    pub(super) fn release_builds(&mut self) {
        let unwanted: Vec<BuildId> =
            self.state.unwanted.iter().copied().take(BUILDS_PER_EVENT_MAX).collect();
        let (mut skipped, mut stopped) = (Vec::new(), 0);
        for build in unwanted {
            match self.state.graph.node(build).state {
                BuildState::Created | BuildState::Queued | BuildState::Backoff { .. } => {
                    skipped.push(build)
                }
                BuildState::Assigned { assignment } if stopped < JOBS_PER_DECISION_MAX => {
                    stopped += 1;
                    self.request_abort(JobId::Build(build), assignment, AbortCause::Unwanted);
                }
                BuildState::Assigned { .. }
                | BuildState::Succeeded { .. }
                | BuildState::Failed { .. }
                | BuildState::DependencyFailed { .. }
                | BuildState::Aborted
                | BuildState::Skipped => {}
            }
        }
        if !skipped.is_empty() {
            self.emit(Event::BuildsSkipped { builds: skipped });
        }
    }

    /// Starts builds over that failed for earlier evaluations (reference 3.3).
    pub(super) fn thaw_builds(&mut self) {
        let frozen = self.state.frozen.iter().copied();
        let builds: Vec<BuildId> = frozen.take(BUILDS_PER_EVENT_MAX).collect();
        if !builds.is_empty() {
            self.emit(Event::BuildsThawed { builds: builds.clone() });
            self.settle_builds(&builds);
        }
    }

    /// Brings back a build whose backoff is over.
    pub(super) fn retry_build(&mut self, build: BuildId) {
        let (job, offer) = (JobId::Build(build), self.next_offer());
        self.emit(Event::JobQueued { job, offer });
        self.note_offer(job);
    }

    /// Notes that the evaluations which want a build may have come to their end.
    pub(super) fn touch(&mut self, build: BuildId) {
        self.touched.extend(self.state.graph.node(build).wanted_by.iter().copied());
    }
}
