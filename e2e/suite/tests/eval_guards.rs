//! `gradient eval` when evaluators are killed, stopped, replaced or doubled in the middle.

use std::path::Path;

use gradient_suite::local::{Local, sorted};
use gradient_suite::process;
use gradient_suite::programs;
use gradient_suite::run::{Running, Said};
use gradient_suite::wait::{LIMIT, until, until_true};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Forty names that take a while each.
const SLOW: &str = r#"{ outputs = { self }: let
    fib = n: if n < 2 then n else fib (n - 1) + fib (n - 2);
    mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
  in { packages.x86_64-linux = builtins.listToAttrs (builtins.genList (n: {
    name = "p${toString n}";
    value = mk "p${toString n}-${toString (fib 26)}";
  }) 40); }; }"#;

/// An evaluation of a flake, started.
fn start(local: &Local, flake: &Path, arguments: &[&str]) -> Running {
    let (uri, flake) = (local.store_uri(), flake.display().to_string());
    let mut command = local.eval_command(&["--store", &uri, "--flake", &flake]);
    Running::start(command.args(arguments))
}

/// Evaluators of an evaluation.
fn evaluators(running: &Running) -> Vec<i32> {
    let all = process::descendants(running.pid()).into_iter();
    all.filter(|one| one.command_line.contains("--eval-subprocess")).map(|one| one.pid).collect()
}

/// What `--stats` says of it.
fn stats(said: &Said) -> Value {
    let line = said.stderr.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.expect("statistics")).expect("JSON")
}

#[test]
fn a_killed_evaluator_costs_nothing() {
    let local = Local::new();
    let flake = local.flake("slow", &[("flake.nix", SLOW)]);
    let running = start(&local, &flake, &["--workers", "1", "--stats"]);
    let busy = until("something is found", LIMIT, || {
        let is_found = !running.so_far().stdout.is_empty();
        evaluators(&running).first().copied().filter(|_| is_found)
    });
    process::signal(busy, Signal::SIGKILL);
    let said = running.end().ok();
    assert_eq!(sorted(&said).len(), 40);
    assert_eq!(stats(&said)["crashes"], 1);
}

#[test]
fn after_a_stop_everything_is_found() {
    let local = Local::new();
    let flake = local.flake("slow", &[("flake.nix", SLOW)]);
    let running = start(&local, &flake, &["--workers", "2"]);
    until_true("something is found", LIMIT, || !running.so_far().stdout.is_empty());
    running.signal(Signal::SIGTERM);
    let stopped = running.end();
    assert!(stopped.code != Some(0) && stopped.stdout.lines().count() < 40, "{stopped:?}");
    let again = start(&local, &flake, &["--stats"]).end().ok();
    assert_eq!((sorted(&again).len(), &stats(&again)["isCached"]), (40, &Value::Bool(false)));
    let cached = start(&local, &flake, &["--stats"]).end().ok();
    assert_eq!((sorted(&cached), &stats(&cached)["isCached"]), (sorted(&again), &true.into()));
}

#[test]
fn two_at_once_share_a_cache_and_lose_nothing() {
    let local = Local::new();
    let flake = local.flake("slow", &[("flake.nix", SLOW)]);
    let both = [(); 2].map(|()| start(&local, &flake, &["--workers", "4"]));
    let [one, two] = both.map(|running| running.end().ok());
    assert_eq!((sorted(&one).len(), sorted(&one)), (40, sorted(&two)));
    assert_eq!((one.stderr.as_str(), two.stderr.as_str()), ("", ""));
    let third = start(&local, &flake, &["--stats"]).end().ok();
    assert_eq!((sorted(&third), &stats(&third)["isCached"]), (sorted(&one), &true.into()));
}

#[test]
fn a_stop_ends_an_evaluator_that_hears_no_signal() {
    let local = Local::new();
    let running = start(&local, &local.shared("P14"), &["--workers", "2"]);
    until_true("the quick one is found", LIMIT, || running.so_far().stdout.contains("quick"));
    let pids = evaluators(&running);
    assert!(!pids.is_empty(), "nobody works");
    running.signal(Signal::SIGTERM);
    assert_ne!(running.end().code, Some(0));
    until_true("the end of the evaluators", LIMIT, || {
        pids.iter().all(|pid| !process::is_alive(*pid))
    });
}

#[test]
fn an_evaluator_of_another_version_is_refused() {
    let local = Local::new();
    let folder = local.path().join("bin");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::copy(programs::own("gradient"), folder.join("gradient")).expect("copied");
    // A greeting begins with its version, here the letter `h`.
    let program = folder.join("gradient-worker");
    std::fs::write(&program, "#!/bin/sh\necho hello\nread -r nothing\n").expect("written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("ours");
    let flake = local.shared("N01").display().to_string();
    let uri = local.store_uri();
    let mut command = local.command(&folder.join("gradient"));
    command.arg("--data-dir").arg(local.path().join("data"));
    command.args(["eval", "--store", &uri, "--flake", &flake]);
    let said = Running::start(&mut command).end().with_code(3);
    let words = "eval worker IPC version mismatch: parent 3, subprocess 104";
    assert!(said.stderr.contains(words), "{}", said.stderr);
    assert_eq!(said.stdout, "");
}
