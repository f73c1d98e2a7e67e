//! `anomaly`: what was not believed, refused, or found by a sweep.

use gradient_domain::{AssignmentId, JobId, WorkerId};
use gradient_events::event::DropReason;
use gradient_events::{Command, Input};

use crate::Projection;
use crate::change::{Anomaly, Change};
use crate::view::AnomalyKind;

pub(crate) fn report_dropped(
    projection: &mut Projection<'_>,
    ordinal: u32,
    (worker, job, assignment): (WorkerId, JobId, AssignmentId),
    reason: DropReason,
) {
    let reason = match reason {
        DropReason::NotOpen => "the hand-out is not open: it ended before, or never was",
        DropReason::NotYours => "the hand-out belongs to another worker or session",
    };
    let about = About { worker: Some(worker), job: Some(job), assignment: Some(assignment) };
    push(projection, ordinal, AnomalyKind::ReportDropped, about, reason);
}

pub(crate) fn input_refused(projection: &mut Projection<'_>, ordinal: u32, reason: &str) {
    let about = match &projection.entry.input {
        Input::Worker { worker, message, .. } => About {
            worker: Some(*worker),
            job: message.reported().map(|open| open.job),
            assignment: message.reported().map(|open| open.assignment),
        },
        Input::Command { command } => About { job: Some(commanded(command)), ..About::default() },
        Input::Metrics { worker, .. } | Input::WorkerSilent { worker } => {
            About { worker: Some(*worker), ..About::default() }
        }
        Input::Started { .. } | Input::Unreadable { .. } | Input::Tick | Input::Sweep => {
            About::default()
        }
    };
    push(projection, ordinal, AnomalyKind::InputRefused, about, reason);
}

pub(crate) fn worker_rejected(
    projection: &mut Projection<'_>,
    ordinal: u32,
    worker: WorkerId,
    reason: &str,
) {
    let about = About { worker: Some(worker), ..About::default() };
    push(projection, ordinal, AnomalyKind::WorkerRejected, about, reason);
}

pub(crate) fn sweep_found(projection: &mut Projection<'_>, ordinal: u32, what: &str) {
    push(projection, ordinal, AnomalyKind::SweepFound, About::default(), what);
}

/// The job that a command is about.
pub(crate) fn commanded(command: &Command) -> JobId {
    match command {
        Command::Submit { evaluation, .. } | Command::CancelEvaluation { evaluation } => {
            JobId::Evaluate(*evaluation)
        }
        Command::CancelBuild { build } => JobId::Build(*build),
    }
}

#[derive(Default)]
struct About {
    worker: Option<WorkerId>,
    job: Option<JobId>,
    assignment: Option<AssignmentId>,
}

fn push(
    projection: &mut Projection<'_>,
    ordinal: u32,
    kind: AnomalyKind,
    about: About,
    reason: &str,
) {
    let About { worker, job, assignment } = about;
    let (position, at) = (projection.position, projection.entry.at);
    let reason = reason.to_owned();
    projection.push(Change::Anomaly(Box::new(Anomaly {
        position,
        ordinal,
        kind,
        worker,
        job,
        assignment,
        reason,
        at,
    })));
}
