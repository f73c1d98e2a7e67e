//! `dispatched_job`: exactly one row per `JobAssigned`; and the ends of `build_attempt`, which fall
//! together with the ends of hand-outs.

use gradient_domain::{AssignmentId, JobId};
use gradient_events::event::{AbortCause, JobResult};
use gradient_events::{Event, FailureKind, Input, WorkerMessage};

use crate::Projection;
use crate::change::{
    AttemptEnded, BuildReleased, Change, DispatchAborting, DispatchAccepted, DispatchEnded,
    Dispatched,
};
use crate::view::Outcome;

pub(crate) fn assigned(projection: &mut Projection<'_>, event: &Event) {
    let (at, position) = (projection.entry.at, projection.position);
    if let Event::JobAssigned {
        job,
        assignment,
        worker,
        session,
        total,
        breakdown,
        capabilities_version,
        considered,
        runners_up,
    } = event
    {
        projection.push(Change::Dispatched(Box::new(Dispatched {
            assignment: *assignment,
            job: *job,
            worker: *worker,
            session: *session,
            at,
            total: *total,
            breakdown: breakdown.clone(),
            considered: *considered,
            runners_up: runners_up.clone(),
            capabilities_version: *capabilities_version,
            position,
        })));
    }
}

pub(crate) fn accepted(projection: &mut Projection<'_>, assignment: AssignmentId) {
    let at = projection.entry.at;
    projection.push(Change::DispatchAccepted(DispatchAccepted { assignment, at }));
}

pub(crate) fn aborting(
    projection: &mut Projection<'_>,
    job: JobId,
    assignment: AssignmentId,
    cause: AbortCause,
) {
    let at = projection.entry.at;
    projection.push(Change::DispatchAborting(DispatchAborting { assignment, job, cause, at }));
}

/// How a hand-out ended, whichever of the three events says so.
struct End {
    job: JobId,
    assignment: AssignmentId,
    outcome: Outcome,
    failure: Option<FailureKind>,
    reason: Option<String>,
}

impl End {
    fn of(event: &Event) -> Option<Self> {
        let end = match event {
            Event::AssignmentDeclined { job, assignment, reason } => End {
                job: *job,
                assignment: *assignment,
                outcome: Outcome::Declined,
                failure: None,
                reason: Some(reason.clone()),
            },
            Event::AssignmentAbandoned { job, assignment, reason } => End {
                job: *job,
                assignment: *assignment,
                outcome: Outcome::Abandoned,
                failure: None,
                reason: Some(reason.name().to_owned()),
            },
            Event::JobFinished { job, assignment, result } => {
                let (outcome, failure) = match result {
                    JobResult::Completed => (Outcome::Completed, None),
                    JobResult::Failed(kind) => (Outcome::Failed, Some(*kind)),
                };
                let reason = failure.map(|kind| kind.name().to_owned());
                End { job: *job, assignment: *assignment, outcome, failure, reason }
            }
            _ => return None,
        };
        Some(end)
    }
}

pub(crate) fn ended(projection: &mut Projection<'_>, event: &Event) {
    let Some(End { job, assignment, outcome, failure, reason }) = End::of(event) else {
        debug_assert!(false, "routed by `event`");
        return;
    };
    let at = projection.entry.at;
    let report = Report::of(&projection.entry.input);
    let dispatch = DispatchEnded { assignment, job, outcome, reason: reason.clone(), at };
    projection.push(Change::DispatchEnded(Box::new(dispatch)));
    if let JobId::Build(build) = job {
        let message = match outcome {
            Outcome::Completed => None,
            Outcome::Failed => report.error.map(str::to_owned),
            Outcome::Declined | Outcome::Abandoned => reason,
        };
        projection.push(Change::AttemptEnded(Box::new(AttemptEnded {
            assignment,
            build,
            outcome,
            failure,
            message,
            missing_paths: report.missing_paths.to_vec(),
            elapsed_ms: report.elapsed_ms,
            at,
        })));
        projection.push(Change::BuildReleased(BuildReleased { build, assignment }));
    }
}

/// What a worker said at the end of a job.
#[derive(Default)]
pub(crate) struct Report<'a> {
    pub(crate) error: Option<&'a str>,
    missing_paths: &'a [gradient_domain::StorePath],
    elapsed_ms: Option<u64>,
}

impl<'a> Report<'a> {
    pub(crate) fn of(input: &'a Input) -> Self {
        let Some(message) = input.message() else { return Self::default() };
        match message {
            WorkerMessage::JobCompleted { elapsed_ms, .. } => {
                Self { elapsed_ms: Some(*elapsed_ms), ..Self::default() }
            }
            WorkerMessage::JobFailed { error, missing_paths, elapsed_ms, .. } => {
                Self { error: Some(error), missing_paths, elapsed_ms: Some(*elapsed_ms) }
            }
            WorkerMessage::Hello(_)
            | WorkerMessage::WorkerCapabilities { .. }
            | WorkerMessage::RequestJobList
            | WorkerMessage::RequestJobChunk { .. }
            | WorkerMessage::RequestJob { .. }
            | WorkerMessage::AssignJobResponse { .. }
            | WorkerMessage::JobUpdate { .. }
            | WorkerMessage::Draining
            | WorkerMessage::Goodbye => Self::default(),
        }
    }
}
