//! Case R08 through a fleet: 50,000 names, of which one has a value. It takes about 40 s on two cores,
//! half of which is the evaluation.

use std::collections::BTreeSet;
use std::time::Duration;

use gradient_suite::cluster::Part;
use gradient_suite::local::Local;
use gradient_suite::wait::{LIMIT, until};
use gradient_suite::{Cluster, check, process};
use serde_json::Value;

/// Names of the flake without a value.
const FAILING: usize = 49_999;
/// Nothing else here evaluates so much.
const EVALUATION_LIMIT: Duration = LIMIT.saturating_mul(6);
/// Longest entry of the log as JSON, in bytes: some dozens of errors stand in one.
const ENTRY_BYTES_MAX: usize = 64 << 10;
/// Most memory that a process of the cluster may ever have had, in KiB.
const PEAK_KIB_MAX: u64 = 512 << 10;
/// The same for an evaluator, which holds 50,000 thunks.
const EVALUATOR_KIB_MAX: u64 = 1 << 20;
/// Longest page of the api, in bytes.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Longest summary for people, in bytes.
const SUMMARY_BYTES_MAX: usize = 1 << 20;

/// Everything below a path of the api, page by page.
fn all(cluster: &Cluster, path: &str) -> Vec<Value> {
    let (mut all, mut next) = (Vec::new(), Value::Null);
    loop {
        let after = next.as_str().map(|next| format!("&after={next}")).unwrap_or_default();
        let mut page = cluster.api(&format!("{path}?limit=500{after}"));
        assert!(page.to_string().len() < PAGE_BYTES_MAX, "one over-long page");
        let items = page["items"].as_array_mut().expect("a list");
        assert!(items.len() <= 500, "{} on one page", items.len());
        all.append(items);
        let before = std::mem::replace(&mut next, page["next"].take());
        if next.is_null() {
            return all;
        }
        assert_ne!(next, before, "the same page again");
    }
}

/// Most memory that a process has had so far, in KiB; 0 if it is over.
fn peak_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or(0, |peak| peak.trim().trim_end_matches(" kB").parse().expect("a number"))
}

/// Submits the flake and waits for the end; the evaluation, and the peak of its evaluators in KiB.
fn evaluated(cluster: &Cluster, flake: &str) -> (Value, u64) {
    let said = cluster.gradient(&["submit", flake, "--json", "--include", "*"]).ok();
    let id = said.json()["evaluation"].as_str().expect("an id").to_owned();
    let worker = cluster.part(Part::Worker(1)).expect("it runs").pid;
    let mut peak = 0;
    let over = until("the end of the evaluation", EVALUATION_LIMIT, || {
        let evaluators = process::descendants(worker).into_iter();
        let evaluators = evaluators.filter(|one| one.command_line.contains("--eval-subprocess"));
        peak = evaluators.map(|one| peak_kib(one.pid)).fold(peak, u64::max);
        let over = cluster.api(&format!("evaluations/{id}"));
        (!over["finished_at"].is_null()).then_some(over)
    });
    (over, peak)
}

/// Asserts that an evaluation has one job and one error for each other name.
fn check_whole(cluster: &Cluster, evaluation: &Value) {
    assert_eq!(evaluation["state"], "failed", "{evaluation:#}");
    assert_eq!(evaluation["errors"], FAILING, "{evaluation:#}");
    assert_eq!(evaluation["hand_outs"], 1, "{evaluation:#}");
    let id = evaluation["id"].as_str().expect("an id");
    let jobs = all(cluster, &format!("evaluations/{id}/entry-points"));
    let drv = jobs[0]["drv_path"].as_str().expect("a path");
    assert_eq!((jobs.len(), gradient_suite::log::name_of(drv)), (1, "the-good-one"));
    let errors = all(cluster, &format!("evaluations/{id}/messages"));
    assert_eq!(errors.len(), FAILING);
    let mut named = BTreeSet::new();
    for error in errors {
        let (attr, text) = (error["attr"].as_str(), error["text"].as_str().expect("a text"));
        let name = attr.and_then(|attr| attr.strip_prefix("packages.x86_64-linux."));
        let name = name.expect("an error of an attribute");
        assert!(error["level"] == "error" && text.contains(&format!("forced {name}")), "{error}");
        assert!(text.len() < 400, "one over-long text: {text}");
        assert!(named.insert(name.to_owned()), "{name} is told twice");
    }
}

#[test]
fn fifty_thousand_errors_are_recorded_one_by_one_in_bounded_memory() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    let flake = format!("path:{}", local.shared("R08").display());
    let (evaluation, peak) = evaluated(&cluster, &flake);
    check_whole(&cluster, &evaluation);
    assert!((1..EVALUATOR_KIB_MAX).contains(&peak), "an evaluator had {peak} KiB");

    // The end of a command stays readable, too.
    let id = evaluation["id"].as_str().expect("an id");
    let watched = cluster.gradient(&["watch", id]).with_code(1);
    assert!(watched.stdout.len() < SUMMARY_BYTES_MAX, "{} bytes", watched.stdout.len());

    // The same flake again is answered by what was kept of it.
    let (again, _) = evaluated(&cluster, &flake);
    check_whole(&cluster, &again);

    let entries = cluster.gradient(&["events", "tail", "--json", "--no-follow"]).ok().stdout;
    let longest = entries.lines().map(str::len).max().expect("entries");
    assert!(longest < ENTRY_BYTES_MAX, "one over-long entry of {longest} bytes");
    for part in [Part::Server, Part::Worker(1), Part::Nats, Part::Postgres] {
        let peak = peak_kib(cluster.part(part).expect("it runs").pid);
        assert!((1..PEAK_KIB_MAX).contains(&peak), "{part:?} had {peak} KiB");
    }
    check::assigned_before_reported(&cluster.log());
    cluster.check_everything();
    cluster.finish();
}
