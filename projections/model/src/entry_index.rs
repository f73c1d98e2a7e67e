//! `entry_index`: which entries touch which build, evaluation and worker.

use std::collections::BTreeSet;

use gradient_domain::{BuildId, JobId};
use gradient_events::{Event, Input};

use crate::Projection;
use crate::anomaly::commanded;
use crate::change::{Change, Subject, Touched};

pub(crate) fn project(projection: &mut Projection<'_>) {
    let entry = projection.entry;
    let mut subjects = BTreeSet::new();
    of_input(&entry.input, &mut subjects);
    for event in &entry.events {
        of_event(event, &mut subjects);
    }
    let position = projection.position;
    for subject in subjects {
        projection.push(Change::Touched(Touched { subject, position }));
    }
}

fn of_input(input: &Input, subjects: &mut BTreeSet<Subject>) {
    match input {
        Input::Worker { worker, message, .. } => {
            subjects.insert(Subject::Worker(*worker));
            subjects.extend(message.reported().map(|open| Subject::Job(open.job)));
        }
        Input::Metrics { worker, .. } | Input::WorkerSilent { worker } => {
            subjects.insert(Subject::Worker(*worker));
        }
        Input::Command { command } => {
            subjects.insert(Subject::Job(commanded(command)));
        }
        Input::Started { .. } | Input::Unreadable { .. } | Input::Tick | Input::Sweep => {}
    }
}

fn of_event(event: &Event, subjects: &mut BTreeSet<Subject>) {
    let job = Subject::Job;
    let builds = |builds: &[BuildId]| -> Vec<Subject> {
        builds.iter().map(|build| job(JobId::Build(*build))).collect()
    };
    match event {
        Event::WorkerJoined { worker, .. }
        | Event::WorkerRejected { worker, .. }
        | Event::CapabilitiesReplaced { worker, .. }
        | Event::MetricsRecorded { worker }
        | Event::SlotIdle { worker, .. }
        | Event::OffersSent { worker, .. }
        | Event::ScoresRecorded { worker, .. }
        | Event::WorkerDraining { worker }
        | Event::WorkerLost { worker }
        | Event::WorkerLeft { worker, .. } => {
            subjects.insert(Subject::Worker(*worker));
        }
        Event::EvaluationRequested { evaluation }
        | Event::EvaluationAdvanced { evaluation, .. }
        | Event::MessagesRecorded { evaluation }
        | Event::EvaluationParked { evaluation, .. }
        | Event::EvaluationResumed { evaluation, .. }
        | Event::EvaluationFinished { evaluation, .. }
        | Event::EvaluationAborted { evaluation, .. } => {
            subjects.insert(job(JobId::Evaluate(*evaluation)));
        }
        Event::DerivationsRecorded { evaluation, builds: recorded, .. } => {
            subjects.insert(job(JobId::Evaluate(*evaluation)));
            subjects.extend(builds(recorded));
        }
        Event::JobAssigned { job: id, worker, .. }
        | Event::ReportDropped { job: id, worker, .. } => {
            subjects.extend([job(*id), Subject::Worker(*worker)]);
        }
        Event::JobQueued { job: id, .. }
        | Event::AssignmentDeclined { job: id, .. }
        | Event::AbortRequested { job: id, .. }
        | Event::AssignmentAbandoned { job: id, .. }
        | Event::JobRequeued { job: id, .. }
        | Event::JobFinished { job: id, .. } => {
            subjects.insert(job(*id));
        }
        Event::BuildStarted { build, .. }
        | Event::BuildSucceeded { build, .. }
        | Event::BuildFailed { build, .. }
        | Event::BuildAborted { build, .. } => {
            subjects.insert(job(JobId::Build(*build)));
        }
        Event::DependencyFailed { builds: failed, cause } => {
            subjects.insert(job(JobId::Build(*cause)));
            subjects.extend(builds(failed));
        }
        Event::BuildsReady { builds: some, .. }
        | Event::BuildsSkipped { builds: some }
        | Event::BuildsThawed { builds: some } => subjects.extend(builds(some)),
        Event::BuildsCreated { first, count } => {
            let new = first.0..first.0.saturating_add(*count);
            subjects.extend(new.map(|build| job(JobId::Build(BuildId(build)))));
        }
        // The job of these two stands in the input.
        Event::AssignmentAccepted { .. } | Event::UpdateRecorded { .. } => {}
        Event::SettingsReplaced | Event::InputRefused { .. } | Event::SweepFound { .. } => {}
    }
}
