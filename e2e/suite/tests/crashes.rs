//! Parts of a cluster are killed in the middle of builds: nothing is lost, doubled or stuck.

use std::collections::BTreeSet;

use gradient_suite::check;
use gradient_suite::cluster::Part;
use gradient_suite::log::{Event, Log};
use gradient_suite::model::{self, Evaluation};
use gradient_suite::run::Running;
use gradient_suite::wait::{LIMIT, until_true};
use gradient_suite::{Cluster, Flake, process, programs};
use nix::sys::signal::Signal;

/// Submits first-light and waits until something is built and `slow-lines` is being built.
fn in_the_middle(cluster: &Cluster) -> Running {
    let watching = cluster.submit(&programs::example("first-light"));
    cluster.until_log("a build succeeded and slow-lines runs", |log| {
        log.succeeded().contains("base") && runs(log, "slow-lines")
    });
    watching
}

fn runs(log: &Log, name: &str) -> bool {
    log.builds().values().any(|known| known == name)
        && log.hand_outs_of(name).iter().any(|one| one.end.is_none())
}

/// The run ended well in spite of the crash, and log and tables are whole.
fn ends_well(cluster: Cluster, watching: Running) {
    let said = watching.end().ok();
    assert!(said.stdout.contains("13 attributes, 13 builds: 13 succeeded"), "{}", said.stdout);
    let evaluation = Evaluation::newest(&cluster);
    assert_eq!(evaluation.state(), "completed");
    assert_eq!(evaluation.outcomes_whoever_built(), model::first_light());
    let names = model::first_light_derivations();
    let log = cluster.log();
    check::built_once_or_visibly_interrupted(&log, &names);
    assert_eq!(log.succeeded(), names.into_iter().collect::<BTreeSet<_>>());
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn the_server_is_killed() {
    let cluster = Cluster::start();
    let watching = in_the_middle(&cluster);
    let before = cluster.log();
    cluster.kill(Part::Server);
    let after = cluster.until_log("the new scheduler's start", |log| log.starts() == 2);
    // What was acknowledged is still there, message by message.
    let positions = |log: &Log| -> Vec<(u64, usize)> {
        log.0.iter().map(|entry| (entry.sequence, entry.index)).collect()
    };
    assert!(positions(&after).starts_with(&positions(&before)), "the log lost entries");
    assert!(cluster.up_said().stderr.contains("gradient-server ended unexpectedly"));
    ends_well(cluster, watching);
}

#[test]
fn the_server_is_killed_again_and_again() {
    let cluster = Cluster::start();
    let watching = cluster.submit(&programs::example("first-light"));
    cluster.until_log("the submission", |log| {
        log.events().any(|event| matches!(event, Event::EvaluationRequested { .. }))
    });
    for starts in 2..=4 {
        cluster.kill(Part::Server);
        cluster.until_log("the new scheduler's start", |log| log.starts() == starts);
    }
    ends_well(cluster, watching);
}

#[test]
fn a_worker_is_killed() {
    let cluster = Cluster::start();
    let watching = in_the_middle(&cluster);
    let first = cluster.log().hand_outs_of("slow-lines").remove(0);
    let number: u32 = first.worker.trim_start_matches("worker-").parse().expect("worker-<n>");
    until_true("the builder runs", LIMIT, || cluster.builder(number, "slow-lines: line").is_some());
    let worker = cluster.part(Part::Worker(number)).expect("it runs");
    let below = process::descendants(worker.pid);
    assert!(below.iter().any(|one| one.program() == "nix-daemon"), "{below:?}");
    cluster.kill(Part::Worker(number));
    until_true("daemon and builder of the dead worker are gone", LIMIT, || {
        below.iter().all(|one| !process::is_alive(one.pid))
    });

    let log = cluster.until_log("slow-lines is handed out anew", |log| {
        log.hand_outs_of("slow-lines").len() == 2
    });
    let hand_outs = log.hand_outs_of("slow-lines");
    assert_eq!(hand_outs[0].end, Some("abandoned"), "{hand_outs:?}");
    assert_ne!(hand_outs[0].assignment, hand_outs[1].assignment);
    let reason = log.events().find_map(|event| match event {
        Event::AssignmentAbandoned { assignment, reason } if *assignment == first.assignment => {
            Some(reason.as_str())
        }
        _ => None,
    });
    assert!(matches!(reason, Some("worker_left" | "worker_lost")), "{reason:?}");
    let requeued = log.events().any(|event| {
        matches!(event, Event::JobRequeued { job, reason } if *job == first.job && reason == "abandoned")
    });
    assert!(requeued, "the job is not back in the queue");
    let jobs = cluster.gradient(&["jobs", "--all", "--json"]).ok().json();
    let rows = jobs["dispatched"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["assignment"] == first.assignment.as_str());
    assert_eq!(row.map(|row| &row["outcome"]), Some(&"abandoned".into()));
    ends_well(cluster, watching);
}

#[test]
fn a_worker_is_killed_in_the_middle_of_an_evaluation() {
    let cluster = Cluster::start_with(1);
    let definitions = "fib = n: if n < 2 then n else fib (n - 1) + fib (n - 2);";
    let body = r#"packages.x86_64-linux = builtins.listToAttrs (builtins.genList (n: {
        name = "a${toString n}";
        value = mk "a${toString n}-${toString (fib 30)}" "echo done > $out";
      }) 12);"#;
    let flake = Flake::of(definitions, body);
    let id = cluster.submit_only(&flake.reference());
    cluster.until_log("some are found", |log| !log.builds().is_empty());
    cluster.kill(Part::Worker(1));
    let _ = cluster.gradient(&["watch", &id]).ok();
    // What the first attempt found is neither lost nor doubled, by way of the evaluation cache.
    let evaluation = Evaluation::read(&cluster, &id);
    assert_eq!(evaluation.entry_points.len(), 12);
    let job = format!("eval:{id}");
    let attempts = cluster.log().hand_outs().iter().filter(|one| one.job == job).count();
    assert_eq!(attempts, 2, "it was not interrupted");
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn postgres_is_killed() {
    let cluster = Cluster::start();
    let watching = in_the_middle(&cluster);
    cluster.kill(Part::Postgres);
    ends_well(cluster, watching);
}

#[test]
fn nats_is_killed() {
    let cluster = Cluster::start();
    let watching = in_the_middle(&cluster);
    cluster.kill(Part::Nats);
    ends_well(cluster, watching);
}

#[test]
fn a_daemon_of_a_worker_is_killed() {
    let cluster = Cluster::start();
    let watching = in_the_middle(&cluster);
    let first = cluster.log().hand_outs_of("slow-lines").remove(0);
    let number: u32 = first.worker.trim_start_matches("worker-").parse().expect("worker-<n>");
    let worker = cluster.part(Part::Worker(number)).expect("it runs");
    let all = process::descendants(worker.pid);
    let is_first = |one: &&process::Process| {
        one.program() == "nix-daemon" && one.command_line.contains("--store")
    };
    let daemon = all.iter().find(is_first).expect("a daemon").pid;
    process::signal(daemon, Signal::SIGKILL);
    until_true("another daemon", LIMIT, || {
        let all = process::descendants(worker.pid);
        all.iter().find(is_first).is_some_and(|now| now.pid != daemon)
    });
    ends_well(cluster, watching);
}
