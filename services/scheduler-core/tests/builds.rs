//! Graph, failures, retries, sharing, cancellation (reference 3).

mod common;

use common::*;
use gradient_domain::Kind;
use gradient_events::event::{AbandonReason, AbortCause, EvaluationState, Verdict, WaitingReason};
use gradient_events::worker::JobUpdate;
use gradient_events::{Command, Event, FailureKind, Input};
use gradient_scheduler_core::explain::{Explanation, explain};
use gradient_scheduler_core::outstanding::Owed;
use gradient_scheduler_core::replay::Verifier;

fn finished(events: &[Event]) -> Option<Verdict> {
    events.iter().find_map(|event| match event {
        Event::EvaluationFinished { verdict, .. } => Some(*verdict),
        _ => None,
    })
}

#[test]
fn builds_start_in_the_middle_of_an_evaluation() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.join(2, capabilities(&[], 1));
    fleet.submit(1);
    let evaluation = fleet.assign(1, Kind::Evaluate);
    fleet.found(1, evaluation, vec![derivation("leaf", &[])]);
    let leaf = fleet.assign(2, Kind::Build);
    assert_eq!(finished(&fleet.built(2, leaf)), None, "more may come");
    fleet.found(1, evaluation, vec![derivation("top", &["leaf"])]);
    assert_eq!(finished(&fleet.complete(1, evaluation)), None);
    let top = fleet.assign(2, Kind::Build);
    assert_eq!(finished(&fleet.built(2, top)), Some(Verdict::Completed));
}

#[test]
fn an_edge_may_come_before_what_it_points_at() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let evaluation = fleet.assign(1, Kind::Evaluate);
    fleet.found(1, evaluation, vec![derivation("top", &["late"])]);
    assert!(fleet.state.queue().is_empty(), "nothing is ready whose input is not recorded");
    assert_eq!(explain(&fleet.state, fleet.job("late")), Explanation::NotRecorded);
    fleet.found(1, evaluation, vec![derivation("late", &[])]);
    assert_eq!(fleet.assign(1, Kind::Build).0, fleet.job("late"));
}

#[test]
fn a_hole_in_the_graph_fails_the_evaluation() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    let events = fleet.evaluate(1, 1, vec![derivation("top", &["never"])]);
    let error = events.iter().find_map(|event| match event {
        Event::EvaluationFinished { verdict: Verdict::Failed, error, .. } => error.clone(),
        _ => None,
    });
    assert!(error.is_some_and(|error| error.contains("never.drv")), "{events:?}");
}

#[test]
fn an_empty_evaluation_is_over_at_once() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    assert_eq!(finished(&fleet.evaluate(1, 1, Vec::new())), Some(Verdict::Completed));
}

#[test]
fn an_attribute_error_fails_the_evaluation_after_the_rest_was_built() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let evaluation = fleet.assign(1, Kind::Evaluate);
    fleet.found(1, evaluation, vec![derivation("good", &[])]);
    fleet.erred(1, evaluation, "attribute throws");
    assert_eq!(finished(&fleet.complete(1, evaluation)), None);
    let good = fleet.assign(1, Kind::Build);
    assert_eq!(finished(&fleet.built(1, good)), Some(Verdict::Failed));
}

#[test]
fn a_flake_that_cannot_be_opened_fails_with_its_text_and_is_not_retried() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let evaluation = fleet.assign(1, Kind::Evaluate);
    let events = fleet.fail(1, evaluation, FailureKind::Permanent);
    let error = Some("it broke".to_owned());
    let evaluation = common::evaluation(1);
    assert!(
        events.contains(&Event::EvaluationFinished { evaluation, verdict: Verdict::Failed, error }),
        "{events:?}"
    );
}

