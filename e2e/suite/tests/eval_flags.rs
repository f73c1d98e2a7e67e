//! `gradient eval`: what its flags tell, and how it ends.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use gradient_suite::local::{Local, MK, line, sorted};
use gradient_suite::process;
use gradient_suite::run::Running;
use gradient_suite::wait::{LIMIT, until, until_true};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const JOBS: &str = r#"{
  outputs = { self }:
    let
      @mk@
    in {
      jobs = {
        plain = mk "plain" { requiredSystemFeatures = [ ]; };
        multi = mk "multi" { outputs = [ "dev" "out" ]; };
        user = mk "user" { p = self.jobs.plain; m = self.jobs.multi.dev; };
        renamed = mk "old" { } // { name = "new"; };
        described = mk "described" { } // { meta = {
          description = "two\nlines \"quoted\" ä"; broken = false; licence = { free = true; };
          f = x: x; drv = self.jobs.plain; nothing = null; file = ./flake.nix; list = [ 1 2.5 ];
          functions = [ (x: x) ]; }; };
        badly = mk "badly" { } // { meta.description = throw "meta boom"; };
        function = { a ? "called" }: mk a { };
        strange = { a }: mk a { };
        plainFunction = a: mk a { };
        one = 1;
        unmarked.inner = mk "inner" { };
        marked = { recurseForDerivations = true; inner = mk "inner" { }; };
        unsure = { recurseForDerivations = "yes"; inner = mk "inner" { }; };
      };
      single = mk "single" { };
    };
}"#;

fn jobs(local: &Local) -> String {
    format!("{}#jobs", local.flake("jobs", &[("flake.nix", &JOBS.replace("@mk@", MK))]).display())
}

fn attrs(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["attr"].as_str()).collect()
}

#[test]
fn a_fragment_is_walked_by_the_rule_of_nix_eval_jobs() {
    let local = Local::new();
    let reference = jobs(&local);
    let lines = sorted(&local.eval_of(&reference, &[]).with_code(1));
    let expected = [
        "badly",
        "described",
        "function",
        "marked.inner",
        "multi",
        "plain",
        "renamed",
        "strange",
        "unsure",
        "user",
    ];
    assert_eq!(attrs(&lines), expected);
    assert_eq!(line(&lines, "renamed")["name"], "new");
    assert_eq!(line(&lines, "function")["name"], "called");
    let error = line(&lines, "strange")["error"].to_string();
    assert!(error.contains("has an argument without a value ('a')"), "{error}");
    assert!(
        line(&lines, "unsure")["error"].to_string().contains("recurseForDerivations is a string")
    );
    let fields = |line: &Value| line.as_object().map(|f| f.keys().cloned().collect::<Vec<_>>());
    let usual =
        ["attr", "attrPath", "drvPath", "name", "outputs", "requiredSystemFeatures", "system"];
    assert_eq!(fields(line(&lines, "plain")), Some(usual.map(str::to_owned).into()));

    let forced = sorted(&local.eval_of(&reference, &["--force-recurse"]).with_code(1));
    assert!(attrs(&forced).contains(&"unmarked.inner") && attrs(&forced).contains(&"unsure.inner"));

    let root = reference.replace("#jobs", "#single");
    let single = local.eval_of(&root, &[]).ok().json_lines();
    assert_eq!((single[0]["attr"].as_str(), &single[0]["attrPath"]), (Some(""), &json!([])));

    let select = "j: { inherit (j) plain; inner = j.unmarked; }";
    let selected = sorted(&local.eval_of(&reference, &["--select", select]).ok());
    assert_eq!(attrs(&selected), ["plain"]);
    local.eval_of(&reference.replace("#jobs", "#nope"), &[]).refused(1, "attribute 'nope'");
}

#[test]
fn a_fragment_again_is_answered_without_an_evaluator() {
    let local = Local::new();
    let reference = jobs(&local);
    let evaluated = |reference: &str, flags: &[&str], code: i32| {
        let said = local.eval_of(reference, &[&["--stats"], flags].concat()).with_code(code);
        let mut last = said.stderr.lines().rev().filter(|line| line.starts_with('{'));
        let stats: Value = serde_json::from_str(last.next().expect("a line")).expect("JSON");
        (sorted(&said), stats["isCached"] == true)
    };
    let rounds = [
        (reference.clone(), vec![], 1),
        (reference.clone(), vec!["--force-recurse"], 1),
        (reference.replace("#jobs", "#single"), vec![], 0),
        (reference.replace("#jobs", "#"), vec!["--force-recurse"], 1),
    ];
    for (reference, flags, code) in rounds {
        let (first, is_cached) = evaluated(&reference, &flags, code);
        assert!(!is_cached && !first.is_empty(), "{reference} {flags:?}");
        assert_eq!(evaluated(&reference, &flags, code), (first, true), "{reference} {flags:?}");
    }
}

