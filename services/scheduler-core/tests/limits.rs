//! What one entry, one page and one worker may hold, and what comes back how often.

mod common;

use common::*;
use gradient_domain::{JobId, Kind};
use gradient_events::event::{AbandonReason, RequeueReason, Verdict};
use gradient_events::score::CandidateScore;
use gradient_events::worker::{EvalMessage, EvalResult, JobUpdate};
use gradient_events::{
    Command, EntryBatch, Event, FailureKind, Input, MESSAGE_BYTES_MAX, PAGE_BYTES_MAX,
    ServerMessage, Wire, WorkerMessage,
};

/// Bytes of the message that the newest entry would be.
fn newest_bytes(fleet: &Fleet) -> usize {
    let entries = vec![fleet.log.last().expect("an entry").clone()];
    EntryBatch { entries }.to_body().len()
}

/// Evaluation 1 with this many independent builds, found in batches of 1,000.
fn many(fleet: &mut Fleet, number: u8, count: usize) {
    fleet.submit(number);
    let hand_out = fleet.assign(1, Kind::Evaluate);
    let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
    for names in names.chunks(1_000) {
        fleet.found(1, hand_out, names.iter().map(|name| derivation(name, &[])).collect());
    }
    fleet.complete(1, hand_out);
}

#[test]
fn the_list_comes_in_pages_and_the_last_is_final() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    many(&mut fleet, 1, 2_500);
    fleet.join(2, capabilities(&[], 1));
    let mut pages = Vec::new();
    while let Some(page) = fleet.page(2) {
        let ServerMessage::JobListChunk { candidates, up_to, is_final } = page else {
            panic!("the list is pages of the list")
        };
        pages.push((candidates.len(), is_final));
        let scores = candidates.iter().map(|candidate| CandidateScore {
            job: candidate.job_id,
            missing_count: 0,
            missing_nar_size: 0,
            outputs_present: false,
        });
        let scores = scores.collect();
        fleet.says(2, WorkerMessage::RequestJobChunk { scores, up_to, is_final: true });
    }
    assert!(pages.len() >= 3, "{pages:?}");
    assert_eq!(pages.iter().map(|(count, _)| count).sum::<usize>(), 2_500);
    let finals: Vec<bool> = pages.iter().map(|(_, is_final)| *is_final).collect();
    assert_eq!(finals.iter().filter(|is_final| **is_final).count(), 1, "{pages:?}");
    assert_eq!(finals.last(), Some(&true), "{pages:?}");
}

#[test]
fn a_page_of_long_names_fits_a_message() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let hand_out = fleet.assign(1, Kind::Evaluate);
    let long = "x".repeat(190);
    for batch in 0..10 {
        let derivations = (0..20).map(|n| {
            let mut found = derivation(&format!("{batch}-{n}-{long}"), &[]);
            found.outputs = (0..40)
                .map(|output| gradient_events::job::Output {
                    name: format!("o{output}"),
                    path: Some(drv(&format!("{batch}-{n}-{output}-{long}"))),
                })
                .collect();
            found
        });
        fleet.found(1, hand_out, derivations.collect());
    }
    fleet.join(2, capabilities(&[], 1));
    let page = fleet.page(2).expect("a page");
    let bytes = page.to_body().len();
    assert!(bytes <= PAGE_BYTES_MAX + 64 * 1024, "{bytes} bytes");
}

#[test]
fn a_worker_that_scored_everything_hears_of_what_is_new() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1_000));
    fleet.score(1, |_| 0);
    many(&mut fleet, 1, 6_000);
    fleet.score(1, |_| 0);
    let mut open = Vec::new();
    while let Some(hand_out) = assigned(&fleet.request(1, Kind::Build)) {
        open.push(hand_out);
        if open.len() == 1_000 {
            for hand_out in open.drain(..) {
                fleet.complete(1, hand_out);
            }
            fleet.score(1, |_| 0);
        }
    }
    for hand_out in open {
        fleet.complete(1, hand_out);
    }
    assert!(fleet.state.queue().is_empty());
    fleet.submit(2);
    assert!(fleet.page(1).is_some(), "the evaluation is offered");
}

#[test]
fn thawing_goes_on_where_one_entry_ends() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    many(&mut fleet, 1, 20_000);
    fleet.command(Command::CancelEvaluation { evaluation: evaluation(1) });
    fleet.later(5_000);
    assert!(
        fleet.state.queue().is_empty(),
        "what is over the limit is let go of with the next tick"
    );
    many(&mut fleet, 2, 20_000);
    fleet.later(5_000);
    fleet.later(5_000);
    assert_eq!(fleet.state.queue().len(), 20_000, "everything starts over, nothing failed");
    assert_eq!(fleet.internal(Input::Sweep), []);
}

