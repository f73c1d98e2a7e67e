//! Given an entry, these changes.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../postgres/tests/common/history.rs"]
#[expect(dead_code, unreachable_pub, reason = "this test uses its part of it")]
mod history;

use gradient_domain::{AssignmentId, BuildId, JobId, SessionId, Timestamp};
use gradient_events::event::{
    AbandonReason, EvaluationState, JobResult, RequeueReason, Verdict, WaitingReason,
};
use gradient_events::score::{MilliPoints, OfferNumber, Rule, RulePoints, RunnerUp};
use gradient_events::worker::{EvalResult, JobUpdate};
use gradient_events::{Cause, Entry, Event, FailureKind, Input, WorkerMessage};
use gradient_projections::change::{self, Graph, Subject};
use gradient_projections::view::{AnomalyKind, BuildState, Outcome, Waiting};
use gradient_projections::{Change, Key, Position, project};
use history::{discovered, drv_path, evaluation, worker};

const AT: Timestamp = Timestamp(1_000);
const POSITION: Position = Position { sequence: 7, index: 2 };
const HAND_OUT: AssignmentId = AssignmentId(5);

fn build(n: u32) -> JobId {
    JobId::Build(BuildId(n))
}

/// The changes of an entry without its index rows, and what the index names.
fn changes(input: Input, events: Vec<Event>) -> (Vec<Change>, Vec<Subject>) {
    let entry = Entry { at: AT, cause: Cause::Internal, input, events };
    let mut subjects = Vec::new();
    let mut rest = Vec::new();
    for change in project(&entry, POSITION) {
        match change {
            Change::Touched(touched) => {
                assert_eq!(touched.position, POSITION);
                subjects.push(touched.subject);
            }
            change => rest.push(change),
        }
    }
    (rest, subjects)
}

fn said(message: WorkerMessage) -> Input {
    Input::Worker { worker: worker(1), session: SessionId([9; 16]), message }
}

#[test]
fn ready_builds_take_consecutive_offers() {
    let events = vec![Event::BuildsReady {
        builds: vec![BuildId(4), BuildId(9)],
        first_offer: OfferNumber(70),
    }];
    let (changes, subjects) = changes(Input::Tick, events);
    let pending: Vec<(JobId, u64)> = changes
        .iter()
        .filter_map(|change| match change {
            Change::JobPending(pending) => Some((pending.job, pending.offer.0)),
            _ => None,
        })
        .collect();
    assert_eq!(pending, [(build(4), 70), (build(9), 71)]);
    let ready = changes.iter().filter(|change| matches!(change, Change::BuildReady(_))).count();
    assert_eq!((ready, changes.len()), (2, 4));
    assert_eq!(subjects, [Subject::Job(build(4)), Subject::Job(build(9))]);
}

#[test]
fn new_derivations_get_the_paths_of_their_mentions() {
    let attr = ["packages", "x"].into_iter().collect();
    let derivation = discovered(12, vec![attr]);
    let needed: Vec<usize> = history::dependencies(12);
    let edges: Vec<BuildId> = (0..needed.len()).map(|n| BuildId(30 + n as u32)).collect();
    let batch = EvalResult { derivations: vec![derivation.clone()], ..EvalResult::default() };
    let input = said(WorkerMessage::JobUpdate {
        job: JobId::Evaluate(evaluation(1)),
        assignment: HAND_OUT,
        update: JobUpdate::EvalResult(batch),
    });
    // The build of the derivation itself was mentioned before; its dependencies are new.
    let count = edges.len() as u32;
    let events = vec![
        Event::BuildsCreated { first: BuildId(30), count },
        Event::DerivationsRecorded {
            evaluation: evaluation(1),
            builds: vec![BuildId(3)],
            dependencies: vec![edges.clone()],
        },
    ];
    let (changes, _) = changes(input, events);
    let mentioned: Vec<(BuildId, _)> = changes
        .iter()
        .filter_map(|change| match change {
            Change::DerivationMentioned(m) => Some((m.build, m.drv_path.clone())),
            _ => None,
        })
        .collect();
    let expected: Vec<_> = edges.iter().copied().zip(needed.iter().map(|n| drv_path(*n))).collect();
    assert_eq!(mentioned, expected);
    let graph: Vec<Graph> = changes.iter().filter_map(Change::graph).collect();
    assert_eq!(graph.last(), Some(&Graph::Walks), "the walk sees the new rows");
    assert_eq!(graph.iter().filter(|graph| **graph == Graph::Walks).count(), 1);
    assert!(changes.iter().any(|change| matches!(change, Change::EntryPoints(points)
        if points.points.len() == 1 && points.points[0].1 == BuildId(3))));
    assert!(changes.iter().any(|change| matches!(change, Change::DependenciesRecorded(edges)
        if edges.build == BuildId(3) && edges.dependencies.len() == needed.len())));
}

