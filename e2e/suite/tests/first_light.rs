//! `examples/first-light` on two workers: all of it builds, once, and everything that tells of it
//! agrees with the log.

use std::collections::{BTreeMap, BTreeSet};

use gradient_suite::check::{self, digest};
use gradient_suite::log::{Log, Message, Step};
use gradient_suite::model::{self, Evaluation};
use gradient_suite::{Cluster, programs};
use serde_json::Value;

fn texts<'a>(list: &'a Value, key: &str) -> BTreeSet<&'a str> {
    let list = list.as_array().expect("a list");
    list.iter().map(|item| item[key].as_str().expect("a text")).collect()
}

#[test]
fn every_attribute_is_built_exactly_once() {
    let cluster = Cluster::start();
    let said = cluster.submit(&programs::example("first-light")).end().ok();
    let evaluation = Evaluation::newest(&cluster);
    assert_eq!(evaluation.state(), "completed");
    assert_eq!(evaluation.outcomes(), model::first_light());
    for path in model::first_light().keys() {
        assert!(said.stdout.contains(&path.join(".")), "{path:?} is not shown: {}", said.stdout);
    }
    let log = cluster.log();
    check::built_exactly_once(&log, &model::first_light_derivations());
    check::assigned_before_reported(&log);

    let workers: BTreeSet<String> = log.hand_outs().into_iter().map(|one| one.worker).collect();
    assert_eq!(workers, ["worker-1", "worker-2"].map(str::to_owned).into());
    let heavy = log.hand_outs_of("heavy");
    assert_eq!(heavy[0].worker, "worker-1", "the other one lacks big-parallel");

    let outputs = texts(&evaluation.entry_point("toolkit")["outputs"], "name");
    assert_eq!(outputs, ["dev", "out"].into());
    assert_eq!(made(&log, "toolkit"), ["dev", "out"].into());
    let references = references(&cluster, &evaluation.output("uses-dev", "out"));
    assert_eq!(references, [evaluation.output("toolkit", "dev")].into());

    // Asked for again, it is there: one evaluation more, no build.
    let before = log.hand_outs().len();
    let _ = cluster.submit(&programs::example("first-light")).end().ok();
    assert_eq!(Evaluation::newest(&cluster).outcomes(), model::first_light());
    let hand_outs = cluster.log().hand_outs();
    let new: Vec<&str> = hand_outs[before..].iter().map(|one| one.job.as_str()).collect();
    assert!(matches!(new.as_slice(), [one] if one.starts_with("eval:")), "{new:?}");
    check::built_exactly_once(&cluster.log(), &model::first_light_derivations());
    cluster.finish();
}

/// Names of the outputs that the build of a derivation reported.
fn made<'a>(log: &'a Log, name: &str) -> BTreeSet<&'a str> {
    let assignment = log.hand_outs_of(name).pop().expect("it was handed out").assignment;
    let outputs = log.messages().find_map(|(_, message)| match message {
        Message::JobUpdate { assignment: of, update: Step::BuildOutput { outputs, .. } }
            if *of == assignment =>
        {
            Some(outputs)
        }
        _ => None,
    });
    outputs.expect("it reported outputs").iter().map(|made| made.name.as_str()).collect()
}

/// Store paths that a path in the cache refers to.
fn references(cluster: &Cluster, path: &str) -> BTreeSet<String> {
    let base = path.strip_prefix("/nix/store/").expect("a store path");
    let hash = base.split('-').next().expect("a hash");
    let base = cluster.address("http_url");
    let answer = gradient_suite::http::get(&base, &format!("cache/{hash}.narinfo"), None);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let line = answer.body.lines().find_map(|line| line.strip_prefix("References: "));
    line.unwrap_or_default().split_whitespace().map(|name| format!("/nix/store/{name}")).collect()
}

