//! Cancelling while something runs.

use gradient_suite::log::Event;
use gradient_suite::model::{self, Evaluation, Outcome};
use gradient_suite::wait::{LIMIT, until_true};
use gradient_suite::{Cluster, Flake, process};

/// Two attributes: `long` builds for ten minutes, `after` needs it.
fn long_builds() -> Flake {
    let definitions = r#"
      long = mk "long" "echo long: begun; pause 600; echo done > $out";"#;
    let body = r#"packages.x86_64-linux = {
        inherit long;
        after = mk "after" "echo after ${long} > $out";
      };"#;
    Flake::of(definitions, body)
}

/// The process of the builder of `long`.
fn builder(cluster: &Cluster) -> Option<i32> {
    (1..=2).find_map(|worker| cluster.builder(worker, "long: begun")).map(|found| found.pid)
}

#[test]
fn a_cancelled_evaluation_stops_its_builders() {
    let cluster = Cluster::start();
    let flake = long_builds();
    let watching = cluster.submit(&flake.reference());
    until_true("the builder runs", LIMIT, || builder(&cluster).is_some());
    let pid = builder(&cluster).expect("it runs");
    let id = Evaluation::newest(&cluster).summary["id"].as_str().expect("an id").to_owned();
    let _ = cluster.gradient(&["cancel", &id]).ok();

    let said = watching.end().with_code(1);
    assert!(said.stderr.contains(&format!("error: evaluation {id} aborted")), "{}", said.stderr);
    until_true("the builder is gone", LIMIT, || !process::is_alive(pid));
    assert_eq!(builder(&cluster), None, "another one took its place");
    let log = cluster.until_log("the hand-out is over", |log| {
        log.hand_outs().iter().all(|one| one.end.is_some())
    });
    assert!(log.events().any(
        |event| matches!(event, Event::EvaluationAborted { evaluation } if *evaluation == id)
    ));
    let evaluation = Evaluation::read(&cluster, &id);
    assert_eq!(evaluation.state(), "aborted");
    let wanted = [("long", Outcome::Aborted), ("after", Outcome::Skipped)];
    assert_eq!(evaluation.outcomes(), model::packages(&wanted));
    let _ = cluster.gradient(&["watch", &id]).with_code(1);
    let workers = cluster.gradient(&["workers", "--json"]).ok().json();
    for worker in workers.as_array().expect("a list") {
        assert_eq!(worker["running"], serde_json::json!([]), "its slot is free again");
    }
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn a_cancelled_evaluation_ends_its_busy_evaluator() {
    let cluster = Cluster::start();
    let definitions = "fib = n: if n < 2 then n else fib (n - 1) + fib (n - 2);";
    let body = r#"packages.x86_64-linux.endless = mk "n${toString (fib 60)}" "echo > $out";"#;
    let flake = Flake::of(definitions, body);
    let id = cluster.submit_only(&flake.reference());
    let evaluators = || {
        let all = process::descendants(cluster.pid());
        all.into_iter().filter(|one| one.command_line.contains("--eval-subprocess")).count()
    };
    until_true("an evaluator works", LIMIT, || evaluators() > 0);
    let _ = cluster.gradient(&["cancel", &id]).ok();
    let _ = cluster.gradient(&["watch", &id]).with_code(1);
    // It would go on for hours and hears no signal but the last one.
    until_true("no evaluator is left", LIMIT, || evaluators() == 0);
    assert_eq!(Evaluation::read(&cluster, &id).state(), "aborted");
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn what_another_evaluation_wants_goes_on() {
    let cluster = Cluster::start();
    let definitions = r#"
      shared = mk "shared" "echo shared: begun; pause 5; echo done > $out";"#;
    let flake = |own: &str| {
        let body = format!(
            r#"packages.x86_64-linux = {{ inherit shared; {own} = mk "{own}" "echo ${{shared}} > $out"; }};"#
        );
        Flake::of(definitions, &body)
    };
    let (one, two) = (flake("one"), flake("two"));
    let cancelled = cluster.submit_only(&one.reference());
    let stays = cluster.submit(&two.reference());
    cluster.until_log("both evaluations know what they want", |log| {
        let names: Vec<String> = log.builds().into_values().collect();
        names.contains(&"one".to_owned()) && names.contains(&"two".to_owned())
    });
    let _ = cluster.gradient(&["cancel", &cancelled]).ok();
    let _ = cluster.gradient(&["watch", &cancelled]).with_code(1);
    let _ = stays.end().ok();
    let log = cluster.log();
    assert_eq!(log.hand_outs_of("shared").len(), 1, "it ran through");
    assert_eq!(log.hand_outs_of("one"), [], "nobody wants it any more");
    assert_eq!(log.succeeded(), ["shared", "two"].map(str::to_owned).into());
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn a_cancelled_build_fails_what_needs_it() {
    let cluster = Cluster::start();
    let flake = long_builds();
    let watching = cluster.submit(&flake.reference());
    until_true("the builder runs", LIMIT, || builder(&cluster).is_some());
    let pid = builder(&cluster).expect("it runs");
    let build = cluster.log().build("long");
    let _ = cluster.gradient(&["cancel", &build]).ok();
    let _ = watching.end().with_code(1);
    until_true("the builder is gone", LIMIT, || !process::is_alive(pid));
    let evaluation = Evaluation::newest(&cluster);
    let wanted = [("long", Outcome::Aborted), ("after", Outcome::DependencyFailed("long".into()))];
    assert_eq!(evaluation.outcomes(), model::packages(&wanted));
    assert_eq!(evaluation.state(), "failed");
    cluster.check_everything();
    cluster.finish();
}
