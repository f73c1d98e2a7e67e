//! Offers, requests, claims, answers (spec, Offers and Assignment).

mod common;

use common::*;
use gradient_domain::{AssignmentId, JobId, Kind};
use gradient_events::event::{AbandonReason, DropReason, RequeueReason, WaitingReason};
use gradient_events::score::{MilliPoints, OfferNumber, Rule};
use gradient_events::worker::{JobUpdate, OpenAssignment};
use gradient_events::{Command, Event, FailureKind, Input, ServerMessage, WorkerMessage};
use gradient_scheduler_core::outstanding::Owed;

#[test]
fn an_evaluation_waits_with_a_reason_until_somebody_can_run_it() {
    let mut fleet = Fleet::new();
    let events = fleet.submit(1);
    let reason = WaitingReason::EvalWorkers { connected_workers: 0 };
    assert!(
        events.contains(&Event::EvaluationParked { evaluation: evaluation(1), reason }),
        "{events:?}"
    );
    let events = fleet.join(1, capabilities(&[], 1));
    assert!(
        events.iter().any(|event| matches!(event, Event::EvaluationResumed { .. })),
        "{events:?}"
    );
    assert!(fleet.page(1).is_some_and(|page| matches!(page, ServerMessage::JobListChunk { candidates, is_final: true, .. } if candidates.len() == 1)));
}

#[test]
fn a_repeated_submit_changes_nothing() {
    let mut fleet = Fleet::new();
    fleet.submit(1);
    assert_eq!(fleet.submit(1), []);
}

#[test]
fn nothing_is_assigned_without_a_request() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 4));
    let events = fleet.submit(1);
    assert_eq!(assigned(&events), None);
    assert_eq!(assigned(&fleet.score(1, |_| 0)), None);
    assert!(assigned(&fleet.request(1, Kind::Evaluate)).is_some());
}

#[test]
fn a_claim_is_owed_until_it_is_answered() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let (job, assignment) = assigned(&fleet.request(1, Kind::Evaluate)).expect("assigned");
    assert!(fleet.owed(1).contains(&Owed::Assign(assignment)));
    fleet.answer(1, job, assignment, true);
    assert!(!fleet.owed(1).contains(&Owed::Assign(assignment)));
}

#[test]
fn any_report_under_the_open_id_counts_as_acceptance() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let hand_out = assigned(&fleet.request(1, Kind::Evaluate)).expect("assigned");
    let events = fleet.update(1, hand_out, JobUpdate::Fetching);
    assert_eq!(events[0], Event::AssignmentAccepted { assignment: hand_out.1 });
}

#[test]
fn a_declined_job_is_offered_again_under_a_new_number() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.score(1, |_| 0);
    fleet.submit(1);
    fleet.score(1, |_| 0);
    let (job, assignment) = assigned(&fleet.request(1, Kind::Evaluate)).expect("assigned");
    let events = fleet.answer(1, job, assignment, false);
    assert!(
        events.contains(&Event::JobRequeued {
            job,
            reason: RequeueReason::Declined,
            offer: Some(OfferNumber(2))
        }),
        "{events:?}"
    );
    assert_eq!(offered_to(&events), [(worker(1), OfferNumber(2))]);
}

#[test]
fn silence_on_a_claim_withdraws_it() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let (job, assignment) = assigned(&fleet.request(1, Kind::Evaluate)).expect("assigned");
    assert_eq!(fleet.later(29_999), []);
    let events = fleet.later(1);
    assert_eq!(
        events[0],
        Event::AssignmentAbandoned { job, assignment, reason: AbandonReason::NotAccepted }
    );
    let again = assigned(&fleet.request(1, Kind::Evaluate)).expect("assigned again");
    assert_eq!(again, (job, AssignmentId(assignment.0 + 1)));
}

#[test]
fn an_idle_repeat_is_counted_not_logged() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    let idle = [Event::SlotIdle { worker: worker(1), kind: Kind::Build }];
    assert_eq!(fleet.request(1, Kind::Build), idle);
    assert_eq!(fleet.request(1, Kind::Build), []);
    fleet.now_ms += 3_600_000;
    assert_eq!(fleet.request(1, Kind::Build), []);
}

#[test]
fn a_finished_input_offers_its_dependents_at_once() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.score(1, |_| 0);
    fleet.evaluate(1, 1, vec![derivation("top", &["base"]), derivation("base", &[])]);
    fleet.score(1, |_| 0);
    let base = fleet.assign(1, Kind::Build);
    assert_eq!(base.0, fleet.job("base"), "the dependent is not ready");
    let events = fleet.built(1, base);
    let ready =
        Event::BuildsReady { builds: vec![fleet.build("top")], first_offer: OfferNumber(3) };
    assert!(events.contains(&ready), "{events:?}");
    assert_eq!(offered_to(&events), [(worker(1), OfferNumber(3))]);
    let Some(ServerMessage::JobOffer { candidates, .. }) = fleet.page(1) else {
        panic!("an offer is owed")
    };
    assert_eq!(candidates[0].required_paths[0].nar_size, Some(512), "with the size of its input");
}