#[test]
fn an_assignment_is_one_row_and_takes_the_job_from_the_queue() {
    let event = Event::JobAssigned {
        job: build(4),
        assignment: HAND_OUT,
        worker: worker(1),
        session: SessionId([9; 16]),
        total: MilliPoints(700),
        breakdown: vec![RulePoints { rule: Rule::WaitTime, points: MilliPoints(700) }],
        capabilities_version: 3,
        considered: 2,
        runners_up: vec![RunnerUp { job: build(6), total: MilliPoints(600) }],
    };
    let request = said(WorkerMessage::RequestJob { kind: gradient_domain::Kind::Build });
    let (changes, subjects) = changes(request, vec![event]);
    let rows: Vec<&change::Dispatched> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Dispatched(row) => Some(&**row),
            _ => None,
        })
        .collect();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].total.0, rows[0].considered, rows[0].runners_up.len()), (700, 2, 1));
    assert_eq!((rows[0].position, rows[0].at), (POSITION, AT));
    assert!(changes.contains(&Change::JobTaken(change::JobTaken { job: build(4) })));
    let opened = change::AttemptOpened {
        assignment: HAND_OUT,
        build: BuildId(4),
        worker: worker(1),
        at: AT,
    };
    assert!(changes.contains(&Change::AttemptOpened(opened)));
    assert_eq!(subjects, [Subject::Job(build(4)), Subject::Worker(worker(1))]);
}

#[test]
fn a_failure_ends_row_and_attempt_with_what_was_said() {
    let message = WorkerMessage::JobFailed {
        job: build(4),
        assignment: HAND_OUT,
        kind: FailureKind::Timeout,
        error: "silent for an hour".into(),
        missing_paths: vec![],
        elapsed_ms: 99,
    };
    let (kind, message_text) = (FailureKind::Timeout, "silent for an hour".to_owned());
    let events = vec![
        Event::JobFinished { job: build(4), assignment: HAND_OUT, result: JobResult::Failed(kind) },
        Event::BuildFailed { build: BuildId(4), kind, retry_at_ms: None, message: message_text },
        Event::DependencyFailed { builds: vec![BuildId(8)], cause: BuildId(4) },
    ];
    let (changes, subjects) = changes(said(message), events);
    let [
        Change::DispatchEnded(row),
        Change::AttemptEnded(attempt),
        Change::BuildReleased(_),
        Change::BuildEnded(own),
        Change::BuildEnded(above),
        Change::JobTaken(taken),
    ] = &changes[..]
    else {
        panic!("{changes:#?}");
    };
    assert_eq!((row.outcome, row.reason.as_deref()), (Outcome::Failed, Some("timeout")));
    assert_eq!(attempt.message.as_deref(), Some("silent for an hour"));
    assert_eq!((attempt.failure, attempt.elapsed_ms), (Some(kind), Some(99)));
    assert_eq!((own.state, own.cause), (BuildState::FailedTimeout, None));
    assert_eq!((above.state, above.cause), (BuildState::DependencyFailed, Some(BuildId(4))));
    assert_eq!(taken.job, build(8));
    let named = [Subject::Job(build(4)), Subject::Job(build(8)), Subject::Worker(worker(1))];
    assert_eq!(subjects, named);
}

