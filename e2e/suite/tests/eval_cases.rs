//! `gradient eval` on flakes that others stumbled over: what is a job, what is an error, and by what
//! name.

use std::path::Path;

use gradient_suite::local::{Local, sorted};
use serde_json::Value;

/// A flake, how it is evaluated, and what has to come of it.
struct Case {
    flake: &'static str,
    arguments: &'static [&'static str],
    /// `attr name`.
    jobs: &'static [&'static str],
    /// The end of `attr`, and words of the error.
    errors: &'static [(&'static str, &'static str)],
}

const SYSTEM: &str = "packages.x86_64-linux.";

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

const CASES: &[Case] = &[
    Case {
        flake: "N01",
        arguments: &[],
        jobs: &[".\"tool-1.2\" tool-dotted", ".plain plain"],
        errors: &[],
    },
    Case {
        flake: "N01",
        arguments: &["packages.x86_64-linux.\"tool-1.2\""],
        jobs: &[".\"tool-1.2\" tool-dotted"],
        errors: &[],
    },
    Case { flake: "R01", arguments: &[], jobs: MARKED, errors: &[] },
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
    Case {
        flake: "R04",
        arguments: &[],
        jobs: &[".functorDrv callable-drv", ".ok ok"],
        errors: &[
            (".fn", "not a derivation (a function)"),
            (".functorSet", "not a derivation (a set that is called like a function)"),
        ],
    },
    Case {
        flake: "R05",
        arguments: &[],
        jobs: &[".real real"],
        errors: &[
            (".drvPathIsOut", "does not end in .drv"),
            (".drvPathIsText", "'not-a-path' is not a store path"),
            (".fakeType", "without drvPath"),
            (".justString", "not a derivation (a string)"),
            (".onlyOutPath", "a set that stands for a path"),
            (".toStringSet", "a set that is printed as a string"),
        ],
    },
    Case {
        flake: "R06",
        arguments: &[],
        jobs: &["checks.x86_64-linux.good good-check"],
        errors: &[
            (".empty", "an empty set"),
            (".fn", "a function"),
            (".int", "an integer"),
            (".list", "a list"),
            (".nul", "null"),
            (".path", "a path"),
            (".set", "a set"),
            (".str", "a string"),
        ],
    },
    Case {
        flake: "R07",
        arguments: &[],
        jobs: &[
            "checks.app no-system-level",
            "packages.aarch64-darwin.linuxInDarwin wrong-folder",
            "packages.aarch64-linux.app app-arm",
            "packages.riscv64-none.app app-odd",
            "packages.x86_64-linux one-level-too-high",
        ],
        errors: &[],
    },
    Case {
        flake: "R08",
        arguments: &["packages.x86_64-linux.p777"],
        jobs: &[".p777 the-good-one"],
        errors: &[],
    },
    Case { flake: "R11-empty", arguments: &[], jobs: &[], errors: &[] },
    Case {
        flake: "R11-empty",
        arguments: &["packages.x86_64-linux.hello"],
        jobs: &[],
        errors: &[(".hello", "matched no derivations in the flake")],
    },
    Case {
        flake: "R12",
        arguments: &[],
        jobs: &[
            ".alias app",
            ".app app",
            ".default app",
            "checks.x86_64-linux.app app",
            "hydraJobs.app.x86_64-linux app",
        ],
        errors: &[],
    },
    Case { flake: "R13", arguments: &[], jobs: &[".app app"], errors: &[] },
    Case {
        flake: "R13",
        arguments: &["packages.x86_64-linux.app.tests.unit"],
        jobs: &[".app.tests.unit unit"],
        errors: &[],
    },
    Case {
        flake: "X01",
        arguments: &[],
        jobs: &[".a-good a-good", ".z-good z-good"],
        errors: &[
            (".b-throw", "unfree: licence not accepted\nat /nix/store/"),
            (".c-abort", "hard stop"),
            (".d-assert", "is not equal to"),
            (".e-missing", "attribute 'nope' missing\nat /nix/store/"),
            (".f-type", "cannot add a string to an integer"),
            (".g-broken", "marked as broken, refusing to evaluate"),
        ],
    },
    Case {
        flake: "X02",
        arguments: &[],
        jobs: &[".a-good a-good", ".z-good z-good"],
        errors: &[
            (".b-blackhole", "infinite recursion encountered"),
            (".c-overflow", "stack overflow; max-call-depth exceeded"),
            (".d-json", "stack overflow (possible infinite recursion)"),
        ],
    },
    Case {
        flake: "X04",
        arguments: &[],
        jobs: &[".good good"],
        errors: &[
            (".badArg", "arg boom"),
            (".badEnv", "env boom"),
            (".badName", "name boom"),
            (".badOutputs", "empty list"),
            (".badSystem", "system boom"),
            (".dupOutputs", "duplicate derivation output 'out'"),
            (".emptyName", "name must not be empty"),
            (".illegalName", "illegal character ' '"),
            (".noBuilder", "'builder' missing"),
            (".nullSystem", "'system' missing"),
        ],
    },
    Case {
        flake: "D01",
        arguments: &[],
        jobs: &[".justDev lib", ".lib lib", ".user user"],
        errors: &[],
    },
    Case {
        flake: "F05",
        arguments: &["*", "!packages.x86_64-linux.modified"],
        jobs: &[".env e--", ".good good", ".rev r-none"],
        errors: &[
            (".sys", "attribute 'currentSystem' missing"),
            (".time", "attribute 'currentTime' missing"),
        ],
    },
];

