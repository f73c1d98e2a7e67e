//! Samples of decisions.

use gradient_domain::Kind;
use gradient_events::FailureKind;
use gradient_events::event::{
    AbandonReason, AbortCause, DropReason, EvaluationState, Event, JobResult, RequeueReason,
    UnmetRequirement, Verdict, WaitingReason,
};
use gradient_events::score::{MilliPoints, OfferNumber, Rule, RulePoints, RunnerUp};

use super::fixture::{
    ASSIGNMENT, BUILD, OTHER_BUILD, SESSION, WORKER, evaluate, evaluation, job, requirement,
};
use super::{Sample, assert_complete, named, variants};

variants!(name_of, ALL, Event:
    SettingsReplaced => Event::SettingsReplaced,
    WorkerJoined => Event::WorkerJoined { .. },
    WorkerRejected => Event::WorkerRejected { .. },
    CapabilitiesReplaced => Event::CapabilitiesReplaced { .. },
    MetricsRecorded => Event::MetricsRecorded { .. },
    SlotIdle => Event::SlotIdle { .. },
    OffersSent => Event::OffersSent { .. },
    ScoresRecorded => Event::ScoresRecorded { .. },
    WorkerDraining => Event::WorkerDraining { .. },
    WorkerLost => Event::WorkerLost { .. },
    WorkerLeft => Event::WorkerLeft { .. },
    EvaluationRequested => Event::EvaluationRequested { .. },
    EvaluationAdvanced => Event::EvaluationAdvanced { .. },
    DerivationsRecorded => Event::DerivationsRecorded { .. },
    MessagesRecorded => Event::MessagesRecorded { .. },
    EvaluationParked => Event::EvaluationParked { .. },
    EvaluationResumed => Event::EvaluationResumed { .. },
    EvaluationFinished => Event::EvaluationFinished { .. },
    EvaluationAborted => Event::EvaluationAborted { .. },
    JobQueued => Event::JobQueued { .. },
    JobAssigned => Event::JobAssigned { .. },
    AssignmentAccepted => Event::AssignmentAccepted { .. },
    AssignmentDeclined => Event::AssignmentDeclined { .. },
    UpdateRecorded => Event::UpdateRecorded { .. },
    AbortRequested => Event::AbortRequested { .. },
    AssignmentAbandoned => Event::AssignmentAbandoned { .. },
    ReportDropped => Event::ReportDropped { .. },
    InputRefused => Event::InputRefused { .. },
    JobRequeued => Event::JobRequeued { .. },
    JobFinished => Event::JobFinished { .. },
    BuildsCreated => Event::BuildsCreated { .. },
    BuildsReady => Event::BuildsReady { .. },
    BuildStarted => Event::BuildStarted { .. },
    BuildSucceeded => Event::BuildSucceeded { .. },
    BuildFailed => Event::BuildFailed { .. },
    DependencyFailed => Event::DependencyFailed { .. },
    BuildAborted => Event::BuildAborted { .. },
    BuildsSkipped => Event::BuildsSkipped { .. },
    BuildsThawed => Event::BuildsThawed { .. },
    SweepFound => Event::SweepFound { .. },
);

variants!(state_of, STATES, EvaluationState:
    Queued => EvaluationState::Queued,
    Fetching => EvaluationState::Fetching,
    EvaluatingFlake => EvaluationState::EvaluatingFlake,
    EvaluatingDerivations => EvaluationState::EvaluatingDerivations,
    Building => EvaluationState::Building,
    Waiting => EvaluationState::Waiting,
    Completed => EvaluationState::Completed,
    Failed => EvaluationState::Failed,
    Aborted => EvaluationState::Aborted,
);

const EVALUATION_STATES: [EvaluationState; 9] = [
    EvaluationState::Queued,
    EvaluationState::Fetching,
    EvaluationState::EvaluatingFlake,
    EvaluationState::EvaluatingDerivations,
    EvaluationState::Building,
    EvaluationState::Waiting,
    EvaluationState::Completed,
    EvaluationState::Failed,
    EvaluationState::Aborted,
];

variants!(abandon_of, ABANDONS, AbandonReason:
    WorkerLost => AbandonReason::WorkerLost,
    WorkerLeft => AbandonReason::WorkerLeft,
    NotAccepted => AbandonReason::NotAccepted,
    AbortUnconfirmed => AbandonReason::AbortUnconfirmed,
);

const ABANDON_REASONS: [AbandonReason; 4] = [
    AbandonReason::WorkerLost,
    AbandonReason::WorkerLeft,
    AbandonReason::NotAccepted,
    AbandonReason::AbortUnconfirmed,
];

variants!(requeue_of, REQUEUES, RequeueReason:
    Declined => RequeueReason::Declined,
    Abandoned => RequeueReason::Abandoned,
    Retry => RequeueReason::Retry,
    Canceled => RequeueReason::Canceled,
);

const REQUEUE_REASONS: [RequeueReason; 4] = [
    RequeueReason::Declined,
    RequeueReason::Abandoned,
    RequeueReason::Retry,
    RequeueReason::Canceled,
];

/// Every event, and every value of the enums within.
pub(super) fn all() -> Vec<Sample<Event>> {
    let mut values = worker_events();
    values.extend(evaluation_events());
    values.extend(job_events());
    values.extend(assignment_events());
    values.extend(build_events());
    assert_complete(ALL, &values, name_of);
    named(values, name_of)
}

