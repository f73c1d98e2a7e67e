//! `gradient eval` on flakes that others stumbled over: what is a job, what is an error, and by what
//! name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use gradient_suite::eval_case::{CASES, Case, NO_FLAKES, ODD_NAMES, SYSTEM};
use gradient_suite::local::{Local, line, sorted};
use serde_json::Value;

/// Asserts the lines of one evaluation and its exit code.
#[track_caller]
fn check(local: &Local, folder: &Path, case: &Case) {
    let said = local.eval(folder, case.arguments);
    let what = &said.name.clone();
    let said = said.with_code(i32::from(!case.errors.is_empty()));
    let lines = sorted(&said);
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let (failed, found): (Vec<_>, Vec<_>) = lines.iter().partition(|l| l.get("error").is_some());
    let mut jobs: Vec<String> = found
        .iter()
        .map(|line| format!("{} {}", text(line, "attr"), text(line, "name")))
        .map(|line| line.replace(SYSTEM, "."))
        .collect();
    jobs.sort();
    assert_eq!(jobs, case.jobs, "{what}");
    assert_eq!(failed.len(), case.errors.len(), "{what}: {failed:#?}");
    for (line, (end, words)) in failed.iter().zip(case.errors) {
        assert!(text(line, "attr").ends_with(end), "{what}: {line} is not about {end}");
        assert!(text(line, "error").contains(words), "{what}: {line} does not say {words}");
        assert_eq!(line.as_object().map(|fields| fields.len()), Some(3), "{line}");
    }
    for line in found {
        let drv = text(line, "drvPath").replace("/nix/store", "");
        let file = local.path().join("root/nix/store").join(drv.trim_start_matches('/'));
        assert!(file.is_file(), "{what}: {line} is not in the store");
    }
}

/// The jobs of R01 that are found by the marks.
const MARKED: &[&str] = &[
    "legacyPackages.x86_64-linux.deep.a.b deep-b",
    "legacyPackages.x86_64-linux.top top",
    "legacyPackages.x86_64-linux.yes.inner yes-inner",
];

/// What depends on the rule of `gradient eval` that sets say by a mark whether they hold jobs.
const BY_MARKS: &[Case] = &[
    Case { flake: "R01", arguments: &[], jobs: MARKED, errors: &[] },
    Case { flake: "R01", arguments: &["legacyPackages.*.*"], jobs: MARKED, errors: &[] },
    Case { flake: "R01", arguments: &["legacyPackages.x86_64-linux.*"], jobs: MARKED, errors: &[] },
    Case {
        flake: "R01",
        arguments: &["legacyPackages.x86_64-linux.absent.inner"],
        jobs: &["legacyPackages.x86_64-linux.absent.inner absent-inner"],
        errors: &[],
    },
    Case {
        flake: "R01",
        arguments: &["legacyPackages.x86_64-linux.*", "--force-recurse"],
        jobs: &[
            "legacyPackages.x86_64-linux.absent.inner absent-inner",
            "legacyPackages.x86_64-linux.deep.a.b deep-b",
            "legacyPackages.x86_64-linux.no.inner no-inner",
            "legacyPackages.x86_64-linux.top top",
            "legacyPackages.x86_64-linux.yes.inner yes-inner",
        ],
        errors: &[],
    },
];

#[test]
fn every_case_has_its_right_result() {
    let local = Local::new();
    for case in CASES.iter().chain(BY_MARKS) {
        check(&local, &local.shared(case.flake), case);
    }
}