#[test]
fn a_failure_cascades_and_leaves_the_others_alone() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(
        1,
        1,
        vec![
            derivation("bad", &[]),
            derivation("over-bad", &["bad"]),
            derivation("top", &["over-bad", "good"]),
            derivation("good", &[]),
        ],
    );
    let bad = fleet.assign(1, Kind::Build);
    assert_eq!(bad.0, fleet.job("bad"));
    let events = fleet.fail(1, bad, FailureKind::Permanent);
    let builds = vec![fleet.build("over-bad"), fleet.build("top")];
    assert!(
        events.contains(&Event::DependencyFailed { builds, cause: fleet.build("bad") }),
        "{events:?}"
    );
    assert_eq!(finished(&events), None, "the good one is still to be built");
    let good = fleet.assign(1, Kind::Build);
    assert_eq!(finished(&fleet.built(1, good)), Some(Verdict::Failed));
    let over =
        Explanation::Over { how: format!("build {}, which it needs, failed", fleet.build("bad")) };
    assert_eq!(explain(&fleet.state, fleet.job("top")), over);
}

#[test]
fn a_dependent_found_after_the_failure_fails_with_it() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let evaluation = fleet.assign(1, Kind::Evaluate);
    fleet.found(1, evaluation, vec![derivation("bad", &[])]);
    let bad = fleet.assign(1, Kind::Build);
    fleet.fail(1, bad, FailureKind::Timeout);
    let events = fleet.found(1, evaluation, vec![derivation("top", &["bad"])]);
    let builds = vec![fleet.build("top")];
    assert!(
        events.contains(&Event::DependencyFailed { builds, cause: fleet.build("bad") }),
        "{events:?}"
    );
}

#[test]
fn transient_failures_are_retried_with_backoff_and_then_permanent() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[])]);
    for (attempt, backoff_ms) in [(1, 30_000), (2, 60_000)] {
        let hand_out = fleet.assign(1, Kind::Build);
        let events = fleet.fail(1, hand_out, FailureKind::Transient);
        let retry = events.iter().find_map(|event| match event {
            Event::BuildFailed { retry_at_ms, .. } => *retry_at_ms,
            _ => None,
        });
        assert_eq!(retry, Some(fleet.now_ms + backoff_ms), "attempt {attempt}");
        assert_eq!(fleet.later(backoff_ms - 1), []);
        assert!(fleet.later(1).iter().any(|event| matches!(event, Event::JobQueued { .. })));
    }
    let hand_out = fleet.assign(1, Kind::Build);
    let events = fleet.fail(1, hand_out, FailureKind::Transient);
    assert!(events.iter().any(|event| matches!(event, Event::BuildFailed { kind: FailureKind::Permanent, retry_at_ms: None, message, .. } if message.contains("attempt 3 of 3"))), "{events:?}");
    assert_eq!(finished(&events), Some(Verdict::Failed));
}

#[test]
fn a_planned_stop_costs_no_attempt() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[])]);
    for _ in 0..20 {
        let hand_out = fleet.assign(1, Kind::Build);
        let events = fleet.fail(1, hand_out, FailureKind::Canceled);
        assert!(
            events.iter().any(|event| matches!(event, Event::JobRequeued { offer: Some(_), .. })),
            "{events:?}"
        );
    }
}

#[test]
fn a_poison_build_fails_after_ten_lost_workers() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("poison", &[])]);
    for loss in 1..=10 {
        let hand_out = fleet.assign(1, Kind::Build);
        let events = fleet.internal(Input::WorkerSilent { worker: worker(1) });
        let abandoned = Event::AssignmentAbandoned {
            job: hand_out.0,
            assignment: hand_out.1,
            reason: AbandonReason::WorkerLost,
        };
        assert!(events.contains(&abandoned), "{events:?}");
        assert_eq!(finished(&events), (loss == 10).then_some(Verdict::Failed), "loss {loss}");
        fleet.join(1, capabilities(&[], 1));
    }
}

#[test]
fn an_evaluation_is_given_up_after_ten_hand_outs() {
    let mut fleet = Fleet::new();
    fleet.submit(1);
    for hand_out in 1..=10 {
        fleet.join(1, capabilities(&[], 1));
        fleet.assign(1, Kind::Evaluate);
        let events = fleet.internal(Input::WorkerSilent { worker: worker(1) });
        assert_eq!(
            finished(&events),
            (hand_out == 10).then_some(Verdict::Failed),
            "hand-out {hand_out}"
        );
    }
}