fn worker_events() -> Vec<Event> {
    let worker = WORKER;
    vec![
        Event::SettingsReplaced,
        Event::WorkerJoined { worker, session: SESSION, protocol: 1 },
        Event::WorkerRejected {
            worker,
            session: SESSION,
            code: 505,
            reason: "protocol 9 is not spoken here".into(),
        },
        Event::CapabilitiesReplaced { worker, version: 2 },
        Event::MetricsRecorded { worker },
        Event::SlotIdle { worker, kind: Kind::Build },
        Event::SlotIdle { worker, kind: Kind::Evaluate },
        Event::OffersSent { worker, up_to: OfferNumber(42), list: true, is_final: false },
        Event::ScoresRecorded { worker, up_to: OfferNumber(42) },
        Event::WorkerDraining { worker },
        Event::WorkerLost { worker },
        Event::WorkerLeft { worker, session: SESSION },
    ]
}

fn evaluation_events() -> Vec<Event> {
    let evaluation = evaluation();
    let unmet = UnmetRequirement { requirement: requirement(), build_count: 7 };
    let mut events = vec![
        Event::EvaluationRequested { evaluation },
        Event::DerivationsRecorded {
            evaluation,
            builds: vec![BUILD, OTHER_BUILD],
            dependencies: vec![vec![OTHER_BUILD], Vec::new()],
        },
        Event::MessagesRecorded { evaluation },
        Event::EvaluationParked {
            evaluation,
            reason: WaitingReason::EvalWorkers { connected_workers: 0 },
        },
        Event::EvaluationParked {
            evaluation,
            reason: WaitingReason::Workers { unmet: vec![unmet], connected_workers: 2 },
        },
        Event::EvaluationResumed { evaluation, state: EvaluationState::Building },
        Event::EvaluationFinished { evaluation, verdict: Verdict::Completed, error: None },
        Event::EvaluationFinished {
            evaluation,
            verdict: Verdict::Failed,
            error: Some("no attribute matches packages.*.*".into()),
        },
        Event::EvaluationAborted { evaluation, reason: "canceled by a user".into() },
    ];
    assert_complete(STATES, &EVALUATION_STATES, state_of);
    events.extend(EVALUATION_STATES.map(|state| Event::EvaluationAdvanced { evaluation, state }));
    events
}

fn job_events() -> Vec<Event> {
    let job = job();
    let mut events = vec![
        Event::JobQueued { job: evaluate(), offer: OfferNumber(1) },
        Event::JobAssigned {
            job,
            assignment: ASSIGNMENT,
            worker: WORKER,
            session: SESSION,
            total: MilliPoints(712_000),
            breakdown: vec![
                RulePoints { rule: Rule::MissingPaths, points: MilliPoints(200_000) },
                RulePoints { rule: Rule::MissingNarSize, points: MilliPoints(500_000) },
                RulePoints { rule: Rule::WaitTime, points: MilliPoints(12_000) },
            ],
            capabilities_version: 2,
            considered: 9,
            runners_up: vec![RunnerUp { job: evaluate(), total: MilliPoints(-5) }],
        },
        Event::JobRequeued { job, reason: RequeueReason::Retry, offer: None },
        Event::JobFinished { job, assignment: ASSIGNMENT, result: JobResult::Completed },
        Event::JobFinished {
            job,
            assignment: ASSIGNMENT,
            result: JobResult::Failed(FailureKind::Permanent),
        },
    ];
    assert_complete(REQUEUES, &REQUEUE_REASONS, requeue_of);
    events.extend(REQUEUE_REASONS.map(|reason| Event::JobRequeued {
        job,
        reason,
        offer: Some(OfferNumber(44)),
    }));
    events
}

fn assignment_events() -> Vec<Event> {
    let (job, assignment) = (job(), ASSIGNMENT);
    let mut events = vec![
        Event::AssignmentAccepted { assignment },
        Event::AssignmentDeclined { job, assignment, reason: "full".into() },
        Event::UpdateRecorded { assignment },
        Event::AbortRequested { job, assignment, cause: AbortCause::Canceled },
        Event::AbortRequested { job, assignment, cause: AbortCause::Unwanted },
        Event::ReportDropped { worker: WORKER, job, assignment, reason: DropReason::NotOpen },
        Event::ReportDropped { worker: WORKER, job, assignment, reason: DropReason::NotYours },
        Event::InputRefused { reason: "the evaluation exists already".into() },
    ];
    assert_complete(ABANDONS, &ABANDON_REASONS, abandon_of);
    events.extend(ABANDON_REASONS.map(|reason| Event::AssignmentAbandoned {
        job,
        assignment,
        reason,
    }));
    events
}

fn build_events() -> Vec<Event> {
    let build = BUILD;
    vec![
        Event::BuildsCreated { first: BUILD, count: 2 },
        Event::BuildsReady { builds: vec![BUILD, OTHER_BUILD], first_offer: OfferNumber(2) },
        Event::BuildStarted { build, assignment: ASSIGNMENT },
        Event::BuildSucceeded { build, substituted: true },
        Event::BuildFailed {
            build,
            kind: FailureKind::Permanent,
            retry_at_ms: None,
            message: "builder failed with exit code 1".into(),
        },
        Event::BuildFailed {
            build,
            kind: FailureKind::Transient,
            retry_at_ms: Some(1_700_000_030_123),
            message: "no space left on device".into(),
        },
        Event::DependencyFailed { builds: vec![OTHER_BUILD], cause: BUILD },
        Event::BuildAborted { build, reason: "canceled by a user".into() },
        Event::BuildsSkipped { builds: vec![BUILD, OTHER_BUILD] },
        Event::BuildsThawed { builds: vec![BUILD] },
        Event::SweepFound { what: "build 0000007b was ready and not in the queue".into() },
    ]
}