#[test]
fn a_retry_is_no_end() {
    let event = Event::BuildFailed {
        build: BuildId(4),
        kind: FailureKind::Transient,
        retry_at_ms: Some(5_000),
        message: "disk full".into(),
    };
    let (changes, _) = changes(Input::Tick, vec![event]);
    let [Change::BuildEnded(end)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((end.state, end.retry_at), (BuildState::FailedTransient, Some(Timestamp(5_000))));
}

#[test]
fn an_abandoned_job_comes_back_with_its_reason() {
    let (job, assignment) = (build(4), HAND_OUT);
    let events = vec![
        Event::WorkerLost { worker: worker(1) },
        Event::AssignmentAbandoned { job, assignment, reason: AbandonReason::WorkerLost },
        Event::JobRequeued { job, reason: RequeueReason::Abandoned, offer: Some(OfferNumber(3)) },
    ];
    let (changes, _) = changes(Input::WorkerSilent { worker: worker(1) }, events);
    assert!(changes.iter().any(|change| matches!(change, Change::DispatchEnded(end)
        if end.outcome == Outcome::Abandoned && end.reason.as_deref() == Some("worker_lost"))));
    let pending = change::JobPending {
        job,
        offer: OfferNumber(3),
        reason: Some(RequeueReason::Abandoned),
        at: AT,
        position: POSITION,
    };
    assert_eq!(changes.last(), Some(&Change::JobPending(pending)));
}

#[test]
fn an_evaluation_that_waits_says_why() {
    let id = evaluation(1);
    let reason = WaitingReason::EvalWorkers { connected_workers: 3 };
    let (parked, _) =
        changes(Input::Tick, vec![Event::EvaluationParked { evaluation: id, reason }]);
    let [Change::EvaluationWaits(waits)] = &parked[..] else { panic!("{parked:?}") };
    assert_eq!(waits.state, EvaluationState::Waiting);
    assert_eq!(waits.reason, Waiting::EvalWorkers { connected_workers: 3 });

    let failed = said(WorkerMessage::JobFailed {
        job: JobId::Evaluate(id),
        assignment: HAND_OUT,
        kind: FailureKind::Transient,
        error: "no memory".into(),
        missing_paths: vec![],
        elapsed_ms: 1,
    });
    let job = JobId::Evaluate(id);
    let event = Event::JobRequeued { job, reason: RequeueReason::Retry, offer: None };
    let (retries, _) = changes(failed, vec![event]);
    let [Change::EvaluationWaits(waits)] = &retries[..] else { panic!("{retries:?}") };
    assert_eq!(waits.reason, Waiting::Retry { error: "no memory".into() });
}

#[test]
fn an_end_takes_the_evaluation_from_the_queue() {
    let id = evaluation(1);
    let event = Event::EvaluationFinished { evaluation: id, verdict: Verdict::Failed, error: None };
    let (changes, subjects) = changes(Input::Tick, vec![event]);
    let [Change::EvaluationEnded(end), Change::JobTaken(taken)] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!((end.state, taken.job), (EvaluationState::Failed, JobId::Evaluate(id)));
    assert_eq!(subjects, [Subject::Job(JobId::Evaluate(id))]);
}

#[test]
fn what_was_not_believed_is_kept() {
    let message =
        WorkerMessage::JobCompleted { job: build(4), assignment: HAND_OUT, elapsed_ms: 1 };
    let events = vec![Event::InputRefused { reason: "no such step".into() }];
    let (changes, _) = changes(said(message), events);
    let [Change::Anomaly(anomaly)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(anomaly.kind, AnomalyKind::InputRefused);
    assert_eq!(anomaly.worker, Some(worker(1)));
    assert_eq!((anomaly.job, anomaly.assignment), (Some(build(4)), Some(HAND_OUT)));
}

/// Changes of one hand-out share its key, whichever of job and hand-out they name.
#[test]
fn keys_tie_together_what_must_stay_in_order() {
    let accepted =
        Change::DispatchAccepted(change::DispatchAccepted { assignment: HAND_OUT, at: AT });
    let started = change::AttemptStarted { assignment: HAND_OUT, build: BuildId(4), at: AT };
    let started = Change::AttemptStarted(started);
    let shared: Vec<Key> = started
        .keys()
        .into_iter()
        .flatten()
        .filter(|key| accepted.keys().contains(&Some(*key)))
        .collect();
    assert_eq!(shared, [Key::Assignment(HAND_OUT)]);
}

/// Whatever the scheduler decides can be projected, and every entry is found by what it touches.
#[test]
fn real_histories_are_projected_whole() {
    for seed in 0..8 {
        let mut world = history::history(seed, 1_500);
        world.finish();
        let mut rows = 0;
        for (sequence, entry) in (1..).zip(&world.entries) {
            let position = Position { sequence, index: 0 };
            let changes = project(entry, position);
            assert_eq!(changes, project(entry, position), "no memory, no chance");
            rows += changes.iter().filter(|change| matches!(change, Change::Dispatched(_))).count();
            if let Input::Worker { worker, .. } = entry.input {
                let subject = Subject::Worker(worker);
                assert!(changes.contains(&Change::Touched(change::Touched { subject, position })));
            }
        }
        assert_eq!(rows, history::assignments(&world.entries), "one row per JobAssigned");
    }
}
