//! The checks themselves: a log that is wrong in one way fails the one that looks for it.

use std::panic::catch_unwind;

use gradient_suite::check::{
    assigned_before_reported, built_exactly_once, built_once_or_visibly_interrupted,
};
use gradient_suite::log::Log;

const FOUND: &str = r#"{"sequence":1,"index":0,"input":{"input":"Worker","worker":"w","message":{"type":"JobUpdate","assignment":"a0","update":{"step":"EvalResult","derivations":[{"drv_path":"/nix/store/abc-one.drv"}]}}},"events":[{"event":"DerivationsRecorded","builds":["01"]}]}"#;
const REPORT: &str = r#"{"sequence":9,"index":0,"input":{"input":"Worker","worker":"w","message":{"type":"JobUpdate","assignment":"a1","update":{"step":"BuildOutput","outputs":[],"substituted":false}}},"events":[{"event":"UpdateRecorded"}]}"#;

/// An entry with decisions only.
fn decided(events: &str) -> String {
    format!(r#"{{"sequence":2,"index":0,"input":{{"input":"Tick"}},"events":[{events}]}}"#)
}

fn assigned(job: &str, assignment: &str) -> String {
    decided(&format!(
        r#"{{"event":"JobAssigned","job":"{job}","assignment":"{assignment}","worker":"w"}}"#
    ))
}

fn finished(assignment: &str) -> String {
    decided(&format!(r#"{{"event":"JobFinished","assignment":"{assignment}"}}"#))
}

fn succeeded() -> String {
    decided(r#"{"event":"BuildSucceeded","build":"01","substituted":false}"#)
}

fn abandoned(assignment: &str) -> String {
    decided(&format!(
        r#"{{"event":"AssignmentAbandoned","assignment":"{assignment}","reason":"worker_left"}}"#
    ))
}

fn requeued() -> String {
    decided(r#"{"event":"JobRequeued","job":"build:01","reason":"abandoned"}"#)
}

fn log(lines: &[String]) -> Log {
    Log::parse(&lines.join("\n"))
}

/// A log in which everything is right: one evaluation, one build.
fn good() -> Vec<String> {
    let evaluated = [assigned("eval:1", "a0"), FOUND.to_owned(), finished("a0")];
    let built = [assigned("build:01", "a1"), REPORT.to_owned(), succeeded(), finished("a1")];
    evaluated.into_iter().chain(built).collect()
}

/// Whether a check fails.
fn fails(check: fn(&Log), lines: &[String]) -> bool {
    let log = log(lines);
    catch_unwind(|| check(&log)).is_err()
}

fn once(log: &Log) {
    built_exactly_once(log, &["one".to_owned()]);
}

fn interrupted(log: &Log) {
    built_once_or_visibly_interrupted(log, &["one".to_owned()]);
}

#[test]
fn a_good_log_passes() {
    let log = log(&good());
    assigned_before_reported(&log);
    once(&log);
    interrupted(&log);
    assert_eq!(log.succeeded(), ["one".to_owned()].into());
}

#[test]
fn a_report_before_its_claim_fails() {
    let mut lines = good();
    lines.swap(3, 4);
    assert!(fails(assigned_before_reported, &lines));
    let mut lines = good();
    lines.push(assigned("build:01", "a1"));
    assert!(fails(assigned_before_reported, &lines), "claimed twice");
    assert!(fails(assigned_before_reported, &[]), "an empty log shows nothing");
}

#[test]
fn a_second_success_fails() {
    let mut lines = good();
    lines.push(succeeded());
    assert!(fails(once, &lines) && fails(interrupted, &lines));
}

#[test]
fn an_interruption_has_to_be_visible() {
    let first = [assigned("build:01", "a7"), abandoned("a7"), requeued()];
    let with = |first: &[String]| -> Vec<String> {
        let mut lines = good();
        lines.splice(3..3, first.iter().cloned());
        lines
    };
    interrupted(&log(&with(&first)));
    assert!(fails(once, &with(&first)), "it was handed out twice");
    assert!(fails(interrupted, &with(&first[..1])), "the first hand-out is open");
    assert!(fails(interrupted, &with(&first[..2])), "nothing put it back");
    assert!(fails(interrupted, &with(&first[2..])), "put back, and not handed out for it");
}

#[test]
fn what_is_missing_or_found_by_the_sweep_fails() {
    let without_success: Vec<String> =
        good().into_iter().filter(|line| *line != succeeded()).collect();
    assert!(fails(once, &without_success));
    let open = &good()[..6];
    assert!(fails(interrupted, open), "the hand-out did not end");
    let mut lines = good();
    lines.push(decided(r#"{"event":"SweepFound","what":"a slot"}"#));
    assert!(fails(interrupted, &lines));
    let substituted: Vec<String> =
        good().into_iter().map(|line| line.replace(r#"ed":false"#, r#"ed":true"#)).collect();
    assert!(fails(once, &substituted), "it was not built");
}