#[test]
fn every_case_has_its_right_result() {
    let local = Local::new();
    for case in CASES {
        check(&local, &local.shared(case.flake), case);
    }
    let outside = local.flake("", &[("outside.txt", "host-secret")]);
    let f03 = local.shared("F03");
    let _ = local.flake("F03", &[("home.nix", "builtins.readFile ~/.profile\n")]);
    let case = Case {
        flake: "F03",
        arguments: &[],
        jobs: &[".dirlist dirlist", ".good good"],
        errors: &[
            (".absolute", "forbidden in pure evaluation mode"),
            (".home", "can not be resolved in pure mode"),
            (".parent", "forbidden in pure evaluation mode"),
        ],
    };
    check(&local, &f03, &case);
    assert!(outside.is_dir());
    let said = local.eval(&f03, &["packages.x86_64-linux.parent"]);
    assert!(!format!("{said:?}").contains("host-secret"));
}

#[test]
fn flakes_that_are_none_say_why() {
    let local = Local::new();
    let rows = [
        ("R11-none", "lacks attribute 'outputs'"),
        ("R11-notfn", "expected a function but got an integer"),
        ("R11-throws", "outputs boom"),
        ("R11-missing-arg", "tools"),
        ("R11-syntax", "syntax error, unexpected ';'"),
        ("R11-computed", "must be an attribute set"),
    ];
    for (flake, words) in rows {
        let said = local.eval(&local.shared(flake), &[]).with_code(1);
        assert!(said.stderr.starts_with("error: ") && said.stderr.contains(words), "{said:?}");
        assert_eq!(said.stdout, "");
    }
}

#[test]
fn odd_names_are_told_whole_and_found_again() {
    let local = Local::new();
    let flake = local.shared("N03");
    let said = local.eval(&flake, &[]).ok();
    assert_eq!(said.stdout.lines().count(), 13);
    let all = sorted(&said);
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
    let _ = local.flake("D09", &[("data/a", "alpha\n")]);
    let app = &local.eval(&d09, &["--show-input-drvs"]).ok().json_lines()[0];
    let inputs = app["inputDrvs"].as_object().expect("a set");
    let (drv, outputs) = inputs.iter().next().expect("one");
    assert!(inputs.len() == 1 && drv.ends_with("-mid.drv"), "{app}");
    assert_eq!(outputs, &serde_json::json!(["out"]));
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