#[test]
fn an_evaluation_sees_nothing_of_the_machine() {
    let local = Local::new();
    for file in ["outside.txt", "../.profile"] {
        let _ = local.flake("", &[(file, "host-secret")]);
    }
    let flake = local.shared("F03");
    let said = local.eval(&flake, &[]).with_code(1);
    // Of all folders, what leads to the store.
    let lines = sorted(&said);
    let drv = line(&lines, "packages.x86_64-linux.dirlist")["drvPath"].as_str().expect("a path");
    let env = derivation(&local, drv)["env"]["v"].as_str().expect("text").to_owned();
    let listed: Value = serde_json::from_str(&env).expect("JSON");
    let root = local.path().iter().nth(1).and_then(|name| name.to_str()).expect("a folder");
    assert_eq!(listed, serde_json::json!({ root: "directory" }));
    assert!(!format!("{said:?}").contains("host-secret"));
    for file in files_of(local.path()) {
        let text = std::fs::read(&file).expect("a file");
        let is_found = text.windows(11).any(|part| part == b"host-secret");
        let is_its_own = file.ends_with("outside.txt") || file.ends_with(".profile");
        assert_eq!(is_found, is_its_own, "{}", file.display());
    }
}

/// A derivation as Nix tells it.
fn derivation(local: &Local, drv: &str) -> Value {
    let said = local.nix("nix", &["derivation", "show", drv]);
    said.json()[drv].clone()
}

/// Every file below a folder.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_of(&entry.path())),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files
}

#[test]
fn flakes_that_are_none_say_why() {
    let local = Local::new();
    for (flake, words) in NO_FLAKES {
        // Nothing is kept of it: the same again says the same.
        for _ in 0..2 {
            let said = local.eval(&local.shared(flake), &[]).with_code(1);
            assert!(said.stderr.starts_with("error: ") && said.stderr.contains(words), "{said:?}");
            assert_eq!(said.stdout, "");
            let place = match flake {
                "R11-none" | "R11-missing-arg" => "-source",
                "R11-computed" => "-source/flake.nix",
                _ => "-source/flake.nix:1:",
            };
            assert!(said.stderr.contains(place), "{said:?}");
        }
        let good = r#"{ outputs = { self }: { packages.x86_64-linux.a = derivation {
          name = "a"; system = "x86_64-linux"; builder = "/bin/sh"; }; }; }"#;
        let mended = local.flake(flake, &[("flake.nix", good)]);
        assert_eq!(local.eval(&mended, &[]).ok().json_lines().len(), 1, "{flake}");
    }
}

#[test]
fn odd_names_are_told_whole_and_found_again() {
    let local = Local::new();
    let flake = local.shared("N03");
    let said = local.eval(&flake, &[]).ok();
    let mut all = said.json_lines();
    assert_eq!(said.stdout.lines().count(), ODD_NAMES.len(), "a name broke a line");
    all.sort_by_key(|line| line["attrPath"][2].as_str().map(str::to_owned));
    let names = all.iter().map(|line| (line["attrPath"][2].as_str(), line["name"].as_str()));
    assert!(names.eq(ODD_NAMES.map(|(name, drv)| (Some(name), Some(drv)))), "{all:#?}");
    // What patterns are made of is text between quotes, also to leave something out.
    for name in ["star*", "hash#tag"] {
        let without = format!("!packages.x86_64-linux.\"{name}\"");
        let left = local.eval(&flake, &["*", &without]).ok().json_lines();
        assert_eq!(left.len(), 12, "{name}");
        assert!(left.iter().all(|line| line["attrPath"][2] != name), "{name}");
    }
    let roots = local.path().join("roots");
    let _ = local.eval(&flake, &["--gc-roots-dir", roots.to_str().expect("text")]).ok();
    assert_eq!(std::fs::read_dir(&roots).expect("a folder").count(), 13);
    assert!(!local.path().join("up").exists() && !roots.join("up").exists());
    // A name in the quotes of a pattern, with the escapes of JSON, is that attribute.
    for line in &all {
        let name = &line["attrPath"][2];
        let quoted = name.to_string().replace('$', "\\$");
        let found = local.eval(&flake, &[&format!("packages.x86_64-linux.{quoted}")]).ok();
        assert_eq!(found.json_lines(), std::slice::from_ref(line));
        let fragment = format!("{}#packages.\"x86_64-linux\".{quoted}", flake.display());
        let found = local.eval_of(&fragment.replace('%', "%25"), &[]).ok().json_lines();
        assert_eq!((found.len(), &found[0]["drvPath"]), (1, &line["drvPath"]), "{fragment}");
        assert_eq!(found[0]["attrPath"], serde_json::json!([]));
    }
    let long = local.eval(&local.shared("N05"), &[]).ok();
    let lengths: Vec<usize> =
        sorted(&long).iter().map(|line| line["attr"].as_str().map_or(0, str::len)).collect();
    assert_eq!(lengths, [25, 25, 5_022]);
    let names: Vec<_> = sorted(&long).iter().map(|line| line["name"].clone()).collect();
    assert_eq!(names, ["upper", "lower", "long"], "Foo, foo and the long one");
}