#[test]
fn systems_and_features_decide_who_gets_what() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 8));
    fleet.join(2, capabilities(&["kvm"], 8));
    fleet.evaluate(
        1,
        1,
        vec![
            needing("plain", "x86_64-linux", &[]),
            needing("vm", "x86_64-linux", &["kvm"]),
            needing("arm", "aarch64-linux", &[]),
            needing("fetch", "builtin", &[]),
            needing("fetch-vm", "builtin", &["kvm"]),
        ],
    );
    let mut take = |number| {
        let mut taken = Vec::new();
        while let Some((job, assignment)) = assigned(&fleet.request(number, Kind::Build)) {
            fleet.answer(number, job, assignment, true);
            taken.push(job);
        }
        taken
    };
    let (first, second) = (take(1), take(2));
    assert_eq!(first, [fleet.job("plain"), fleet.job("fetch")]);
    assert_eq!(second, [fleet.job("vm"), fleet.job("fetch-vm")]);
    assert!(
        fleet.state.queue().get(fleet.job("arm")).is_some(),
        "nobody takes it and it holds up nobody"
    );
}

#[test]
fn slots_are_never_exceeded() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 2));
    fleet.evaluate(1, 1, vec![derivation("a", &[]), derivation("b", &[]), derivation("c", &[])]);
    let first = fleet.assign(1, Kind::Build);
    fleet.assign(1, Kind::Build);
    assert_eq!(fleet.request(1, Kind::Build), [], "both slots are taken");
    fleet.built(1, first);
    fleet.assign(1, Kind::Build);
}

#[test]
fn the_best_score_wins_and_ties_go_to_the_smaller_id() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 4));
    fleet.score(1, |_| 0);
    fleet.evaluate(1, 1, vec![derivation("a", &[]), derivation("b", &[]), derivation("c", &[])]);
    let (b, c) = (fleet.job("b"), fleet.job("c"));
    fleet.score(1, |job| if job == b || job == c { 0 } else { 1 << 30 });
    let events = fleet.request(1, Kind::Build);
    let Some(Event::JobAssigned { job, breakdown, considered, runners_up, total, .. }) =
        events.first()
    else {
        panic!("{events:?}")
    };
    assert_eq!((*job, *considered), (b, 3));
    assert_eq!(breakdown.iter().map(|part| part.points.0).sum::<i64>(), total.0);
    assert_eq!(
        breakdown.iter().map(|part| part.rule).collect::<Vec<_>>(),
        [Rule::MissingPaths, Rule::MissingNarSize, Rule::WaitTime]
    );
    assert_eq!(runners_up.iter().map(|other| other.job).collect::<Vec<_>>(), [c, fleet.job("a")]);
    assert_eq!(runners_up[0].total, *total, "a tie");
}

#[test]
fn an_old_job_wins_over_nicer_ones_in_the_end() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 4));
    fleet.score(1, |_| 0);
    fleet.evaluate(1, 1, vec![derivation("old", &[])]);
    fleet.score(1, |_| 4 << 30);
    let events_ms = 701_000;
    fleet.now_ms += events_ms;
    fleet.evaluate(2, 1, vec![derivation("nice", &[])]);
    fleet.score(1, |_| 0);
    let (job, _) = assigned(&fleet.request(1, Kind::Build)).expect("assigned");
    assert_eq!(job, fleet.job("old"), "701 points of waiting beat 700 points of nearness");
}

#[test]
fn exactly_zero_points_are_enough() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.score(1, |_| 0);
    fleet.evaluate(1, 1, vec![derivation("a", &[])]);
    let events = fleet.request(1, Kind::Build);
    assert!(matches!(&events[0], Event::JobAssigned { total: MilliPoints(0), .. }), "{events:?}");
}

#[test]
fn a_report_under_an_old_id_is_dropped_and_changes_nothing() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.join(2, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[])]);
    let old = fleet.assign(1, Kind::Build);
    fleet.internal(Input::WorkerSilent { worker: worker(1) });
    let new = fleet.assign(2, Kind::Build);
    assert_ne!(old.1, new.1);
    fleet.hello(1, 1, vec![]);
    let events = fleet.built(1, old);
    let dropped = Event::ReportDropped {
        worker: worker(1),
        job: old.0,
        assignment: old.1,
        reason: DropReason::NotOpen,
    };
    assert_eq!(events, [dropped]);
    let events = fleet.fail(1, new, FailureKind::Permanent);
    let not_yours = Event::ReportDropped {
        worker: worker(1),
        job: new.0,
        assignment: new.1,
        reason: DropReason::NotYours,
    };
    assert_eq!(events, [not_yours]);
    assert!(fleet.built(2, new).iter().any(|event| matches!(event, Event::BuildSucceeded { .. })));
    let second = fleet.built(2, new);
    assert!(
        second.iter().all(|event| matches!(event, Event::ReportDropped { .. })),
        "the second end counts for nothing"
    );
}

