//! Small flakes with one point each, compared with what they have to come to.

use std::collections::BTreeSet;

use gradient_suite::check;
use gradient_suite::log::{Event, Message, Step};
use gradient_suite::model::{self, Evaluation, Model, Outcome};
use gradient_suite::{Cluster, Flake};

fn path(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}

/// The attributes that `gradient eval` finds, with its own pool and store.
fn found_by_eval(cluster: &Cluster, flake: &Flake, pattern: &str) -> BTreeSet<Vec<String>> {
    let said = cluster.gradient(&["eval", pattern, "--flake", &flake.reference()]).ok();
    let paths = said.json_lines().into_iter().map(|line| {
        serde_json::from_value(line["attrPath"].clone()).expect("attribute paths are lists")
    });
    paths.collect()
}

#[test]
fn a_name_with_a_dot_is_one_name() {
    let cluster = Cluster::start();
    let body = r#"packages.x86_64-linux = {
        "tool-1.2" = mk "tool-dotted" "echo dotted > $out";
        plain = mk "plain" "echo plain > $out";
      };"#;
    let flake = Flake::of("", body);
    let said = cluster.submit(&flake.reference()).end().ok();
    let wanted = [("tool-1.2", Outcome::Completed), ("plain", Outcome::Completed)];
    let evaluation = Evaluation::newest(&cluster);
    assert_eq!(evaluation.outcomes(), model::packages(&wanted));
    let printed = r#"packages.x86_64-linux."tool-1.2""#;
    assert_eq!(evaluation.entry_point("tool-1.2")["attr"], printed);
    assert!(said.stdout.contains(printed), "{}", said.stdout);
    check::built_exactly_once(&cluster.log(), &["tool-dotted".into(), "plain".into()]);

    // The printed form names the same attribute when it comes back as a pattern.
    let submit = ["submit", &flake.reference(), "--include", printed, "--watch"];
    let _ = cluster.gradient(&submit).ok();
    let again = Evaluation::newest(&cluster);
    assert_eq!(again.outcomes(), model::packages(&[("tool-1.2", Outcome::Completed)]));
    assert_eq!(again.entry_points[0]["build"], evaluation.entry_point("tool-1.2")["build"]);
    let found = found_by_eval(&cluster, &flake, printed);
    assert_eq!(found, [path(&["packages", "x86_64-linux", "tool-1.2"])].into());
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn one_derivation_under_several_names_is_one_build() {
    let cluster = Cluster::start();
    let body = r#"packages.x86_64-linux = { inherit app; default = app; alias = app; };
      checks.x86_64-linux.app = app;
      hydraJobs.app.x86_64-linux = app;"#;
    let flake = Flake::of(r#"app = mk "app" "echo app > $out";"#, body);
    let mut submit = vec!["submit".to_owned(), flake.reference(), "--watch".to_owned()];
    for pattern in ["packages.*.*", "checks.*.*", "hydraJobs.*.*"] {
        submit.extend(["--include".to_owned(), pattern.to_owned()]);
    }
    let submit: Vec<&str> = submit.iter().map(String::as_str).collect();
    let _ = cluster.gradient(&submit).ok();
    let evaluation = Evaluation::newest(&cluster);
    let paths = [
        path(&["packages", "x86_64-linux", "app"]),
        path(&["packages", "x86_64-linux", "default"]),
        path(&["packages", "x86_64-linux", "alias"]),
        path(&["checks", "x86_64-linux", "app"]),
        path(&["hydraJobs", "app", "x86_64-linux"]),
    ];
    let wanted: Model = paths.into_iter().map(|path| (path, Outcome::Completed)).collect();
    assert_eq!(evaluation.outcomes(), wanted);
    let builds: BTreeSet<&str> =
        evaluation.entry_points.iter().filter_map(|point| point["build"].as_str()).collect();
    assert_eq!(builds.len(), 1, "they share a build and so its log");
    check::built_exactly_once(&cluster.log(), &["app".into()]);
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn all_outputs_come_from_one_build() {
    let cluster = Cluster::start();
    let definitions = r#"
      lib = derivation {
        name = "lib"; system = "x86_64-linux"; builder = "/bin/sh";
        outputs = [ "bin" "dev" "out" ];
        args = [ "-euc" "echo b > $bin; echo d > $dev; echo o > $out" ];
      };
      user = mk "user" "read x < ${lib.dev}; echo $x > $out";"#;
    let body = "packages.x86_64-linux = { inherit lib user; justDev = lib.dev; };";
    let flake = Flake::of(definitions, body);
    let _ = cluster.submit(&flake.reference()).end().ok();
    let evaluation = Evaluation::newest(&cluster);
    let wanted = ["lib", "user", "justDev"].map(|name| (name, Outcome::Completed));
    assert_eq!(evaluation.outcomes(), model::packages(&wanted));
    let build = |name: &str| evaluation.entry_point(name)["build"].clone();
    assert_eq!(build("lib"), build("justDev"));
    let log = cluster.log();
    check::built_exactly_once(&log, &["lib".into(), "user".into()]);

    let assignment = &log.hand_outs_of("lib")[0].assignment;
    let made = log.messages().find_map(|(_, message)| match message {
        Message::JobUpdate { assignment: of, update: Step::BuildOutput { outputs, .. } }
            if of == assignment =>
        {
            Some(outputs.iter().map(|made| (made.name.as_str(), made.path.as_str())))
        }
        _ => None,
    });
    let base = cluster.address("http_url");
    let mut names = BTreeSet::new();
    for (name, path) in made.expect("it reported outputs") {
        names.insert(name);
        assert_eq!(evaluation.output("lib", name), path);
        let hash = path.trim_start_matches("/nix/store/").split('-').next().expect("a hash");
        let answer = gradient_suite::http::get(&base, &format!("cache/{hash}.narinfo"), None);
        assert_eq!(answer.status, 200, "{name} is not in the cache: {}", answer.body);
    }
    assert_eq!(names, ["bin", "dev", "out"].into());
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn a_failure_is_named_by_all_that_need_it() {
    let cluster = Cluster::start();
    let definitions = r#"
      base = mk "base" "echo no luck >&2; exit 7";
      ok = mk "ok" "echo ok > $out";
      mid = mk "mid" "echo ${base} ${ok} > $out";
      top = mk "top" "echo ${mid} > $out";"#;
    let body = "packages.x86_64-linux = { inherit base ok mid top; };";
    let flake = Flake::of(definitions, body);
    let said = cluster.submit(&flake.reference()).end().with_code(1);
    let wanted = model::packages(&[
        ("base", Outcome::FailedPermanent),
        ("ok", Outcome::Completed),
        // The cause is the build that failed, not the next hop.
        ("mid", Outcome::DependencyFailed("base".into())),
        ("top", Outcome::DependencyFailed("base".into())),
    ]);
    let evaluation = Evaluation::newest(&cluster);
    assert_eq!(evaluation.outcomes(), wanted);
    let log = cluster.log();
    let base = log.build("base");
    assert_eq!(said.stdout.matches(&format!("build {base} failed, which it needs")).count(), 2);
    let message = evaluation.entry_point("base")["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("exit code 7"), "{message}");
    assert!(cluster.gradient(&["logs", &base]).ok().stdout.contains("no luck"));
    let failed: Vec<&str> = log
        .events()
        .filter_map(|event| match event {
            Event::BuildFailed { build, message, .. } if *build == base => Some(message.as_str()),
            _ => None,
        })
        .collect();
    assert!(matches!(failed.as_slice(), [one] if one.contains("exit code 7")), "{failed:?}");
    for name in ["mid", "top"] {
        assert_eq!(log.hand_outs_of(name), [], "{name} never took a slot");
    }
    assert_eq!(log.succeeded(), ["ok".to_owned()].into());
    cluster.check_everything();
    cluster.finish();
}

#[test]
fn every_kind_of_error_leaves_its_neighbours_alone() {
    let cluster = Cluster::start();
    let errors = [
        ("b-throw", r#"throw "unfree: licence not accepted""#, "unfree: licence not accepted"),
        ("c-abort", r#"abort "hard stop""#, "hard stop"),
        ("d-assert", r#"assert 1 == 2; mk "never" "exit 1""#, "not equal"),
        ("e-missing", "{ }.nope", "nope"),
        ("f-type", r#"1 + "x""#, "cannot add"),
        ("g-broken", r#"if true then throw "marked as broken" else null"#, "marked as broken"),
    ];
    let attributes: Vec<String> =
        errors.iter().map(|(name, value, _)| format!("{name} = {value};")).collect();
    let body = format!(
        r#"packages.x86_64-linux = {{
        a-good = mk "a-good" "echo a > $out";
        {}
        z-good = mk "z-good" "echo z > $out";
      }};"#,
        attributes.join("\n        ")
    );
    let flake = Flake::of("", &body);
    let _ = cluster.submit(&flake.reference()).end().with_code(1);
    let evaluation = Evaluation::newest(&cluster);
    let good = ["a-good", "z-good"].map(|name| (name, Outcome::Completed));
    let bad = errors.map(|(name, _, _)| (name, Outcome::EvaluationError));
    let wanted: Vec<(&str, Outcome)> = good.into_iter().chain(bad).collect();
    assert_eq!(evaluation.outcomes(), model::packages(&wanted));
    for (name, _, words) in errors {
        let attr = format!("packages.x86_64-linux.{name}");
        let mut messages = evaluation.messages.iter();
        let message = messages.find(|message| message["attr"] == attr.as_str());
        let text = message.and_then(|message| message["text"].as_str()).unwrap_or_default();
        assert!(text.contains(words), "{name}: {text}");
        assert!(text.contains("flake.nix:"), "{name} has no position: {text}");
    }
    check::built_exactly_once(&cluster.log(), &["a-good".into(), "z-good".into()]);
    cluster.finish();
}