#[test]
fn meta_is_told_as_far_as_it_can_be() {
    let local = Local::new();
    let lines = sorted(&local.eval_of(&jobs(&local), &["--meta"]).with_code(1));
    let expected = json!({
        "description": "two\nlines \"quoted\" ä", "broken": false, "licence": { "free": true },
        "list": [1, 2.5],
    });
    assert_eq!(line(&lines, "described")["meta"], expected);
    assert_eq!(line(&lines, "plain").get("meta"), Some(&Value::Null));
    assert!(line(&lines, "badly")["error"].to_string().contains("meta boom"));
}

#[test]
fn statistics_come_last_and_not_between_the_lines() {
    let local = Local::new();
    let reference = jobs(&local).replace("#jobs", "");
    let evaluated = |flags: &[&str]| {
        let arguments = [&["jobs.marked.inner", "single"], flags].concat();
        local.eval_of(&reference, &arguments).ok()
    };
    let (told, plain) = (evaluated(&["--stats"]), evaluated(&[]));
    assert_eq!(sorted(&told), sorted(&plain));
    let last = told.stderr.lines().last().expect("a line");
    let stats: Value = serde_json::from_str(last).expect("JSON");
    assert!(!plain.stderr.contains("allocBytes"), "{}", plain.stderr);
    assert_eq!(stats["attributes"], sorted(&told).len());
    let patterns: Vec<_> = stats["entryPoints"].as_array().expect("a list").iter().collect();
    assert_eq!(patterns.len(), 2);
    assert_eq!(patterns[0]["pattern"], "jobs.marked.inner");
    for used in [&stats["total"], patterns[0], patterns[1]] {
        for field in ["calls", "wallUs", "cpuUs", "allocBytes", "heapPeakBytes", "rssPeakBytes"] {
            assert!(used[field].as_u64() > Some(0), "{field} of {used}");
        }
    }
    // What an evaluation cache answered used nothing, which is not the same as zero.
    let again = evaluated(&["--stats"]);
    let stats: Value =
        serde_json::from_str(again.stderr.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&stats["isCached"], &stats["total"]), (&json!(true), &json!({ "calls": 0 })));
}

#[test]
fn an_attribute_that_takes_too_much_memory_is_an_error() {
    let local = Local::new();
    let text = format!(
        r#"let {MK} in {{ good = mk "good" {{ }}; bomb = mk (builtins.deepSeq (builtins.genList
          (n: {{ inherit n; s = builtins.hashString "sha512" (toString n); }}) 20000000) "b") {{ }}; }}"#
    );
    let arguments = ["-E", &text, "--kill-memory-size", "300", "--workers", "1"];
    let lines = sorted(&Running::start(&mut local.eval_command(&arguments)).end().with_code(1));
    assert_eq!(attrs(&lines), ["bomb", "good"]);
    let error = line(&lines, "bomb")["error"].to_string();
    for words in ["signal: 9 (SIGKILL)", "one evaluator may have 300 MiB", "peak memory "] {
        assert!(error.contains(words), "{words} is not in {error}");
    }
}

#[test]
fn a_function_is_applied_to_every_derivation() {
    let local = Local::new();
    let reference = jobs(&local);
    let apply = "drv: { inherit (drv) name; outputs = builtins.length drv.outputs; } # all of it";
    let lines = sorted(&local.eval_of(&reference, &["--apply", apply]).with_code(1));
    assert_eq!(line(&lines, "multi")["extraValue"], json!({ "name": "multi", "outputs": 2 }));
    let lines = sorted(&local.eval_of(&reference, &["--apply", "drv: drv.name"]).with_code(1));
    let error = line(&lines, "plain")["error"].to_string();
    assert!(error.contains("apply needs to evaluate to an attrset"), "{error}");
    let broken = local.eval_of(&reference, &["--apply", "drv: ("]).with_code(1);
    assert!(broken.stderr.contains("syntax error"), "{}", broken.stderr);
}

