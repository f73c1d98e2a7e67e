//! What builds failed of: a build may fail only of what was really done to it.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{BuildId, JobId};
use gradient_events::event::{AbandonReason, RequeueReason};
use gradient_events::{Entry, Event, FailureKind, Input, Settings, WorkerMessage};

/// Counts from the log alone, beside the counters of the scheduler.
#[derive(Clone, Debug, Default)]
pub struct Blame {
    /// Failures that were to be tried again, and hand-outs given up, since the build was last wanted anew.
    failures: BTreeMap<BuildId, u32>,
    losses: BTreeMap<BuildId, u32>,
    /// Builds whose builder failed.
    builder: BTreeSet<BuildId>,
    /// Builds whose attempts or workers were used up.
    used_up: BTreeSet<BuildId>,
}

impl Blame {
    /// Counts one event of an entry.
    ///
    /// # Errors
    /// A build failed for good before its attempts and its losses were used up.
    pub fn event(
        &mut self,
        entry: &Entry,
        event: &Event,
        settings: &Settings,
    ) -> Result<(), String> {
        match event {
            Event::AssignmentAbandoned {
                job: JobId::Build(build),
                reason: AbandonReason::WorkerLost | AbandonReason::WorkerLeft,
                ..
            } => {
                *self.losses.entry(*build).or_default() += 1;
            }
            Event::BuildFailed { build, retry_at_ms: Some(_), .. } => {
                *self.failures.entry(*build).or_default() += 1;
            }
            Event::BuildFailed { build, retry_at_ms: None, message, .. } => {
                match reported(&entry.input) {
                    Some(FailureKind::Permanent | FailureKind::Timeout) => {
                        self.builder.insert(*build);
                    }
                    reported => {
                        let failures = self.failures.get(build).copied().unwrap_or_default();
                        let losses = self.losses.get(build).copied().unwrap_or_default();
                        let used_up = match reported {
                            Some(_) => failures + 1 == settings.build_max_attempts,
                            None => losses >= settings.build_max_losses,
                        };
                        if !used_up {
                            return Err(format!(
                                "{build} failed for good after {failures} failures and {losses} losses: {message}"
                            ));
                        }
                        self.used_up.insert(*build);
                    }
                }
            }
            Event::JobRequeued {
                job: JobId::Build(build),
                reason: RequeueReason::Canceled,
                ..
            } => {
                self.losses.remove(build);
            }
            Event::BuildsThawed { builds } => {
                for build in builds {
                    self.failures.remove(build);
                    self.losses.remove(build);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Builds whose builder failed, ever.
    #[must_use]
    pub fn builder(&self) -> &BTreeSet<BuildId> {
        &self.builder
    }

    /// Whether the attempts or the workers of a build were used up, ever.
    #[must_use]
    pub fn is_used_up(&self, build: BuildId) -> bool {
        self.used_up.contains(&build)
    }
}

fn reported(input: &Input) -> Option<FailureKind> {
    match input {
        Input::Worker { message: WorkerMessage::JobFailed { kind, .. }, .. } => Some(*kind),
        _ => None,
    }
}