#[test]
fn a_new_session_keeps_what_it_still_speaks_of() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 2));
    fleet.evaluate(1, 1, vec![derivation("a", &[]), derivation("b", &[])]);
    let (kept, gone) = (fleet.assign(1, Kind::Build), fleet.assign(1, Kind::Build));
    let events = fleet.hello(1, 7, vec![OpenAssignment { job: kept.0, assignment: kept.1 }]);
    let abandoned = Event::AssignmentAbandoned {
        job: gone.0,
        assignment: gone.1,
        reason: AbandonReason::WorkerLeft,
    };
    assert!(events.contains(&abandoned), "{events:?}");
    let complete = WorkerMessage::JobCompleted { job: kept.0, assignment: kept.1, elapsed_ms: 1 };
    let events = fleet.says_as(1, 7, complete);
    assert!(events.iter().any(|event| matches!(event, Event::BuildSucceeded { .. })), "{events:?}");
}

#[test]
fn a_session_that_does_not_count_is_told_once() {
    let mut fleet = Fleet::new();
    let events = fleet.request(1, Kind::Build);
    assert!(matches!(&events[..], [Event::WorkerRejected { code: 401, .. }]), "{events:?}");
    assert_eq!(fleet.owed(1), [Owed::Reject(session(1))]);
    assert_eq!(fleet.request(1, Kind::Build), []);
    fleet.hello(1, 1, Vec::new());
    assert_eq!(fleet.owed(1), [Owed::Welcome(session(1))]);
}

#[test]
fn a_draining_worker_gets_nothing_new() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    fleet.says(1, WorkerMessage::Draining);
    assert_eq!(fleet.request(1, Kind::Evaluate), []);
}

#[test]
fn later_capabilities_bring_offers_and_leave_running_jobs_alone() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 2));
    fleet.score(1, |_| 0);
    fleet.evaluate(1, 1, vec![needing("vm", "x86_64-linux", &["kvm"]), derivation("a", &[])]);
    fleet.score(1, |_| 0);
    let running = fleet.assign(1, Kind::Build);
    assert_eq!(running.0, fleet.job("a"));
    let events = fleet
        .says(1, WorkerMessage::WorkerCapabilities { capabilities: capabilities(&["kvm"], 2) });
    assert_eq!(offered_to(&events).len(), 1, "{events:?}");
    fleet.score(1, |_| 0);
    assert_eq!(fleet.assign(1, Kind::Build).0, fleet.job("vm"));
    assert!(fleet.state.assignments().contains_key(&running.1));
}

#[test]
fn a_worker_of_another_protocol_is_refused() {
    let mut fleet = Fleet::new();
    let hello = gradient_events::worker::Hello {
        greeting: 1,
        name: "future".into(),
        fetch: true,
        eval: true,
        build: true,
        protocol_oldest: 90,
        protocol_newest: 99,
        open_assignments: Vec::new(),
    };
    let events = fleet.says(1, WorkerMessage::Hello(hello));
    assert!(
        matches!(&events[..], [Event::WorkerRejected { code: 400, reason, .. }] if reason.contains("no shared protocol version")),
        "{events:?}"
    );
}

#[test]
fn commands_on_what_is_not_there_are_refused_with_a_reason() {
    let mut fleet = Fleet::new();
    let events = fleet.command(Command::CancelEvaluation { evaluation: evaluation(9) });
    assert!(
        matches!(&events[..], [Event::InputRefused { reason }] if reason.contains("there is no evaluation")),
        "{events:?}"
    );
    let events = fleet.command(Command::CancelBuild { build: gradient_domain::BuildId(5) });
    assert!(
        matches!(&events[..], [Event::InputRefused { reason }] if reason.contains("there is no build")),
        "{events:?}"
    );
}

#[test]
fn a_job_of_no_kind_of_step_is_refused() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let hand_out = fleet.assign(1, Kind::Evaluate);
    let events = fleet.update(1, hand_out, JobUpdate::Building);
    assert!(matches!(&events[..], [Event::InputRefused { .. }]), "{events:?}");
    assert!(matches!(hand_out.0, JobId::Evaluate(_)));
}