#[test]
fn expressions_are_impure_and_called() {
    let local = Local::new();
    let text = "{ a ? builtins.getEnv \"EVAL_TEST\" }: { x = derivation {
      name = a; system = builtins.currentSystem; builder = ./builder; }; }";
    std::fs::write(local.path().join("builder"), "x").expect("written");
    let uri = local.store_uri();
    let mut command = local.eval_command(&["--store", &uri, "-E", text]);
    let said = Running::start(command.env("EVAL_TEST", "seen").current_dir(local.path())).end();
    assert_eq!(line(&said.ok().json_lines(), "x")["name"], "seen");

    let flake = r#"{ outputs = { self }: { jobs.x = derivation {
      name = "n${builtins.getEnv "EVAL_TEST"}"; system = "x"; builder = "b"; }; }; }"#;
    let flake = local.flake("impure", &[("flake.nix", flake)]);
    for (flags, name) in [(&["--impure"][..], "nseen"), (&[], "n")] {
        let reference = format!("{}#jobs", flake.display());
        let mut command = local.eval_command(&["--store", &uri, "--flake", &reference]);
        let said = Running::start(command.args(flags).env("EVAL_TEST", "seen")).end().ok();
        assert_eq!(line(&said.json_lines(), "x")["name"], name);
    }
}

#[test]
fn the_cache_status_is_that_of_the_outputs_and_all_they_need() {
    let local = Local::new();
    let reference = jobs(&local);
    let of = |attr: &str| {
        let lines = local.eval_of(&format!("{reference}.{attr}"), &["--check-cache-status"]);
        lines.ok().json_lines().remove(0)
    };
    let user = of("user");
    assert_eq!((&user["isCached"], &user["cacheStatus"]), (&json!(false), &json!("notBuilt")));
    let drv = |line: &Value| line["drvPath"].as_str().expect("a path").to_owned();
    let (plain, multi) = (of("plain"), of("multi"));
    assert_eq!(plain["cacheStatus"], "notBuilt");
    let mut needed = [drv(&plain), drv(&multi)];
    needed.sort();
    assert_eq!(user["neededBuilds"], json!(needed));
    assert_eq!(user["neededSubstitutes"], json!([]));
    let _ = local.nix("nix-store", &["--realise", &drv(&plain)]);
    let plain = of("plain");
    assert_eq!((&plain["isCached"], &plain["cacheStatus"]), (&json!(true), &json!("local")));
    assert_eq!(of("user")["neededBuilds"], json!([drv(&multi)]));
}

#[test]
fn outputs_that_are_only_known_after_the_build_are_null() {
    let local = Local::new();
    let text = r#"let mk = name: extra: derivation ({ inherit name; system = "x"; builder = "b"; } // extra);
      ca = mk "ca" { __contentAddressed = true; outputHashMode = "recursive"; outputHashAlgo = "sha256"; };
      in { inherit ca; above = mk "above" { inherit ca; }; }"#;
    let uri = local.store_uri();
    let features = ["--option", "extra-experimental-features", "ca-derivations"];
    let arguments = ["--store", &uri, "-E", text, "--check-cache-status"];
    let said = Running::start(local.eval_command(&arguments).args(features)).end().ok();
    let lines = sorted(&said);
    for attr in ["above", "ca"] {
        assert_eq!(line(&lines, attr)["outputs"], json!({ "out": null }));
        assert_eq!(line(&lines, attr)["cacheStatus"], "notBuilt", "{lines:#?}");
    }
    let without = Running::start(&mut local.eval_command(&arguments)).end().with_code(1);
    assert!(line(&sorted(&without), "ca")["error"].to_string().contains("ca-derivations"));
}

#[test]
fn roots_keep_derivations() {
    let local = Local::new();
    let roots = local.path().join("roots");
    let flags = ["--gc-roots-dir", roots.to_str().expect("text")];
    let reference = format!("{}.marked", jobs(&local));
    let eval = || local.eval_of(&reference, &flags).ok().json_lines().remove(0);
    let kept = eval();
    // A link that is there may not be registered.
    let registered = local.path().join("root/nix/var/nix/gcroots/auto");
    let entries = || std::fs::read_dir(&registered).expect("a folder").flatten();
    assert_eq!(entries().count(), 1);
    entries().for_each(|entry| std::fs::remove_file(entry.path()).expect("removed"));
    assert_eq!(eval(), kept, "a root that is there stays");
    let drv = Path::new(kept["drvPath"].as_str().expect("a path"));
    let link = roots.join(drv.file_name().expect("a name"));
    assert_eq!(std::fs::read_link(&link).expect("a link"), drv);
    let other = local.eval_of(&format!("{}.plain", jobs(&local)), &[]).ok().json_lines();
    let _ = local.nix("nix-store", &["--gc"]);
    let left = |line: &Value| {
        let name = Path::new(line["drvPath"].as_str().expect("a path")).file_name().expect("name");
        local.path().join("root/nix/store").join(name).exists()
    };
    assert!(left(&kept) && !left(&other[0]));
}

