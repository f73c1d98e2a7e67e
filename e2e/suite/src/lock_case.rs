//! Flakes whose inputs, lock files and checkouts are not as they should be (cases F01, F02, F06, F08), for
//! all ways into an evaluation.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::local::Local;

/// Case F01: an input that no lock file locks, a folder of the flake.
pub const F01: &str = r#"{
  inputs.dep = { url = "path:./dep"; flake = false; };
  outputs = { self, dep }: {
    packages.x86_64-linux.app = derivation {
      name = "app"; system = "x86_64-linux"; builder = "/bin/sh";
      args = [ "-c" "read x < ${dep}/value; echo $x > $out" ];
    };
  };
}"#;

/// Names and texts of files.
pub type Files<'a> = &'a [(&'a str, &'a str)];

/// Case F02: an input follows another one, and would name a folder that is not there if it did not.
pub const F02: Files = &[
    (
        "flake.nix",
        r#"{
  inputs.base.url = "path:./base";
  inputs.mid = { url = "path:./mid"; inputs.base.follows = "base"; };
  outputs = { self, base, mid }: {
    packages.x86_64-linux = {
      direct = base.packages.x86_64-linux.lib; viaMid = mid.packages.x86_64-linux.app;
    };
  };
}"#,
    ),
    (
        "base/flake.nix",
        r#"{
  outputs = { self }: { packages.x86_64-linux.lib = derivation {
    name = "lib"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo lib > $out" ];
  }; };
}"#,
    ),
    (
        "mid/flake.nix",
        r#"{
  inputs.base.url = "path:../does-not-exist";
  outputs = { self, base }: { packages.x86_64-linux.app = derivation {
    name = "app"; system = "x86_64-linux"; builder = "/bin/sh";
    args = [ "-c" "echo ${base.packages.x86_64-linux.lib} > $out" ];
  }; };
}"#,
    ),
];

const F08_INPUT: &str =
    r#"{ inputs.d = { url = "path:./d"; flake = false; }; outputs = { self, d }: { }; }"#;

/// Case F08: flakes with a broken lock file or inputs that follow each other, and words of the one error
/// that each of them has.
pub const F08: &[(&str, Files, &str)] = &[
    (
        "f08-markers",
        &[
            ("flake.nix", F08_INPUT),
            ("flake.lock", "<<<<<<< ours\n{ \"nodes\": {} }\n=======\n{ }\n>>>>>>> theirs\n"),
        ],
        "flake.lock is not JSON",
    ),
    (
        "f08-version",
        &[
            ("flake.nix", F08_INPUT),
            ("flake.lock", r#"{ "nodes": { "root": {} }, "root": "root", "version": 99 }"#),
        ],
        "/flake.lock' has unsupported version 99",
    ),
    (
        "f08-cycle",
        &[(
            "flake.nix",
            r#"{ inputs.a.follows = "b"; inputs.b.follows = "a"; outputs = { self, a, b }: { }; }"#,
        )],
        "follow cycle detected",
    ),
];

const F06: &str = r#"{ outputs = { self }: let
    mk = name: v: derivation { inherit name v; system = "x86_64-linux"; builder = "/bin/sh"; };
  in { packages.x86_64-linux = {
    tracked = mk "tracked" (builtins.readFile ./tracked.txt);
    untracked = mk "untracked" (builtins.readFile ./untracked.txt);
    ignored = mk "ignored" (builtins.readFile ./target/ignored.txt);
    sub = mk "sub" (builtins.readFile ./vendor/sub/file.txt);
  }; }; }"#;

/// Runs git in a folder.
///
/// # Panics
/// If it fails.
pub fn git(folder: &Path, arguments: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(["-c", "protocol.file.allow=always", "-C"])
        .arg(folder)
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git");
    assert!(done.status.success(), "{done:?}");
}

/// Case F06: a checkout at its commit, with a submodule, an untracked and an ignored file; its reference.
#[must_use]
pub fn f06(local: &Local) -> String {
    let inner = local.flake("inner", &[("file.txt", "s\n")]);
    git(&inner, &["init", "-q"]);
    git(&inner, &["add", "."]);
    git(&inner, &["commit", "-q", "-m", "first"]);
    let folder: PathBuf = local.flake(
        "f06",
        &[
            ("flake.nix", F06),
            ("tracked.txt", "t\n"),
            (".gitignore", "target/\n"),
            ("target/ignored.txt", "i\n"),
        ],
    );
    git(&folder, &["init", "-q"]);
    git(&folder, &["add", "."]);
    git(&folder, &["submodule", "--quiet", "add", inner.to_str().expect("text"), "vendor/sub"]);
    git(&folder, &["commit", "-q", "-m", "first"]);
    let _ = local.flake("f06", &[("untracked.txt", "u\n")]);
    format!("git+file://{}", folder.display())
}
