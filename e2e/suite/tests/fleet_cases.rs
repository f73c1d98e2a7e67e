//! The same flakes as submitted evaluations: a fleet finds what `gradient eval` finds.

use std::path::Path;

use gradient_suite::eval_case::{BY_PATTERN, CASES, SYSTEM};
use gradient_suite::local::Local;
use gradient_suite::lock_case::{F02, F08};
use gradient_suite::model::Evaluation;
use gradient_suite::wait::{LIMIT, until};
use gradient_suite::{Cluster, check};
use serde_json::Value;

/// States in which an evaluation may still find something.
const FINDING: [&str; 5] =
    ["queued", "waiting", "fetching", "evaluating_flake", "evaluating_derivations"];

/// Submits a flake and waits until everything in it is found; what is left to build is cancelled.
#[track_caller]
fn evaluated(cluster: &Cluster, flake: &Path, patterns: &[&str]) -> Evaluation {
    let flake = format!("path:{}", flake.display());
    let mut arguments = vec!["submit", &flake, "--json"];
    for pattern in patterns {
        arguments.extend(["--include", pattern]);
    }
    let said = cluster.gradient(&arguments).ok();
    let id = said.json()["evaluation"].as_str().expect("an id").to_owned();
    let is_over = || {
        let log = cluster.log();
        let job = format!("eval:{id}");
        log.hand_outs().iter().any(|one| one.job == job && one.end.is_some())
    };
    until(&format!("{flake} {patterns:?} is evaluated"), LIMIT, || is_over().then_some(()));
    let found = until("the tables show it", LIMIT, || {
        let found = Evaluation::read(cluster, &id);
        (!FINDING.contains(&found.state())).then_some(found)
    });
    if !["completed", "failed", "aborted"].contains(&found.state()) {
        let _ = cluster.gradient(&["cancel", &id]);
    }
    found
}

/// `attr name` of everything found, as in the table.
fn jobs(evaluation: &Evaluation) -> Vec<String> {
    let line = |point: &Value| {
        let drv = point["drv_path"].as_str().expect("a path");
        let attr = point["attr"].as_str().expect("an attribute");
        format!("{attr} {}", gradient_suite::log::name_of(drv)).replace(SYSTEM, ".")
    };
    let mut jobs: Vec<String> = evaluation.entry_points.iter().map(line).collect();
    jobs.sort();
    jobs
}

/// Attribute and text of every error, sorted.
fn errors(evaluation: &Evaluation) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let errors = evaluation.messages.iter().filter(|message| message["level"] == "error");
    let mut errors: Vec<_> =
        errors.map(|error| (text(&error["attr"]), text(&error["text"]))).collect();
    errors.sort();
    errors
}

#[test]
fn a_fleet_finds_what_every_case_holds() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    for case in CASES.iter().chain(BY_PATTERN) {
        let flake = local.shared(case.flake);
        let evaluation = evaluated(&cluster, &flake, &case.patterns());
        let what = format!("{} {:?}", case.flake, case.arguments);
        assert_eq!(jobs(&evaluation), case.jobs, "{what}");
        let errors = errors(&evaluation);
        assert_eq!(errors.len(), case.errors.len(), "{what}: {errors:#?}");
        for ((attr, text), (end, words)) in errors.iter().zip(case.errors) {
            assert!(attr.ends_with(end), "{what}: {attr} is not {end}");
            assert!(text.contains(words), "{what}: {text} does not say {words}");
        }
    }
    check::assigned_before_reported(&cluster.log());
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn a_fleet_says_why_a_flake_is_none_and_tries_it_once() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    let shared = [
        ("R11-none", "lacks attribute 'outputs'"),
        ("R11-notfn", "expected a function but got an integer"),
        ("R11-throws", "outputs boom"),
        ("R11-missing-arg", "tools"),
        ("R11-syntax", "syntax error, unexpected ';'"),
        ("R11-computed", "must be an attribute set"),
    ];
    let shared = shared.map(|(flake, words)| (flake, local.shared(flake), words));
    let locks = F08.iter().map(|(flake, files, words)| (*flake, local.flake(flake, files), *words));
    for (flake, folder, words) in shared.into_iter().chain(locks) {
        let evaluation = evaluated(&cluster, &folder, &["*"]);
        assert_eq!(evaluation.state(), "failed", "{flake}");
        assert_eq!(evaluation.entry_points.len(), 0, "{flake}");
        let errors = errors(&evaluation);
        let texts = format!("{errors:?} {}", evaluation.summary);
        assert!(texts.contains(words), "{flake}: {texts}");
        let job = format!("eval:{}", evaluation.summary["id"].as_str().expect("an id"));
        let tries = cluster.log().hand_outs().iter().filter(|one| one.job == job).count();
        assert_eq!(tries, 1, "{flake} fails for good, and is not tried again");
    }
    cluster.finish();
}

#[test]
fn an_input_that_follows_another_is_that_one() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    let said = evaluated(&cluster, &local.flake("f02", F02), &["*"]);
    assert_eq!(jobs(&said), [".direct lib", ".viaMid app"]);
    assert_eq!(errors(&said), []);
    // Another one for the app would be a third.
    let builds = said.summary["builds"].as_object().expect("numbers by state");
    assert_eq!(builds.values().filter_map(Value::as_u64).sum::<u64>(), 2, "{builds:?}");
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn names_of_any_length_and_depth_come_through() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    let long = evaluated(&cluster, &local.shared("N05"), &["packages.x86_64-linux.*"]);
    let mut names: Vec<&str> = long
        .entry_points
        .iter()
        .map(|point| point["attr_path"][2].as_str().expect("a name"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["Foo", "foo", &"x".repeat(5_000)]);

    let leaf = format!("legacyPackages.x86_64-linux.deep{}.leaf", ".d".repeat(300));
    let deep = evaluated(&cluster, &local.shared("R10"), &["legacyPackages.x86_64-linux.*", &leaf]);
    let depths: Vec<usize> = deep
        .entry_points
        .iter()
        .map(|point| point["attr_path"].as_array().expect("a list").len())
        .collect();
    assert_eq!((depths.len(), depths.iter().max()), (2, Some(&304)));

    let odd = evaluated(&cluster, &local.shared("N03"), &["packages.x86_64-linux.*"]);
    assert_eq!(odd.entry_points.len(), 13);
    for point in &odd.entry_points {
        // The printed form is a pattern for the same attribute.
        let attr = point["attr"].as_str().expect("text");
        let again = evaluated(&cluster, &local.shared("N03"), &[attr]);
        assert_eq!(again.entry_points.len(), 1, "{attr}");
        assert_eq!(again.entry_points[0]["attr_path"], point["attr_path"]);
        assert_eq!(again.entry_points[0]["drv_path"], point["drv_path"]);
    }
    cluster.check_everything();
    cluster.finish();
}
