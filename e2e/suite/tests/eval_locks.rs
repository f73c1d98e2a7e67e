//! `gradient eval` on flakes whose inputs, lock files and checkouts are not as they should be.

use std::path::Path;
use std::process::Command;

use gradient_suite::local::{Local, line, sorted};

const DEP: &str = r#"{
  inputs.dep = { url = "path:./dep"; flake = false; };
  outputs = { self, dep }: {
    packages.x86_64-linux.app = derivation {
      name = "app"; system = "x86_64-linux"; builder = "/bin/sh";
      args = [ "-c" "read x < ${dep}/value; echo $x > $out" ];
    };
  };
}"#;

#[test]
fn inputs_that_are_not_locked_are_named_and_the_checkout_stays_as_it_is() {
    let local = Local::new();
    let flake = local.flake("f01", &[("flake.nix", DEP), ("dep/value", "one\n")]);
    let said = local.eval(&flake, &[]).ok();
    assert_eq!(sorted(&said).len(), 1);
    assert!(said.stderr.contains("not locked") && said.stderr.contains("'dep'"), "{said:?}");
    assert!(!flake.join("flake.lock").exists(), "it was written to");
    let refused = local.eval(&flake, &["--strict-lock"]).with_code(1);
    assert!(refused.stderr.contains("there is no flake.lock for input 'dep'"), "{refused:?}");

    // Another value is another evaluation, however often it was evaluated before.
    let before = sorted(&said)[0]["drvPath"].clone();
    let _ = local.flake("f01", &[("dep/value", "two\n")]);
    let after = sorted(&local.eval(&flake, &[]).ok())[0]["drvPath"].clone();
    assert_ne!(before, after);
}

#[test]
fn an_old_lock_file_is_never_used_in_silence() {
    let local = Local::new();
    let flake = local.flake("f01", &[("flake.nix", DEP), ("dep/value", "one\n")]);
    let folder = flake.to_str().expect("text");
    let _ = local.nix("nix", &["flake", "lock", &format!("path:{folder}")]);
    let _ = local.eval(&flake, &["--strict-lock"]).ok();
    let other = DEP.replace("path:./dep", "path:./other");
    let _ = local.flake("f01", &[("flake.nix", &other), ("other/value", "three\n")]);
    let refused = local.eval(&flake, &["--strict-lock"]).with_code(1);
    assert!(refused.stderr.contains("does not match flake.nix in input 'dep'"), "{refused:?}");
    let said = local.eval(&flake, &[]).ok();
    assert!(said.stderr.contains("does not match flake.nix in input 'dep'"), "{said:?}");
}

#[test]
fn an_input_that_follows_another_is_that_one() {
    let local = Local::new();
    let top = r#"{
      inputs.base.url = "path:./base";
      inputs.mid = { url = "path:./mid"; inputs.base.follows = "base"; };
      outputs = { self, base, mid }: {
        packages.x86_64-linux = {
          direct = base.packages.x86_64-linux.lib; viaMid = mid.packages.x86_64-linux.app;
        };
      };
    }"#;
    let base = r#"{ outputs = { self }: { packages.x86_64-linux.lib = derivation {
      name = "lib"; system = "x86_64-linux"; builder = "/bin/sh"; }; }; }"#;
    let mid = r#"{
      inputs.base.url = "path:../does-not-exist";
      outputs = { self, base }: { packages.x86_64-linux.app = derivation {
        name = "app"; system = "x86_64-linux"; builder = "/bin/sh";
        args = [ "-c" "echo ${base.packages.x86_64-linux.lib} > $out" ]; }; };
    }"#;
    let files = [("flake.nix", top), ("base/flake.nix", base), ("mid/flake.nix", mid)];
    let flake = local.flake("f02", &files);
    let lines = sorted(&local.eval(&flake, &["--show-input-drvs"]).ok());
    let lib = line(&lines, "packages.x86_64-linux.direct")["drvPath"].as_str().expect("a path");
    let inputs = &line(&lines, "packages.x86_64-linux.viaMid")["inputDrvs"];
    assert_eq!(inputs[lib], serde_json::json!(["out"]), "{lines:#?}");
}

