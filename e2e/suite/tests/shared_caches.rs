//! What one worker evaluated, no other evaluates again: its evaluation cache comes from the fleet.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gradient_suite::log::Event;
use gradient_suite::model::Evaluation;
use gradient_suite::{Cluster, Flake};
use nix::sys::signal::Signal;
use serde_json::Value;

/// What is the same in every evaluation of one flake: attributes and their derivations.
fn derivations(evaluation: &Evaluation) -> Vec<(Value, Value)> {
    let points = evaluation.entry_points.iter();
    let mut rows: Vec<(Value, Value)> =
        points.map(|point| (point["attr_path"].clone(), point["drv_path"].clone())).collect();
    rows.sort_by_key(|(path, _)| path.to_string());
    assert!(rows.iter().all(|(_, drv_path)| drv_path.is_string()), "{rows:?}");
    rows
}

/// Lines of the worker's log that hold `words`.
fn said(cluster: &Cluster, words: &str) -> Vec<String> {
    let text = std::fs::read_to_string(cluster.data().join("logs/worker-1.log")).expect("a log");
    text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
}

/// Puts a worker that has nothing, another one for all that anybody sees, in the place of the only
/// one.
fn replace_worker(cluster: &mut Cluster) {
    cluster.stop(Signal::SIGTERM);
    std::fs::remove_dir_all(cluster.data().join("workers/1")).expect("its folder");
    std::fs::remove_file(cluster.data().join("logs/worker-1.log")).expect("its log");
    cluster.up();
}

/// Names with dots, and one derivation under several names with another one below it.
fn flakes() -> [Flake; 2] {
    let dotted = r#"packages.x86_64-linux = {
        "tool-1.2" = mk "tool-dotted" "echo dotted > $out";
        plain = mk "plain" "echo plain > $out";
        broken = throw "not today";
      };"#;
    let definitions = r#"
      base = mk "base" "echo base > $out";
      app = mk "app" "echo ${base} > $out";"#;
    let aliased = r#"packages.x86_64-linux = { inherit app; default = app; alias = app; };"#;
    [Flake::of("", dotted), Flake::of(definitions, aliased)]
}

fn evaluate(cluster: &Cluster, flakes: &[Flake]) -> Vec<Evaluation> {
    let each = flakes.iter().map(|flake| {
        cluster.submit(&flake.reference()).end();
        Evaluation::newest(cluster)
    });
    each.collect()
}

