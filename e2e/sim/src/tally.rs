//! What a run reached. Without a floor on it a simulator passes by doing nothing.

use std::collections::BTreeMap;

use gradient_events::Event;
use gradient_events::event::{JobResult, Verdict};

/// Counts of what happened, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Counts one more.
    pub fn add(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// How often something happened.
    #[must_use]
    pub fn get(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Takes over the counts of another run.
    pub fn merge(&mut self, other: &Tally) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    /// All counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().map(|(what, count)| (*what, *count))
    }

    /// Counts an event.
    pub fn event(&mut self, event: &Event) {
        let what = match event {
            Event::JobAssigned { .. } => "assigned",
            Event::AssignmentDeclined { .. } => "declined",
            Event::AssignmentAbandoned { .. } => "abandoned",
            Event::ReportDropped { .. } => "report dropped",
            Event::JobRequeued { .. } => "requeued",
            Event::JobFinished { result: JobResult::Completed, .. } => "job completed",
            Event::JobFinished { result: JobResult::Failed(_), .. } => "job failed",
            Event::BuildSucceeded { .. } => "build succeeded",
            Event::BuildFailed { retry_at_ms: Some(_), .. } => "build to be retried",
            Event::BuildFailed { retry_at_ms: None, .. } => "build failed",
            Event::DependencyFailed { .. } => "dependency failed",
            Event::BuildAborted { .. } => "build aborted",
            Event::BuildsSkipped { .. } => "builds skipped",
            Event::BuildsThawed { .. } => "builds thawed",
            Event::AbortRequested { .. } => "abort requested",
            Event::WorkerLost { .. } => "worker lost",
            Event::WorkerLeft { .. } => "worker left",
            Event::WorkerRejected { .. } => "worker rejected",
            Event::WorkerDraining { .. } => "worker draining",
            Event::EvaluationParked { .. } => "evaluation parked",
            Event::EvaluationResumed { .. } => "evaluation resumed",
            Event::EvaluationFinished { verdict: Verdict::Completed, .. } => "evaluation completed",
            Event::EvaluationFinished { verdict: Verdict::Failed, .. } => "evaluation failed",
            Event::EvaluationAborted { .. } => "evaluation aborted",
            Event::SettingsReplaced
            | Event::WorkerJoined { .. }
            | Event::CapabilitiesReplaced { .. }
            | Event::MetricsRecorded { .. }
            | Event::SlotIdle { .. }
            | Event::OffersSent { .. }
            | Event::ScoresRecorded { .. }
            | Event::EvaluationRequested { .. }
            | Event::EvaluationAdvanced { .. }
            | Event::DerivationsRecorded { .. }
            | Event::MessagesRecorded { .. }
            | Event::JobQueued { .. }
            | Event::AssignmentAccepted { .. }
            | Event::UpdateRecorded { .. }
            | Event::InputRefused { .. }
            | Event::BuildsCreated { .. }
            | Event::BuildsReady { .. }
            | Event::BuildStarted { .. }
            | Event::SweepFound { .. } => return,
        };
        self.add(what);
    }
}
