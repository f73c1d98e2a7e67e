//! Inputs that cannot be fetched: whoever does without them is evaluated, and the others are told which
//! input it is and why. What the network does is never kept.

use std::path::{Path, PathBuf};

use gradient_suite::local::{Local, line, sorted};
use gradient_suite::model::Evaluation;
use gradient_suite::tarball::Tarball;
use gradient_suite::wait::{LIMIT, until_true};
use gradient_suite::{Cluster, check};
use serde_json::{Value, json};

/// A flake of this name, locked, of which one of two packages reads an input from elsewhere; the server of
/// the input, which does not run any more.
fn flake(local: &Local, name: &str) -> (PathBuf, Tarball) {
    let mut far = Tarball::of(&local.flake(&format!("far-{name}"), &[("x", name)]));
    let text = format!(
        r#"{{
  inputs.far = {{ url = "{}"; flake = false; }};
  outputs = {{ self, far }}: let
    mk = name: text: derivation {{
      inherit name text; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo > $out" ];
    }};
  in {{ packages.x86_64-linux = {{
    reads = mk "reads" (builtins.readFile "${{far}}/x");
    free = mk "free" "";
  }}; }};
}}"#,
        far.url()
    );
    let folder = local.flake(name, &[("flake.nix", &text)]);
    far.serve();
    // With another store, so that the input is in none that an evaluation uses.
    let elsewhere = Local::new();
    let reference = format!("path:{}", folder.display());
    let _ = elsewhere.nix("nix", &["flake", "lock", "--option", "substitute", "false", &reference]);
    far.end();
    (folder, far)
}

/// The same, but nothing of it can be looked at without the input.
fn whole(local: &Local, of: &Path) -> PathBuf {
    let text = |file: &str| std::fs::read_to_string(of.join(file)).expect("read");
    let flake =
        text("flake.nix").replace("let\n", "assert builtins.pathExists \"${far}/x\"; let\n");
    local.flake("whole", &[("flake.nix", &flake), ("flake.lock", &text("flake.lock"))])
}

const TOLD: &str = "input 'far' cannot be fetched: ";

#[test]
fn gradient_eval_names_the_input_and_reads_it_once_it_is_there() {
    let local = Local::new();
    let (folder, mut far) = flake(&local, "top");
    let said = local.eval(&folder, &[]).with_code(1);
    assert!(said.stderr.contains(&format!("warning: {TOLD}")), "{said:?}");
    let lines = sorted(&said);
    assert_eq!(line(&lines, "packages.x86_64-linux.free").get("error"), None, "{said:?}");
    let error = line(&lines, "packages.x86_64-linux.reads")["error"].as_str().expect("text");
    assert!(error.starts_with(TOLD) && error.contains("Couldn't connect"), "{error}");
    // Another time it may be there: that is another exit code than that of a flake that is wrong.
    let said = local.eval(&whole(&local, &folder), &[]).with_code(3);
    assert!(said.stderr.contains(&format!("error: {TOLD}")), "{said:?}");

    let list = |pattern: &str| json!({ "op": "list", "repository": format!("path:{}", folder.display()), "wildcards": [pattern] });
    let driven = &local.drive(&[list("packages.x86_64-linux.*")])[0];
    let items = driven["items"].as_array().expect("a list");
    let errors: Vec<&str> = items.iter().filter_map(|item| item["error"].as_str()).collect();
    assert!(items.len() == 2 && errors.len() == 1 && errors[0].starts_with(TOLD), "{driven}");

    far.serve();
    for folder in [folder.clone(), whole(&local, &folder)] {
        let said = local.eval(&folder, &[]).ok();
        assert!(sorted(&said).len() == 2 && !said.stderr.contains(TOLD), "{said:?}");
    }
}

/// Submits one package; the evaluation.
fn submitted(cluster: &Cluster, folder: &Path, name: &str) -> String {
    let pattern = format!("packages.*.{name}");
    let flake = format!("path:{}", folder.display());
    let said = cluster.gradient(&["submit", &flake, "--json", "--include", &pattern]).ok();
    said.json()["evaluation"].as_str().expect("an id").to_owned()
}

/// Waits for the end of an evaluation.
#[track_caller]
fn over(cluster: &Cluster, id: &str) -> Evaluation {
    until_true("the end of the evaluation", LIMIT, || {
        !cluster.api(&format!("evaluations/{id}"))["finished_at"].is_null()
    });
    Evaluation::read(cluster, id)
}

fn texts(evaluation: &Evaluation, level: &str) -> Vec<String> {
    let messages = evaluation.messages.iter().filter(|message| message["level"] == level);
    let text = |message: &Value| message["text"].as_str().expect("a text").to_owned();
    messages.map(text).collect()
}

#[test]
fn a_fleet_does_without_an_input_that_nobody_reads_and_tries_again_for_whoever_does() {
    let cluster = Cluster::start_with(1);
    let local = Local::new();
    let (folder, mut far) = flake(&local, "top");

    let free = over(&cluster, &submitted(&cluster, &folder, "free"));
    assert_eq!(free.state(), "completed", "{:#}", free.summary);
    assert_eq!(free.summary["hand_outs"], 1);
    let warnings = texts(&free, "warning");
    assert!(warnings.len() == 1 && warnings[0].starts_with(TOLD), "{warnings:?}");

    // What is not there for good is the error of the attribute.
    far.refuse();
    let gone = over(&cluster, &submitted(&cluster, &folder, "reads"));
    assert_eq!(gone.state(), "failed", "{:#}", gone.summary);
    assert_eq!(gone.summary["hand_outs"], 1);
    let errors = texts(&gone, "error");
    assert!(errors.len() == 1 && errors[0].starts_with(TOLD), "{errors:?}");
    assert!(errors[0].contains("HTTP error 404"), "{errors:?}");
    far.end();

    // What the network keeps back comes with another attempt.
    let (other, mut other_far) = flake(&local, "other");
    let ids = [
        submitted(&cluster, &folder, "reads"),
        submitted(&cluster, &whole(&local, &other), "free"),
    ];
    for (id, far) in ids.iter().zip([&mut far, &mut other_far]) {
        let job = format!("eval:{id}");
        cluster.until_log("an attempt without the network", |log| {
            log.hand_outs().iter().any(|one| one.job == job && one.end.is_some())
        });
        far.serve();
    }
    for id in &ids {
        let found = over(&cluster, id);
        assert_eq!(found.state(), "completed", "{:#}", found.summary);
        assert_eq!(texts(&found, "error"), Vec::<String>::new());
        let hand_outs = found.summary["hand_outs"].as_u64().expect("a number");
        assert!(hand_outs >= 2, "{:#}", found.summary);
    }
    let said = cluster.gradient(&["events", "tail", "--json", "--no-follow"]).ok().stdout;
    for who in ["packages.x86_64-linux.reads", "the flake"] {
        assert!(said.contains(&format!("; {who} needs it")), "{who}");
    }
    check::assigned_before_reported(&cluster.log());
    cluster.check_everything();
    cluster.finish();
}