#[test]
fn nothing_is_written_without_a_store() {
    let local = Local::new();
    let reference = jobs(&local);
    let mut command = local.eval_command(&["--no-instantiate", "--flake", &reference]);
    let lines = sorted(&Running::start(&mut command).end().with_code(1));
    let written = sorted(&local.eval_of(&reference, &[]).with_code(1));
    assert_eq!(line(&lines, "user")["drvPath"], line(&written, "user")["drvPath"]);
    assert_eq!(line(&lines, "user").get("requiredSystemFeatures"), None);
    let left: Vec<_> = std::fs::read_dir(local.path()).expect("a folder").flatten().collect();
    assert!(
        left.iter().all(|entry| !entry.file_name().to_string_lossy().contains("gradient-eval"))
    );
    assert!(!local.path().join("data/eval-store").exists());
    let refused = ["--show-input-drvs", "--check-cache-status", "--constituents"];
    for flag in refused {
        let mut command = local.eval_command(&["--no-instantiate", flag, "--flake", &reference]);
        let said = Running::start(&mut command).end().with_code(2);
        assert!(said.stderr.contains("cannot be used with"), "{}", said.stderr);
    }
}

#[test]
fn traces_are_whole_and_plain() {
    let local = Local::new();
    let text = r#"{ outputs = { self }: let inner = x: throw "deep ${x}"; outer = x: inner x; in {
      packages.x86_64-linux.a = outer "down"; }; }"#;
    let flake = local.flake("trace", &[("flake.nix", text)]);
    let error = |flags: &[&str]| {
        let lines = local.eval(&flake, flags).with_code(1).json_lines();
        lines[0]["error"].as_str().expect("an error").to_owned()
    };
    let (short, long) = (error(&[]), error(&["--show-trace"]));
    assert!(
        short.starts_with("deep down\nat /nix/store/") && short.lines().count() == 2,
        "{short}"
    );
    assert!(long.contains("while calling 'outer'") && long.contains("while calling 'inner'"));
    assert!(long.ends_with("error: deep down") && !long.contains('\u{1b}'), "{long}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let local = Local::new();
    let reference = jobs(&local);
    local.eval_of(&reference, &["packages.*"]).refused(2, "exclude each other");
    local.eval_of(&reference.replace("#jobs", "#jobs.*"), &[]).refused(2, "wildcards are patterns");
    local.eval_of(&reference, &["--option", "max-jobs", "3"]).refused(2, "--option takes");
    local.eval_of(&reference, &["--override-input", "a//b", "path:/x"]).refused(2, "is no input");
}

#[test]
fn a_stop_leaves_nothing_behind() {
    let local = Local::new();
    let flake = local.shared("R08").display().to_string();
    let mut command =
        local.eval_command(&["--no-instantiate", "--workers", "2", "--flake", &flake]);
    let running = Running::start(&mut command);
    let evaluators = || {
        let all = process::descendants(running.pid()).into_iter();
        let pids: Vec<_> =
            all.filter(|one| one.program() == "gradient-worker").map(|one| one.pid).collect();
        Some(pids).filter(|pids| pids.len() == 2)
    };
    let pids = until("evaluators", LIMIT, evaluators);
    running.signal(Signal::SIGINT);
    let said = running.end().with_code(130);
    assert!(said.stderr.ends_with("error: stopped\n"), "{}", said.stderr);
    until_true("the end of the evaluators", LIMIT, || {
        pids.iter().all(|pid| !process::is_alive(*pid))
    });
    let entries = std::fs::read_dir(local.path()).expect("a folder").flatten();
    let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    assert!(
        !names.iter().any(|name| name.to_string_lossy().contains("gradient-eval")),
        "{names:?}"
    );
}

#[test]
fn what_cannot_be_written_to_standard_error_changes_nothing_else() {
    let local = Local::new();
    let uri = local.store_uri();
    let text = r#"{ outputs = { self }: { packages.x86_64-linux = {
        good = builtins.warn "old" (derivation { name = "good"; system = "x86_64-linux"; builder = "/bin/sh"; });
        bad = throw "bad";
      }; }; }"#;
    let flake = local.flake("says-much", &[("flake.nix", text)]).display().to_string();
    for (flake, code, lines) in [(flake.as_str(), 1, 2), ("/nowhere/at/all", 2, 0)] {
        let mut command = local.eval_command(&["--store", &uri, "--stats", "--flake", flake]);
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let output = command.stderr(full).output().expect("gradient starts");
        assert_eq!(output.status.code(), Some(code), "{flake}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), lines, "{flake}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let local = Local::new();
    let flake = local.shared("R08").display().to_string();
    let uri = local.store_uri();
    let mut command = local.eval_command(&["--store", &uri, "--flake", &flake]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("gradient starts");
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut first).expect("a line");
    drop(out);
    assert!(first.starts_with("{\"attr\":"), "{first}");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
