//! The same flakes as submitted evaluations: a fleet finds what `gradient eval` finds.

use std::path::Path;

use gradient_suite::eval_case::{BY_PATTERN, CASES, NO_FLAKES, ODD_NAMES, SYSTEM};
use gradient_suite::local::Local;
use gradient_suite::lock_case::{F02, F08};
use gradient_suite::model::{self, Evaluation, Outcome};
use gradient_suite::wait::{LIMIT, until};
use gradient_suite::{Cluster, Flake, Said, check, http};
use serde_json::{Value, json};

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
    let shared = NO_FLAKES.map(|(flake, words)| (flake, local.shared(flake), words));
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

/// Submits all of a flake of the tests and watches it to its end.
#[track_caller]
fn watched(cluster: &Cluster, flake: &Path, code: i32) -> (Said, Evaluation) {
    let flake = format!("path:{}", flake.display());
    let said = cluster.gradient(&["submit", &flake, "--include", "*", "--watch"]).with_code(code);
    (said, Evaluation::newest(cluster))
}

/// Attribute and text of the messages of a level, sorted.
fn told(evaluation: &Evaluation, level: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().replace(SYSTEM, ".");
    let mut told: Vec<_> = evaluation
        .messages
        .iter()
        .filter(|message| message["level"] == level)
        .map(|message| (text(&message["attr"]), text(&message["text"])))
        .collect();
    told.sort();
    told
}

#[test]
fn what_a_fleet_finds_is_built_and_what_is_wrong_is_red() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    // N03: names are whole on all ways, and break no line of what is printed.
    let (said, odd) = watched(&cluster, &local.shared("N03"), 0);
    let mut names: Vec<(&str, &str)> = odd
        .entry_points
        .iter()
        .map(|point| {
            let drv = gradient_suite::log::name_of(point["drv_path"].as_str().expect("a path"));
            (point["attr_path"][2].as_str().expect("a name"), drv)
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, ODD_NAMES);
    assert!(odd.entry_points.iter().all(|point| point["state"] == "completed"));
    let lines = said.stdout.lines().filter(|line| line.starts_with("  packages.x86_64-linux."));
    assert_eq!(lines.count(), ODD_NAMES.len(), "{}", said.stdout);

    // X06: all lines of a warning, with its attribute, once.
    let (_, warned) = watched(&cluster, &local.shared("X06"), 0);
    let warning = |attr: &str, text: &str| (attr.to_owned(), format!("evaluation warning: {text}"));
    let expected =
        [warning(".both", "old option"), warning(".warned", "first line\nsecond line\nthird line")];
    assert_eq!(told(&warned, "warning"), expected);
    assert_eq!((warned.state(), &warned.summary["warnings"]), ("completed", &json!(2)));

    // R06: a check that cannot be built is a failed check.
    let (_, checks) = watched(&cluster, &local.shared("R06"), 1);
    assert_eq!((checks.state(), &checks.summary["errors"]), ("failed", &json!(8)));
    assert_eq!(checks.entry_point("good")["state"], "completed");

    // D05: a wrong hash is tried once; one that is none is an error of its attribute.
    let (_, fixed) = watched(&cluster, &local.shared("D05"), 1);
    let wanted = [
        ("badHash", Outcome::EvaluationError),
        ("emptyHash", Outcome::FailedPermanent),
        ("right", Outcome::Completed),
        ("wrong", Outcome::FailedPermanent),
    ];
    assert_eq!(fixed.outcomes(), model::packages(&wanted));
    for (attr, drv) in [("wrong", "wrong"), ("emptyHash", "empty-hash")] {
        let message = fixed.entry_point(attr)["message"].as_str().expect("a message");
        for words in ["hash mismatch", "specified: sha256-", "got:    sha256-"] {
            assert!(message.contains(words), "{attr}: {message}");
        }
        assert_eq!(cluster.log().hand_outs_of(drv).len(), 1, "{attr} is tried once");
    }
    assert_eq!(told(&fixed, "warning").len(), 1, "{:?}", fixed.messages);

    // D09: what no derivation makes is where it is needed.
    let (_, plain) = watched(&cluster, &local.shared("D09"), 0);
    assert_eq!(plain.entry_point("app")["state"], "completed");

    // D10: whatever a name is made of, its files are found by it.
    let (_, awkward) = watched(&cluster, &local.shared("D10"), 1);
    let base = cluster.address("http_url");
    for attr in ["punctuation", "dotted", "long", "env", "dotStart"] {
        let path = awkward.output(attr, "out");
        let hash = path.trim_start_matches("/nix/store/").split('-').next().expect("a hash");
        let info = http::get(&base, &format!("cache/{hash}.narinfo"), None);
        let url = info.body.lines().find_map(|line| line.strip_prefix("URL: ")).expect("a URL");
        assert_eq!(http::get(&base, &format!("cache/{url}"), None).status, 200, "{attr}: {url}");
        let build = awkward.entry_point(attr)["build"].as_str().expect("a build");
        let _ = cluster.gradient(&["logs", build]).ok();
    }
    cluster.check_everything();
    cluster.finish();
}