#[test]
fn commands_and_tables_agree_with_the_log() {
    let cluster = Cluster::start();
    let _ = cluster.submit(&programs::example("first-light")).end().ok();
    cluster.check_hand_out_rows();
    let log = cluster.log();

    let jobs = cluster.gradient(&["jobs", "--all", "--json"]).ok().json();
    assert_eq!(jobs["pending"], serde_json::json!([]));
    let shown: BTreeMap<&str, (&str, &str)> = rows(&jobs["dispatched"]);
    let hand_outs = log.hand_outs();
    let logged: BTreeMap<&str, (&str, &str)> = hand_outs
        .iter()
        .map(|one| (one.assignment.as_str(), (one.job.as_str(), one.worker.as_str())))
        .collect();
    assert_eq!(shown, logged, "jobs --all");
    assert_eq!(texts(&jobs["dispatched"], "outcome"), ["completed"].into());

    let workers = cluster.gradient(&["workers", "--json"]).ok().json();
    assert_eq!(texts(&workers, "name"), log.worker_names().into_values().collect());
    assert_eq!(texts(&workers, "id"), log.worker_names().into_keys().collect());
    for worker in workers.as_array().expect("a list") {
        assert_eq!(worker["running"], serde_json::json!([]), "nothing runs any more");
    }

    let builds = cluster.gradient(&["builds", "--json"]).ok().json();
    let named = log.builds();
    assert_eq!(texts(&builds, "id"), named.keys().map(String::as_str).collect());
    for build in builds.as_array().expect("a list") {
        let id = build["id"].as_str().expect("a text");
        let path = build["drv_path"].as_str().expect("a text");
        assert_eq!(gradient_suite::log::name_of(path), named[id]);
        assert_eq!((&build["state"], &build["attempts"]), (&"completed".into(), &1.into()), "{id}");
    }

    let printed = cluster.gradient(&["logs", &log.build("slow-lines")]).ok().stdout;
    let lines: Vec<String> = (1..=5).map(|n| format!("slow-lines: line {n} of 5")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["slow-lines: done"]).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), lines);
    let explained = cluster.gradient(&["explain", &log.build("heavy")]).ok().stdout;
    assert!(explained.contains("to worker-1 ") && explained.contains("is over"), "{explained}");
    cluster.finish();
}

/// Job and worker of each assignment.
fn rows(list: &Value) -> BTreeMap<&str, (&str, &str)> {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|item| {
            let text = |key: &str| item[key].as_str().expect("a text");
            (text("assignment"), (text("job"), text("worker_name")))
        })
        .collect()
}

#[test]
fn tables_folded_anew_are_the_same() {
    let cluster = Cluster::start();
    let _ = cluster.submit(&programs::example("broken")).end().with_code(1);
    cluster.check_everything();

    // While something runs, the tables are dropped and folded under the projector's feet.
    let running = cluster.submit(&programs::example("first-light"));
    cluster.until_log("a build of the new submission", |log| log.succeeded().contains("base"));
    let mut rebuilds = 0;
    let mut running = running;
    while !running.is_over() {
        let said = cluster.gradient(&["projections", "rebuild"]).ok();
        assert!(digest(&said.stdout).position > 0);
        rebuilds += 1;
    }
    assert!(rebuilds > 0, "nothing was folded anew while it ran");
    let _ = running.end().ok();
    assert_eq!(Evaluation::newest(&cluster).outcomes(), model::first_light());
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn plain_nix_reads_the_cache() {
    let cluster = Cluster::start();
    let _ = cluster.submit(&programs::example("first-light")).end().ok();
    let path = Evaluation::newest(&cluster).output("uses-dev", "out");
    let url = cluster.gradient(&["cache", "url"]).ok().stdout.trim().to_owned();
    let key = cluster.gradient(&["cache", "key"]).ok().stdout.trim().to_owned();
    let copy = |to: &str, key: &str| {
        let mut command = std::process::Command::new(programs::installed("nix"));
        let home = cluster.folder().join("home");
        let root = cluster.folder().join(to);
        command.args(["--extra-experimental-features", "nix-command flakes"]);
        command.args(["copy", "--from", &url, "--to"]).arg(&root);
        command.args(["--option", "trusted-public-keys", key, &path]);
        command.env("HOME", &home).env("NIX_USER_CONF_FILES", "/dev/null").env_remove("NIX_CONFIG");
        let said = gradient_suite::run::Running::start(&mut command).end();
        (said, root.join(path.trim_start_matches('/')))
    };
    let (said, file) = copy("trusting", &key);
    let _ = said.ok();
    let dev = Evaluation::newest(&cluster).output("toolkit", "dev");
    assert_eq!(std::fs::read_to_string(file).expect("copied"), format!("built with {dev}\n"));
    assert!(cluster.folder().join("trusting").join(dev.trim_start_matches('/')).exists());

    let (said, file) = copy("suspicious", "");
    let said = said.with_code(1);
    assert!(said.stderr.contains("signature"), "{}", said.stderr);
    assert!(!file.exists(), "nothing without a trusted signature");
    cluster.finish();
}