#[test]
fn derivations_are_told_as_they_are() {
    let local = Local::new();
    let d01 = sorted(&local.eval(&local.shared("D01"), &[]).ok());
    assert_eq!(d01[0]["drvPath"], d01[1]["drvPath"], "one derivation under two names");
    let outputs = d01[1]["outputs"].as_object().expect("a set");
    assert_eq!(outputs.keys().collect::<Vec<_>>(), ["bin", "dev", "out"]);
    let d03 = sorted(&local.eval(&local.shared("D03"), &[]).ok());
    let features: Vec<String> = d03
        .iter()
        .map(|line| format!("{} {}", line["name"], line["requiredSystemFeatures"]).replace('"', ""))
        .collect();
    let both = "[big-parallel,kvm]";
    assert_eq!(
        features,
        [
            "caseful [KVM]".to_owned(),
            "doubled [kvm]".to_owned(),
            "empty-list []".to_owned(),
            "empty-string []".to_owned(),
            format!("list {both}"),
            format!("newline {both}"),
            "none []".to_owned(),
            format!("string {both}"),
            "unknown [quantum]".to_owned(),
        ]
    );
    let d09 = local.shared("D09");
    let app = &local.eval(&d09, &["--show-input-drvs"]).ok().json_lines()[0];
    let inputs = app["inputDrvs"].as_object().expect("a set");
    let (drv, outputs) = inputs.iter().next().expect("one");
    assert!(inputs.len() == 1 && drv.ends_with("-mid.drv"), "{app}");
    assert_eq!(outputs, &serde_json::json!(["out"]));
    // What no derivation makes is there, too.
    let closure = |drv: &str| {
        let said = local.nix("nix-store", &["--query", "--requisites", drv]).stdout;
        said.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let sources: Vec<String> = closure(app["drvPath"].as_str().expect("a path"))
        .into_iter()
        .filter(|path| !path.ends_with(".drv"))
        .collect();
    let ends = |end: &str| sources.iter().filter(|path| path.ends_with(end)).count();
    assert_eq!((sources.len(), ends("-data"), ends("-settings.conf")), (2, 1, 1), "{sources:?}");
    for source in sources {
        assert!(local.path().join("root").join(&source[1..]).exists(), "{source}");
    }
    let d11 = local.eval(&local.shared("D11"), &[]).ok().json_lines();
    let all: BTreeSet<String> =
        d11.iter().flat_map(|line| closure(line["drvPath"].as_str().expect("a path"))).collect();
    assert_eq!(all.len(), 706, "4 of the diamond, 401 of the chain, 301 of the fan-in");
    let r12 = sorted(&local.eval(&local.shared("R12"), &[]).ok());
    assert!(r12.iter().all(|line| line["drvPath"] == r12[0]["drvPath"]), "{r12:#?}");
    let d05 = local.eval(&local.shared("D05"), &[]).with_code(1);
    let warning = "warning: packages.x86_64-linux.emptyHash: found empty hash, assuming 'sha256-";
    assert_eq!(d05.stderr.matches(warning).count(), 1, "{}", d05.stderr);
    let d10 = sorted(&local.eval(&local.shared("D10"), &[]).with_code(1));
    let names: Vec<_> = d10.iter().filter_map(|line| line["name"].as_str()).collect();
    assert!(names.contains(&"a+b-._?=c") && names.contains(&"x.drv.txt"), "{names:?}");
    assert!(names.contains(&"n".repeat(200).as_str()), "{names:?}");
    let failed: Vec<_> = d10.iter().filter(|line| line.get("error").is_some()).collect();
    assert!(failed.iter().any(|line| line["attr"] == "packages.x86_64-linux.tooLong"));
}

#[test]
fn trees_may_be_deep() {
    let local = Local::new();
    let flake = local.shared("R10");
    let lines = sorted(&local.eval(&flake, &[]).ok());
    let depths: Vec<_> = lines.iter().map(|l| l["attrPath"].as_array().map(Vec::len)).collect();
    assert_eq!(depths, [Some(304), Some(3)]);
}

#[test]
fn fifty_thousand_errors_are_fifty_thousand_lines() {
    let local = Local::new();
    let said = local.eval(&local.shared("R08"), &[]).with_code(1);
    let lines = sorted(&said);
    let (failed, found): (Vec<_>, Vec<_>) = lines.iter().partition(|l| l.get("error").is_some());
    assert_eq!((failed.len(), found.len()), (49_999, 1));
    assert!(said.stdout.lines().all(|line| line.len() < 400), "one over-long line");
}

#[test]
fn warnings_stand_on_standard_error_with_their_attribute() {
    let local = Local::new();
    let said = local.eval(&local.shared("X06"), &[]).ok();
    assert_eq!(sorted(&said).len(), 4);
    let mut told: Vec<&str> = said.stderr.split("warning: packages").skip(1).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            ".x86_64-linux.both: evaluation warning: old option\n",
            ".x86_64-linux.warned: evaluation warning: first line\nsecond line\nthird line\n",
        ]
    );
}