/// A system, and features.
type Unmet<'a> = (&'a str, &'a [&'a str]);

#[test]
fn what_nobody_can_build_waits_with_a_reason_and_blocks_nobody() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    let fetched = local.shared("D04");
    let text = std::fs::read_to_string(fetched.join("flake.nix")).expect("read");
    let payload = local.flake("payload", &[("payload.txt", "payload\n")]).join("payload.txt");
    let text = text.replace("file:///nowhere", &http::serve(payload));
    let _ = local.flake("D04", &[("flake.nix", &text)]);
    // System and features that nobody has, and what is built all the same.
    let rows: [(&str, &[Unmet], usize); 3] = [
        ("R07", &[("aarch64-linux", &[]), ("riscv64-none", &[])], 3),
        ("D03", &[("x86_64-linux", &["KVM"]), ("x86_64-linux", &["quantum"])], 7),
        ("D04", &[("aarch64-linux", &[])], 1),
    ];
    for (name, unmet, built) in rows {
        let reference = format!("path:{}", local.path().join("flakes").join(name).display());
        if name != "D04" {
            let _ = local.shared(name);
        }
        let said = cluster.gradient(&["submit", &reference, "--include", "*", "--json"]).ok();
        let id = said.json()["evaluation"].as_str().expect("an id").to_owned();
        let found = until(&format!("{name} waits"), LIMIT, || {
            let found = Evaluation::read(&cluster, &id);
            let points = found.entry_points.iter();
            let completed = points.filter(|point| point["state"] == "completed").count();
            let is_built = completed == built;
            (is_built && found.state() == "waiting").then_some(found)
        });
        let mut reasons: Vec<Value> = found.summary["waiting"]["unmet"]
            .as_array()
            .expect("reasons")
            .iter()
            .map(|reason| reason["requirement"].clone())
            .collect();
        reasons.sort_by_key(Value::to_string);
        let mut expected: Vec<Value> = unmet
            .iter()
            .map(|(system, features)| json!({ "system": system, "features": features }))
            .collect();
        expected.sort_by_key(Value::to_string);
        assert_eq!(reasons, expected, "{name}");
        for worker in cluster.gradient(&["workers", "--json"]).ok().json().as_array().expect("list")
        {
            assert_eq!(worker["running"], json!([]), "{name} holds no slot");
        }
        let _ = cluster.gradient(&["cancel", &id]).ok();
    }
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn builds_start_while_the_evaluation_goes_on() {
    let cluster = Cluster::start_with(1);
    let definitions = "fib = n: if n < 2 then n else fib (n - 1) + fib (n - 2);";
    let body = r#"packages.x86_64-linux = {
        a-good = mk "a-good" "echo a > $out";
        b-throw = throw "not today";
        c-endless = mk "c${toString (fib 60)}" "echo c > $out";
      };"#;
    let flake = Flake::of(definitions, body);
    let id = cluster.submit_only(&flake.reference());
    let log = cluster.until_log("a build succeeded", |log| log.succeeded().contains("a-good"));
    let job = format!("eval:{id}");
    let is_open = |one: &gradient_suite::log::HandOut| one.job == job && one.end.is_none();
    assert!(log.hand_outs().iter().any(is_open), "the evaluation is over");
    until("its error is told", LIMIT, || {
        (told(&Evaluation::read(&cluster, &id), "error").len() == 1).then_some(())
    });
    let _ = cluster.gradient(&["cancel", &id]).ok();
    let _ = cluster.gradient(&["watch", &id]).with_code(1);
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn every_derivation_of_a_graph_is_known_once() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    let _ = evaluated(&cluster, &local.shared("D11"), &["*"]);
    let mut names: Vec<String> = cluster.log().builds().into_values().collect();
    assert_eq!(names.len(), 706, "4 of the diamond, 401 of the chain, 301 of the fan-in");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 706, "one is known twice");
    cluster.check_everything();
    cluster.finish();
}