/// Names and texts of files.
type Files<'a> = &'a [(&'a str, &'a str)];

#[test]
fn a_broken_lock_file_is_one_clear_error() {
    let local = Local::new();
    let input =
        r#"{ inputs.d = { url = "path:./d"; flake = false; }; outputs = { self, d }: { }; }"#;
    let cycle =
        r#"{ inputs.a.follows = "b"; inputs.b.follows = "a"; outputs = { self, a, b }: { }; }"#;
    let markers = "<<<<<<< ours\n{ \"nodes\": {} }\n=======\n{ }\n>>>>>>> theirs\n";
    let version = r#"{ "nodes": { "root": {} }, "root": "root", "version": 99 }"#;
    let rows: [(&str, Files, &str); 3] = [
        ("markers", &[("flake.nix", input), ("flake.lock", markers)], "flake.lock"),
        ("version", &[("flake.nix", input), ("flake.lock", version)], "flake.lock"),
        ("cycle", &[("flake.nix", cycle)], "follow"),
    ];
    for (name, files, words) in rows {
        let flake = local.flake(name, files);
        let said = local.eval(&flake, &[]).with_code(1);
        assert!(said.stderr.starts_with("error: ") && said.stderr.contains(words), "{said:?}");
        assert_eq!(said.stdout, "", "{name}");
    }
}

fn git(folder: &Path, arguments: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(["-c", "protocol.file.allow=always", "-C"])
        .arg(folder)
        .args(arguments)
        .output()
        .expect("git");
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_checkout_is_what_git_tracks_of_it() {
    let local = Local::new();
    let flake = r#"{ outputs = { self }: let
        mk = name: v: derivation { inherit name v; system = "x86_64-linux"; builder = "/bin/sh"; };
      in { packages.x86_64-linux = {
        tracked = mk "tracked" (builtins.readFile ./tracked.txt);
        untracked = mk "untracked" (builtins.readFile ./untracked.txt);
        ignored = mk "ignored" (builtins.readFile ./target/ignored.txt);
        sub = mk "sub" (builtins.readFile ./vendor/sub/file.txt);
      }; }; }"#;
    let inner = local.flake("inner", &[("file.txt", "s\n")]);
    git(&inner, &["init", "-q"]);
    git(&inner, &["add", "."]);
    git(&inner, &["commit", "-q", "-m", "first"]);
    let files = [
        ("flake.nix", flake),
        ("tracked.txt", "t\n"),
        (".gitignore", "target/\n"),
        ("target/ignored.txt", "i\n"),
    ];
    let folder = local.flake("f06", &files);
    git(&folder, &["init", "-q"]);
    git(&folder, &["add", "."]);
    git(&folder, &["submodule", "--quiet", "add", inner.to_str().expect("text"), "vendor/sub"]);
    git(&folder, &["commit", "-q", "-m", "first"]);
    let _ = local.flake("f06", &[("untracked.txt", "u\n")]);
    let reference = format!("git+file://{}", folder.display());
    let lines = sorted(&local.eval_of(&reference, &[]).with_code(1));
    let error = |name: &str| {
        let line = line(&lines, &format!("packages.x86_64-linux.{name}"));
        line["error"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(error("tracked"), "");
    for name in ["untracked", "ignored"] {
        assert!(error(name).contains("No such file or directory"), "{name}: {}", error(name));
    }
    assert!(error("sub").contains("submodules"), "{}", error("sub"));
    let with = local.eval_of(&format!("{reference}?submodules=1"), &[]).with_code(1);
    let lines = sorted(&with);
    assert_eq!(line(&lines, "packages.x86_64-linux.sub").get("error"), None, "{with:?}");
}