#[test]
fn what_two_evaluations_share_is_built_once() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 4));
    fleet.evaluate(1, 1, vec![derivation("shared", &[])]);
    fleet.evaluate(2, 1, vec![derivation("shared", &[]), derivation("own", &["shared"])]);
    let shared = fleet.assign(1, Kind::Build);
    assert!(assigned(&fleet.request(1, Kind::Build)).is_none(), "there is one build of it");
    let events = fleet.built(1, shared);
    assert_eq!(finished(&events), Some(Verdict::Completed), "the first evaluation is over");
    let own = fleet.assign(1, Kind::Build);
    assert_eq!(finished(&fleet.built(1, own)), Some(Verdict::Completed));
    assert_eq!(
        finished(&fleet.evaluate(3, 1, vec![derivation("own", &["shared"])])),
        Some(Verdict::Completed),
        "nothing is built again"
    );
}

#[test]
fn canceling_one_evaluation_leaves_what_another_wants() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("shared", &[]), derivation("only-first", &[])]);
    fleet.evaluate(2, 1, vec![derivation("shared", &[])]);
    let shared = fleet.assign(1, Kind::Build);
    let events = fleet.command(Command::CancelEvaluation { evaluation: evaluation(1) });
    assert!(
        events.contains(&Event::BuildsSkipped { builds: vec![fleet.build("only-first")] }),
        "{events:?}"
    );
    assert!(
        !events.iter().any(|event| matches!(event, Event::AbortRequested { .. })),
        "{events:?}"
    );
    let events = fleet.command(Command::CancelEvaluation { evaluation: evaluation(2) });
    let abort =
        Event::AbortRequested { job: shared.0, assignment: shared.1, cause: AbortCause::Unwanted };
    assert!(events.contains(&abort), "{events:?}");
    assert!(fleet.owed(1).contains(&Owed::Abort(shared.1)));
    let events = fleet.fail(1, shared, FailureKind::Aborted);
    assert!(events.iter().any(|event| matches!(event, Event::BuildAborted { .. })), "{events:?}");
}

#[test]
fn a_result_that_crosses_the_abort_counts() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[])]);
    let hand_out = fleet.assign(1, Kind::Build);
    fleet.command(Command::CancelEvaluation { evaluation: evaluation(1) });
    let events = fleet.built(1, hand_out);
    assert!(events.iter().any(|event| matches!(event, Event::BuildSucceeded { .. })), "{events:?}");
}

#[test]
fn an_unconfirmed_abort_is_closed_in_the_end() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[])]);
    let (job, assignment) = fleet.assign(1, Kind::Build);
    fleet.command(Command::CancelBuild { build: fleet.build("a") });
    assert_eq!(fleet.later(299_999), []);
    let events = fleet.later(1);
    assert_eq!(
        events[0],
        Event::AssignmentAbandoned { job, assignment, reason: AbandonReason::AbortUnconfirmed }
    );
    assert_eq!(finished(&events), Some(Verdict::Failed));
}

#[test]
fn a_build_that_a_user_cancels_fails_its_evaluation() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[]), derivation("b", &["a"])]);
    let events = fleet.command(Command::CancelBuild { build: fleet.build("a") });
    assert!(
        events.contains(&Event::DependencyFailed {
            builds: vec![fleet.build("b")],
            cause: fleet.build("a")
        }),
        "{events:?}"
    );
    assert_eq!(finished(&events), Some(Verdict::Failed));
}

