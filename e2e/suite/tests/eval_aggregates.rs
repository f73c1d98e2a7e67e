//! `gradient eval --constituents`: aggregates and the jobs that they are made of.

use gradient_suite::local::{Local, MK, line, sorted};
use serde_json::{Value, json};

const JOBS: &str = r#"{
  outputs = { self }:
    let
      @mk@
      aggregate = name: constituents: extra:
        mk name ({ _hydraAggregate = true; inherit constituents; } // extra);
      globs = { _hydraGlobConstituents = true; };
    in {
      jobs = {
        plain = mk "plain" { };
        multi = mk "multi" { outputs = [ "dev" "out" ]; };
        broken = throw "broken job";
        sub = { recurseForDerivations = true; a = mk "sub-a" { }; "b.c" = mk "sub-bc" { }; };
        direct = aggregate "direct" [ self.jobs.plain self.jobs.multi.dev ] { };
        named = aggregate "named" [ "plain" "multi" ] { };
        above = aggregate "above" [ "named" self.jobs.plain ] { };
        globbed = aggregate "globbed" [ "sub.*" "[m]ulti" ] globs;
        everything = aggregate "everything" [ "*" ] globs;
        bad = aggregate "bad" [ "broken" "nowhere" "plain" ] { };
        empty = aggregate "empty" [ "nowhere*" ] globs;
        unsure = aggregate "unsure" [ ] { _hydraAggregate = "yes"; };
        without = mk "without" { _hydraAggregate = true; };
        off = aggregate "off" [ "plain" ] { _hydraAggregate = false; };
      };
      circle = {
        one = aggregate "one" [ "two" ] { };
        two = aggregate "two" [ "one" ] { };
        three = aggregate "three" [ "one" ] { };
        leaf = mk "leaf" { };
      };
    };
}"#;

fn eval(local: &Local, attr: &str, flags: &[&str]) -> (Vec<Value>, String) {
    let flake = local.flake("jobs", &[("flake.nix", &JOBS.replace("@mk@", MK))]);
    let said = local.eval_of(&format!("{}#{attr}", flake.display()), flags).with_code(1);
    (sorted(&said), said.stderr)
}

/// Names of the derivations that these paths are.
fn names(paths: &Value) -> Vec<String> {
    let paths = paths.as_array().expect("a list").iter();
    let name = |path: &Value| path.as_str().expect("a path")[44..].replace(".drv", "");
    paths.map(name).collect()
}

#[test]
fn aggregates_name_what_they_are_made_of() {
    let local = Local::new();
    let roots = local.path().join("roots");
    let roots = roots.to_str().expect("text");
    let (lines, stderr) =
        eval(&local, "jobs", &["--constituents", "--gc-roots-dir", roots, "--show-input-drvs"]);
    let of = |attr: &str| line(&lines, attr);
    assert_eq!(of("plain")["constituents"], json!([]));
    assert_eq!(of("plain")["namedConstituents"], json!([]));
    assert_eq!(of("plain")["globConstituents"], json!(false));
    assert_eq!(of("off")["constituents"], json!([]));
    assert_eq!(names(&of("direct")["constituents"]).len(), 2);
    assert_eq!(of("direct")["namedConstituents"], json!([]));
    for (attr, jobs) in [
        ("named", &["multi", "plain"][..]),
        ("above", &["plain", "named"]),
        ("globbed", &["multi", "sub-bc", "sub-a"]),
    ] {
        assert_eq!(names(&of(attr)["constituents"]), jobs, "{attr}");
        assert_eq!(of(attr).get("namedConstituents"), None, "{attr}");
        assert_eq!(of(attr).get("error"), None, "{attr}");
        // The derivation that was written has the jobs as inputs and a path of its own.
        let drv = of(attr)["drvPath"].as_str().expect("a path");
        let there = local.nix("nix-store", &["--query", "--references", drv]).stdout;
        for job in of(attr)["constituents"].as_array().expect("a list") {
            assert!(there.contains(job.as_str().expect("a path")), "{attr}: {there}");
        }
        assert!(std::path::Path::new(roots).join(&drv[11..]).is_symlink(), "{attr}");
    }
    let drv = |attr: &str| of(attr)["drvPath"].as_str().expect("a path").to_owned();
    let built = local.nix("nix-store", &["--realise", &drv("above")]).stdout;
    let expected = of("above")["outputs"]["out"].as_str().expect("a path");
    assert!(built.trim().ends_with(expected), "{built} is not {expected}");
    for attr in ["plain", "multi", "named"] {
        let out = of(attr)["outputs"].as_object().expect("a set").values().next().expect("one");
        let name = &out.as_str().expect("a path")[11..];
        assert!(local.path().join("root/nix/store").join(name).exists(), "{attr} was not built");
    }
    let (again, _) = eval(&local, "jobs", &["--constituents", "--check-cache-status"]);
    assert_eq!(line(&again, "above")["drvPath"], of("above")["drvPath"]);
    assert_eq!(line(&again, "above")["cacheStatus"], "local");
    assert_eq!(line(&again, "globbed")["cacheStatus"], "notBuilt");

    let error = |attr: &str| of(attr)["error"].as_str().expect("an error").to_owned();
    let bad = error("bad");
    assert!(bad.starts_with("broken: broken job") && bad.ends_with("nowhere: does not exist\n"));
    assert!(of("bad")["drvPath"].is_string());
    assert_eq!(error("empty"), "nowhere*: constituent glob pattern had no matches\n");
    assert!(error("everything").contains("broken: broken job"));
    assert!(error("unsure").contains("expected a Boolean"));
    assert!(error("without").contains("must have a \u{2018}constituents\u{2019}"));
    assert!(stderr.contains("warning: aggregate 'bad' names 'nowhere', which is no job\n"));
}

#[test]
fn aggregates_in_a_circle_fail() {
    let local = Local::new();
    let (lines, _) = eval(&local, "circle", &["--constituents"]);
    let error = |attr: &str| line(&lines, attr)["error"].as_str().unwrap_or_default().to_owned();
    assert!(error("one").starts_with("Dependency cycle: ") && error("one") == error("two"));
    assert_eq!(error("three"), "Skipping aggregate because of a dependency cycle");
    assert_eq!(error("leaf"), "");
}

#[test]
fn without_the_flag_aggregates_are_as_others() {
    let local = Local::new();
    let (lines, _) = eval(&local, "jobs", &[]);
    let named = line(&lines, "named").as_object().expect("an object");
    assert!(!named.keys().any(|key| key.to_lowercase().contains("constituents")));
    assert_eq!(line(&lines, "bad").get("error"), None);
}
