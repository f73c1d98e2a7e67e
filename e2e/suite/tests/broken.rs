//! `examples/broken`: a part fails, is named with its reason, and holds nothing else up.

use gradient_suite::check;
use gradient_suite::cluster::gradient;
use gradient_suite::log::Event;
use gradient_suite::model::{self, Evaluation};
use gradient_suite::run::Running;
use gradient_suite::{Cluster, programs};

#[test]
fn what_can_be_built_is_built_and_the_rest_is_named() {
    let cluster = Cluster::start();
    let said = cluster.submit(&programs::example("broken")).end().with_code(1);
    let evaluation = Evaluation::newest(&cluster);
    assert_eq!(evaluation.state(), "failed");
    assert_eq!(evaluation.outcomes(), model::broken());
    for path in model::broken().keys() {
        assert!(said.stdout.contains(&path.join(".")), "{path:?} is not shown: {}", said.stdout);
    }
    assert!(said.stdout.contains("cannot be evaluated, on purpose"), "{}", said.stdout);

    let message = evaluation.entry_point("fails")["message"].as_str().expect("a message");
    assert!(message.contains("exit code 1"), "{message}");
    let log = cluster.log();
    let printed = cluster.gradient(&["logs", &log.build("fails")]).ok().stdout;
    for line in ["fails: compiling", "fails: linking", "error: this build fails on purpose"] {
        assert!(printed.contains(line), "no '{line}' in {printed}");
    }
    let throws = &evaluation.messages[0];
    assert_eq!(throws["attr"], "packages.x86_64-linux.throws");
    assert!(throws["text"].as_str().is_some_and(|text| text.contains("flake.nix:")), "{throws}");

    check::built_once_or_visibly_interrupted(&log, &["good".into(), "needs-good".into()]);
    assert_eq!(log.succeeded(), ["good", "needs-good"].map(str::to_owned).into());
    assert_eq!(log.hand_outs_of("fails").len(), 1, "a permanent failure is not tried again");
    assert_eq!(log.hand_outs_of("needs-fails"), [], "it never took a slot");
    let fails = log.build("fails");
    let failed = log.events().filter(
        |event| matches!(event, Event::BuildFailed { build, kind, .. } if *build == fails && kind == "permanent"),
    );
    assert_eq!(failed.count(), 1);
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn a_local_evaluation_prints_json_lines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flake = programs::example("broken");
    let mut command = gradient(&["eval", "packages.*.*", "--flake", &flake]);
    command.env("GRADIENT_DATA_DIR", folder.path().join("d")).env("HOME", folder.path());
    let said = Running::start(&mut command).end().with_code(1);
    assert!(said.stderr.lines().any(|line| line.starts_with("error: ")), "{}", said.stderr);
    let lines = said.json_lines();
    assert_eq!(lines.len(), model::broken().len(), "{}", said.stdout);
    for path in model::broken().keys() {
        let line = lines.iter().find(|line| line["attrPath"] == serde_json::json!(path));
        let line = line.unwrap_or_else(|| panic!("no line for {path:?} in {}", said.stdout));
        assert_eq!(line["attr"], path.join("."));
        if path[2] == "throws" {
            let error = line["error"].as_str().expect("an error");
            assert!(error.contains("cannot be evaluated, on purpose"), "{error}");
            assert!(line.get("drvPath").is_none(), "{line}");
        } else {
            let drv = line["drvPath"].as_str().expect("a derivation");
            assert_eq!(gradient_suite::log::name_of(drv), path[2]);
            let system = path[1].as_str();
            assert_eq!(
                (&line["name"], &line["system"]),
                (&path[2].as_str().into(), &system.into())
            );
            assert!(line["outputs"]["out"].is_string(), "{line}");
        }
    }
    let left = gradient_suite::process::touching(folder.path());
    assert_eq!(left, [], "an evaluator is left");
}