#[test]
fn a_new_evaluation_starts_a_failed_build_over() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[]), derivation("b", &["a"])]);
    let hand_out = fleet.assign(1, Kind::Build);
    fleet.fail(1, hand_out, FailureKind::Permanent);
    let events = fleet.evaluate(2, 1, vec![derivation("a", &[]), derivation("b", &["a"])]);
    assert!(
        events.contains(&Event::BuildsThawed { builds: vec![fleet.build("a"), fleet.build("b")] }),
        "{events:?}"
    );
    for _ in 0..2 {
        let hand_out = fleet.assign(1, Kind::Build);
        fleet.built(1, hand_out);
    }
    assert_eq!(
        fleet.state.evaluation(evaluation(2)).map(|e| e.state),
        Some(EvaluationState::Completed)
    );
    assert_eq!(
        fleet.state.evaluation(evaluation(1)).map(|e| e.state),
        Some(EvaluationState::Failed),
        "the first verdict stands"
    );
}

#[test]
fn builds_that_nobody_can_run_wait_with_a_reason_and_are_given_up_in_the_end() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![needing("odd", "riscv64-none", &[])]);
    let events = fleet.later(5_000);
    let Some(Event::EvaluationParked {
        reason: WaitingReason::Workers { unmet, connected_workers: 1 },
        ..
    }) = events.first()
    else {
        panic!("{events:?}")
    };
    assert_eq!(unmet[0].requirement.to_string(), "riscv64-none");
    assert_eq!(fleet.later(299_999), []);
    let events = fleet.later(1);
    assert!(
        matches!(&events[0], Event::EvaluationAborted { reason, .. } if reason.contains("riscv64-none")),
        "{events:?}"
    );
    assert!(fleet.state.queue().is_empty());
}

#[test]
fn a_worker_that_fits_ends_the_waiting() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![needing("vm", "x86_64-linux", &["kvm"])]);
    fleet.later(5_000);
    fleet.join(2, capabilities(&["kvm"], 1));
    assert!(matches!(fleet.later(5_000).first(), Some(Event::EvaluationResumed { .. })));
    let hand_out = fleet.assign(2, Kind::Build);
    assert_eq!(finished(&fleet.built(2, hand_out)), Some(Verdict::Completed));
}

#[test]
fn a_faulty_batch_is_refused_and_fails_its_evaluation() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let hand_out = fleet.assign(1, Kind::Evaluate);
    let events = fleet.found(1, hand_out, vec![derivation("a", &["a"])]);
    assert!(
        matches!(&events[0], Event::InputRefused { reason } if reason.contains("depends on itself")),
        "{events:?}"
    );
    assert_eq!(
        finished(&events),
        Some(Verdict::Failed),
        "without the batch it would look complete"
    );
    assert!(fleet.owed(1).contains(&Owed::Abort(hand_out.1)), "and its job is stopped");
}

#[test]
fn batches_of_an_evaluation_that_is_over_are_refused() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let hand_out = fleet.assign(1, Kind::Evaluate);
    fleet.command(Command::CancelEvaluation { evaluation: evaluation(1) });
    let events = fleet.found(1, hand_out, vec![derivation("a", &[])]);
    assert!(matches!(&events[..], [Event::InputRefused { .. }]), "{events:?}");
    assert_eq!(
        fleet.update(1, hand_out, JobUpdate::EvaluatingFlake),
        [],
        "and it does not move any more"
    );
}

#[test]
fn the_sweep_finds_nothing_in_an_orderly_history() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[]), derivation("b", &["a"])]);
    assert_eq!(fleet.internal(Input::Sweep), []);
}

#[test]
fn a_log_decides_alike_when_it_is_decided_again() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[]), derivation("b", &["a"])]);
    let hand_out = fleet.assign(1, Kind::Build);
    fleet.fail(1, hand_out, FailureKind::Permanent);
    let mut verifier = Verifier::default();
    for entry in &fleet.log {
        verifier.entry(entry).expect("no deviation");
    }
    assert!(verifier.agrees());
    assert_eq!(*verifier.state(), fleet.state);
    let mut tampered = fleet.log.last().expect("not empty").clone();
    tampered.events.pop();
    let before = gradient_scheduler_core::replay::fold(&fleet.log[..fleet.log.len() - 1]);
    let mut verifier = Verifier::from_state(&before);
    verifier.entry(&tampered).expect_err("a changed log deviates");
}
