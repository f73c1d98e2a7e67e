//! The end of `gradient up`, however it comes, and the start after it.

use gradient_suite::check;
use gradient_suite::log::Log;
use gradient_suite::model::{self, Evaluation};
use gradient_suite::run::Running;
use gradient_suite::wait::{LIMIT, until_true};
use gradient_suite::{Cluster, Flake, process, programs};
use nix::sys::signal::Signal;

/// An attribute that is evaluated for a while and then built.
fn slow_evaluation() -> Flake {
    let definitions = "fib = n: if n < 2 then n else fib (n - 1) + fib (n - 2);";
    let body = r#"packages.x86_64-linux.late = mk "late" "echo ${toString (fib 34)} > $out";"#;
    Flake::of(definitions, body)
}

fn runs(log: &Log, name: &str) -> bool {
    log.builds().values().any(|known| known == name)
        && log.hand_outs_of(name).iter().any(|one| one.end.is_none())
}

#[test]
fn an_idle_cluster_stops_on_either_signal() {
    let mut cluster = Cluster::start();
    let said = cluster.stop(Signal::SIGINT);
    assert!(said.stderr.contains("stopped"), "{}", said.stderr);
    cluster.up();
    let _ = cluster.stop(Signal::SIGTERM);
    // It is nobody's cluster now, and says so.
    cluster.gradient(&["jobs"]).refused(3, "no cluster runs on");
    cluster.finish();
}

#[test]
fn builds_that_a_stop_interrupts_go_on_after_it() {
    let mut cluster = Cluster::start();
    let _ = cluster.submit(&programs::example("broken")).end().with_code(1);
    let old = Evaluation::newest(&cluster).summary["id"].clone();
    let id = cluster.submit_only(&programs::example("first-light"));
    cluster.until_log("slow-lines runs", |log| runs(log, "slow-lines"));
    until_true("its builder runs", LIMIT, || {
        (1..=2).any(|worker| cluster.builder(worker, "slow-lines: line").is_some())
    });
    let _ = cluster.stop(Signal::SIGINT);

    cluster.up();
    let _ = cluster.gradient(&["watch", &id]).ok();
    let evaluation = Evaluation::read(&cluster, &id);
    assert_eq!(evaluation.outcomes_whoever_built(), model::first_light());
    let log = cluster.log();
    check::built_once_or_visibly_interrupted(&log, &model::first_light_derivations());
    let attempts = log.hand_outs_of("slow-lines").len();
    assert_eq!(attempts, 2, "the stop cost it one hand-out");
    let listed = cluster.api("evaluations?limit=10");
    let ids: Vec<_> = listed["items"].as_array().expect("a list").iter().collect();
    assert_eq!(ids.len(), 2);
    assert_eq!((&ids[0]["id"], &ids[1]["id"]), (&id.as_str().into(), &old));
    assert_eq!(ids[1]["state"], "failed", "as it ended before");
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn an_evaluation_that_a_stop_interrupts_is_done_after_it() {
    let mut cluster = Cluster::start();
    let flake = slow_evaluation();
    let id = cluster.submit_only(&flake.reference());
    until_true("it is being evaluated", LIMIT, || {
        cluster.api(&format!("evaluations/{id}"))["state"] == "evaluating_flake"
    });
    let _ = cluster.stop(Signal::SIGTERM);

    cluster.up();
    let log = cluster.log();
    assert!(log.builds().is_empty(), "the stop came too late to interrupt it");
    let _ = cluster.gradient(&["watch", &id]).ok();
    let evaluation = Evaluation::read(&cluster, &id);
    assert_eq!(evaluation.outcomes(), model::packages(&[("late", model::Outcome::Completed)]));
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn a_stop_while_it_starts_leaves_nothing() {
    let cluster = Cluster::prepare(2);
    for step in ["nats-server", "PostgreSQL", "the services", "worker-1", "worker-2"] {
        let mut up = Running::start(&mut cluster.command(&["up", "--http", "0"]));
        until_true(&format!("it starts {step}"), LIMIT, || {
            assert!(!up.is_over(), "{}", up.so_far().stderr);
            up.so_far().stderr.contains(&format!("starting {step} ..."))
        });
        if step == "PostgreSQL" {
            // A server that was just started hears few signals.
            let lock = cluster.data().join("postgres/data/postmaster.pid");
            until_true("PostgreSQL begins", LIMIT, || lock.exists());
        }
        up.signal(Signal::SIGTERM);
        let said = up.end_within(gradient_suite::cluster::STOP_LIMIT);
        // It may have come as far as running; then the end is an orderly one.
        let is_orderly = matches!(said.code, Some(0 | 130));
        assert!(is_orderly && !said.stderr.contains("panicked"), "{said:?}");
        assert!(process::touching(cluster.data()).is_empty(), "{step} was being started");
    }
    let mut cluster = cluster;
    cluster.up();
    let _ = cluster.submit(&programs::example("broken")).end().with_code(1);
    assert_eq!(Evaluation::newest(&cluster).outcomes(), model::broken());
    cluster.finish();
}

#[test]
fn nothing_outlives_a_killed_cluster() {
    let mut cluster = Cluster::start();
    let id = cluster.submit_only(&programs::example("first-light"));
    cluster.until_log("slow-lines runs", |log| runs(log, "slow-lines"));
    let builder = || (1..=2).find_map(|worker| cluster.builder(worker, "slow-lines: line"));
    until_true("its builder runs", LIMIT, || builder().is_some());
    let builder = builder().expect("it runs").pid;
    cluster.kill_up();
    assert!(!process::is_alive(builder), "the builder goes on");

    cluster.up();
    let _ = cluster.gradient(&["watch", &id]).ok();
    let evaluation = Evaluation::read(&cluster, &id);
    assert_eq!(evaluation.outcomes_whoever_built(), model::first_light());
    let names = model::first_light_derivations();
    check::built_once_or_visibly_interrupted(&cluster.log(), &names);
    cluster.check_everything();
    cluster.finish();
}