#[test]
fn machines_and_numbers_of_evaluators_make_no_difference() {
    let result = |flake: &str, workers: &str| {
        let local = Local::new();
        let said = local.eval(&local.shared(flake), &["--workers", workers]).with_code(1);
        sorted(&said)
    };
    for flake in ["R06", "X01", "X04"] {
        assert_eq!(result(flake, "1"), result(flake, "8"), "{flake}");
    }
    // A commit says who it is, and when it was made, wherever it was checked out.
    let commit = |local: &Local| {
        let flake = local.shared("F05");
        let git = |arguments: &[&str]| {
            let date = "2001-02-03T04:05:06Z";
            let done = Command::new("git")
                .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-C"])
                .arg(&flake)
                .args(arguments)
                .envs([("GIT_AUTHOR_DATE", date), ("GIT_COMMITTER_DATE", date)])
                .output()
                .expect("git");
            assert!(done.status.success(), "{done:?}");
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "one"]);
        (git(&["rev-parse", "HEAD"]), flake)
    };
    let [first, second] = [Local::new(), Local::new()].map(|local| {
        let (commit, flake) = commit(&local);
        let lines = sorted(&local.eval(&flake, &[]).with_code(1));
        let name = |attr: &str| line(&lines, &format!("{SYSTEM}{attr}"))["name"].clone();
        assert_eq!(name("rev"), format!("r-{commit}"));
        assert_eq!(name("modified"), "m981173106");
        let text = std::fs::read_to_string(flake.join("flake.nix")).expect("read");
        let _ = local.flake("F05", &[("flake.nix", &format!("{text}\n"))]);
        let said = local.eval(&flake, &[]).with_code(1);
        let dirty = sorted(&said);
        assert_eq!(line(&dirty, &format!("{SYSTEM}rev"))["name"], "r-none");
        assert!(said.stderr.contains("changes that are not committed"), "{}", said.stderr);
        lines
    });
    assert_eq!(first, second);
}

#[test]
fn an_attribute_that_ends_the_evaluator_is_tried_once_more() {
    let local = Local::new();
    let said = local.eval(&local.shared("X02"), &["--stats"]).with_code(1);
    let stats = said.stderr.lines().find(|line| line.starts_with('{')).expect("statistics");
    let stats: Value = serde_json::from_str(stats).expect("JSON");
    assert_eq!((&stats["attributes"], &stats["errors"]), (&2.into(), &3.into()));
    assert_eq!(stats["crashes"], 2);
    assert!(!said.stdout.contains("EOF") && !said.stderr.contains("EOF"), "{said:?}");
}