#[test]
fn a_second_worker_answers_from_the_cache_of_the_first() {
    let mut cluster = Cluster::start_with(1);
    let flakes = flakes();
    let first = evaluate(&cluster, &flakes);
    assert_eq!(first.iter().map(|one| one.entry_points.len()).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(said(&cluster, "evaluation cache given").len(), 2);
    let over = said(&cluster, "discovery is over");
    assert!(over.iter().all(|line| line.contains("is_cached=false")), "{over:?}");

    replace_worker(&mut cluster);
    let second = evaluate(&cluster, &flakes);
    assert_eq!(workers(&cluster), 2, "it is another worker");
    for (first, second) in first.iter().zip(&second) {
        assert_ne!(first.summary["id"], second.summary["id"]);
        assert_eq!(derivations(first), derivations(second));
        assert_eq!(messages(first), messages(second));
    }
    let over = said(&cluster, "discovery is over");
    assert_eq!(over.len(), 2);
    for line in &over {
        assert!(line.contains("is_cached=true calls=0"), "something was evaluated: {line}");
    }
    assert_eq!(said(&cluster, "derivations of the evaluation cache fetched").len(), 2);
    let left = std::fs::read_dir(cache_folder(&cluster).join("share")).expect("a folder").count();
    assert_eq!(left, 0, "temporary files are left");

    // Without the file everything is evaluated as if nobody had done so before.
    let kept = cluster.data().join("cache/eval-cache");
    for entry in std::fs::read_dir(&kept).expect("a folder").flatten() {
        if entry.path().extension().is_some_and(|suffix| suffix == "sqlite") {
            std::fs::write(entry.path(), "damaged").expect("written");
        }
    }
    replace_worker(&mut cluster);
    let third = evaluate(&cluster, &flakes);
    for (first, third) in first.iter().zip(&third) {
        assert_eq!(derivations(first), derivations(third));
    }
    let over = said(&cluster, "discovery is over");
    assert!(over.iter().all(|line| line.contains("is_cached=false")), "{over:?}");
    assert_eq!(said(&cluster, "evaluation cache given").len(), 2, "it heals");
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn a_worker_whose_cache_does_not_answer_gets_one_that_does() {
    let mut cluster = Cluster::start_with(1);
    let flake = Flake::of(
        "",
        r#"packages.x86_64-linux = { one = mk "one" "echo one > $out"; two = mk "two" "echo two > $out"; };"#,
    );
    let reference = flake.reference();
    let one = ["submit", &reference, "--include", "packages.x86_64-linux.one", "--watch"];
    let _ = cluster.spawn(&one).end().ok();
    let folder = cache_folder(&cluster);
    let saved = cluster.folder().join("saved");
    copy_files(&folder, &saved);
    let all = evaluate(&cluster, std::slice::from_ref(&flake));

    // The worker as it was when it knew the one attribute only.
    cluster.stop(Signal::SIGTERM);
    std::fs::remove_dir_all(&folder).expect("its caches");
    copy_files(&saved, &folder);
    std::fs::remove_file(cluster.data().join("logs/worker-1.log")).expect("its log");
    cluster.up();
    let again = evaluate(&cluster, &[flake]);
    assert_eq!(derivations(&all[0]), derivations(&again[0]));
    assert_eq!(said(&cluster, "evaluation cache fetched").len(), 1);
    let over = said(&cluster, "discovery is over");
    assert!(over.len() == 1 && over[0].contains("is_cached=true calls=0"), "{over:?}");
    cluster.finish();
}

#[test]
fn what_could_not_be_given_is_given_with_the_next() {
    let mut cluster = Cluster::start_with(1);
    let [first, second] = flakes();
    // A file where the service wants its folder: it has no place for what comes.
    let kept = cluster.data().join("cache/eval-cache");
    std::fs::remove_dir_all(&kept).expect("the service's caches");
    std::fs::write(&kept, "").expect("in the way");
    evaluate(&cluster, &[first]);
    assert_eq!(said(&cluster, "evaluation cache given").len(), 0);
    assert_eq!(said(&cluster, "evaluation cache not given").len(), 1);
    let notes = cache_folder(&cluster).join("not-given");
    let noted = || std::fs::read_dir(&notes).expect("notes").count();
    assert_eq!(noted(), 1);

    // What is noted outlives the worker.
    cluster.stop(Signal::SIGTERM);
    std::fs::remove_file(&kept).expect("removed");
    cluster.up();
    evaluate(&cluster, &[second]);
    assert_eq!(said(&cluster, "evaluation cache given").len(), 2);
    assert_eq!(noted(), 0);
    let there = std::fs::read_dir(&kept).expect("the service's caches").flatten();
    let is_cache = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "sqlite");
    assert_eq!(there.map(|entry| entry.path()).filter(is_cache).count(), 2);
    cluster.finish();
}

/// Where the only worker keeps its evaluation caches.
fn cache_folder(cluster: &Cluster) -> PathBuf {
    cluster.data().join("workers/1/eval-cache/eval-cache-v1")
}

/// Copies the files of a folder, and no folders.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

/// How many workers ever had a job.
fn workers(cluster: &Cluster) -> usize {
    let log = cluster.log();
    let assigned = log.events().filter_map(|event| match event {
        Event::JobAssigned { worker, .. } => Some(worker.clone()),
        _ => None,
    });
    assigned.collect::<BTreeSet<String>>().len()
}

/// Attributes and texts of what the evaluation told.
fn messages(evaluation: &Evaluation) -> Vec<(Value, Value)> {
    let mut rows: Vec<(Value, Value)> = evaluation
        .messages
        .iter()
        .map(|message| (message["attr"].clone(), message["text"].clone()))
        .collect();
    rows.sort_by_key(|(attr, _)| attr.to_string());
    rows
}