#[test]
fn the_silence_of_a_large_worker_fits_a_message() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1_024));
    many(&mut fleet, 1, 1_100);
    while assigned(&fleet.request(1, Kind::Build)).is_some() {}
    fleet.internal(Input::WorkerSilent { worker: worker(1) });
    let bytes = newest_bytes(&fleet);
    assert!(bytes < MESSAGE_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn many_waiting_evaluations_are_parked_bit_by_bit() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    for number in 0..250 {
        fleet.submit(number);
    }
    let events = fleet.internal(Input::WorkerSilent { worker: worker(1) });
    let parked = |events: &[Event]| {
        events.iter().filter(|event| matches!(event, Event::EvaluationParked { .. })).count()
    };
    assert_eq!(parked(&events), 250);
    assert_eq!(
        parked(&fleet.hello(2, 2, Vec::new())),
        0,
        "a worker more or less is no news to them"
    );
}

#[test]
fn declines_are_no_lost_hand_outs() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    for _ in 0..20 {
        let (job, assignment) = assigned(&fleet.request(1, Kind::Evaluate)).expect("assigned");
        fleet.answer(1, job, assignment, false);
    }
    fleet.assign(1, Kind::Evaluate);
    let events = fleet.internal(Input::WorkerSilent { worker: worker(1) });
    let finished = events.iter().any(|event| matches!(event, Event::EvaluationFinished { .. }));
    assert!(!finished, "{events:?}");
}

#[test]
fn one_evaluation_at_a_time_is_on_its_way_to_a_worker() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    fleet.submit(2);
    let (job, assignment) = assigned(&fleet.request(1, Kind::Evaluate)).expect("assigned");
    assert_eq!(assigned(&fleet.request(1, Kind::Evaluate)), None);
    fleet.answer(1, job, assignment, true);
    assert!(assigned(&fleet.request(1, Kind::Evaluate)).is_some());
}

#[test]
fn an_evaluation_that_is_canceled_by_its_workers_for_ever_is_given_up() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    for hand_out in 1..=10 {
        let open = fleet.assign(1, Kind::Evaluate);
        let events = fleet.fail(1, open, FailureKind::Canceled);
        let failed = events.iter().any(|event| {
            matches!(event, Event::EvaluationFinished { verdict: Verdict::Failed, .. })
        });
        assert_eq!(failed, hand_out == 10, "hand-out {hand_out}");
    }
}

#[test]
fn a_users_cancel_outlives_the_worker_and_a_decline() {
    for decline in [false, true] {
        let mut fleet = Fleet::new();
        fleet.join(1, capabilities(&[], 1));
        fleet.evaluate(1, 1, vec![derivation("a", &[])]);
        let (job, assignment) = assigned(&fleet.request(1, Kind::Build)).expect("assigned");
        fleet.command(Command::CancelBuild { build: fleet.build("a") });
        let events = if decline {
            fleet.answer(1, job, assignment, false)
        } else {
            fleet.internal(Input::WorkerSilent { worker: worker(1) })
        };
        assert!(
            events.iter().any(|event| matches!(event, Event::BuildAborted { .. })),
            "{events:?}"
        );
        assert!(fleet.state.queue().get(job).is_none());
    }
}

#[test]
fn an_unconfirmed_stop_does_not_fail_what_is_wanted_again() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.evaluate(1, 1, vec![derivation("a", &[])]);
    let (job, assignment) = fleet.assign(1, Kind::Build);
    fleet.command(Command::CancelEvaluation { evaluation: evaluation(1) });
    fleet.evaluate(2, 1, vec![derivation("a", &[])]);
    let events = fleet.later(300_000);
    let reason = AbandonReason::AbortUnconfirmed;
    assert_eq!(events[0], Event::AssignmentAbandoned { job, assignment, reason });
    let back = |event: &Event| {
        matches!(event, Event::JobRequeued { reason: RequeueReason::Abandoned, offer: Some(_), .. })
    };
    assert!(events.iter().any(back), "{events:?}");
}

#[test]
fn errors_of_a_run_that_came_to_nothing_do_not_count() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let open = fleet.assign(1, Kind::Evaluate);
    fleet.erred(1, open, "a passing trouble");
    fleet.internal(Input::WorkerSilent { worker: worker(1) });
    fleet.join(1, capabilities(&[], 1));
    let open = fleet.assign(1, Kind::Evaluate);
    let events = fleet.complete(1, open);
    let verdict = events.iter().find_map(|event| match event {
        Event::EvaluationFinished { verdict, .. } => Some(*verdict),
        _ => None,
    });
    assert_eq!(verdict, Some(Verdict::Completed));
}

#[test]
fn a_full_batch_fits_a_message() {
    let mut fleet = Fleet::new();
    fleet.join(1, capabilities(&[], 1));
    fleet.submit(1);
    let open = fleet.assign(1, Kind::Evaluate);
    let errors =
        (0..15).map(|n| EvalMessage { attr: None, text: format!("{n}").repeat(16 * 1024 / 2) });
    let batch = EvalResult { errors: errors.collect(), ..EvalResult::default() };
    fleet.update(1, open, JobUpdate::EvalResult(batch));
    let derivations = (0..1_000).map(|n| derivation(&format!("n{n}"), &[])).collect();
    fleet.found(1, open, derivations);
    let bytes = newest_bytes(&fleet);
    assert!(bytes < MESSAGE_BYTES_MAX, "{bytes} bytes");
    assert!(matches!(open.0, JobId::Evaluate(_)));
}
