//! Flakes on their way into an evaluation: locks, overrides, commits, and a key for SSH.

use std::path::{Path, PathBuf};
use std::process::Command;

use gradient_suite::model::Evaluation;
use gradient_suite::run::Running;
use gradient_suite::wait::{LIMIT, until_true};
use gradient_suite::{Cluster, Said, http};

/// Case F01, with the value of the input in the name of the derivation.
const F01: &str = r#"{
  inputs.dep = { url = "path:./dep"; flake = false; };
  outputs = { self, dep }: {
    packages.x86_64-linux.app = derivation {
      name = "app-${builtins.replaceStrings [ "\n" ] [ "" ] (builtins.readFile "${dep}/value")}";
      system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo > $out" ];
    };
  };
}"#;

/// Case F06, with the commit in the name.
const F06: &str = r#"{
  outputs = { self }:
    let mk = name: v: derivation { inherit name v; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo > $out" ]; };
    in { packages.x86_64-linux = {
      tracked = mk "tracked-${self.rev or "none"}" (builtins.readFile ./tracked.txt);
      untracked = mk "untracked" (builtins.readFile ./untracked.txt);
      sub = mk "sub" (builtins.readFile ./vendor/sub/file.txt);
    }; };
}"#;

/// The one that every OpenSSH key has, and a text that is found again wherever it went.
const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nnever-seen-elsewhere\n-----END OPENSSH PRIVATE KEY-----\n";

fn folder(cluster: &Cluster, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = cluster.folder().join(name);
    for (file, text) in files {
        let file = folder.join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    }
    folder
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
    command.args(["-c", "protocol.file.allow=always", "-C"]).arg(folder).args(arguments);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().expect("git");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A repository of case F06, without the submodule's files, and its commit.
fn repository(cluster: &Cluster) -> (PathBuf, String) {
    let files = [("flake.nix", F06), ("tracked.txt", "t\n"), ("untracked.txt", "u\n")];
    let repository = folder(cluster, "repository", &files);
    let sub = folder(cluster, "sub", &[("file.txt", "s\n")]);
    for folder in [&sub, &repository] {
        git(folder, &["init", "-q", "-b", "main"]);
    }
    git(&sub, &["add", "."]);
    git(&sub, &["commit", "-q", "-m", "one"]);
    git(&repository, &["add", "flake.nix", "tracked.txt"]);
    git(&repository, &["submodule", "--quiet", "add", &sub.to_string_lossy(), "vendor/sub"]);
    git(&repository, &["commit", "-q", "-m", "one"]);
    let commit = git(&repository, &["rev-parse", "HEAD"]);
    (repository, commit)
}

fn submit(cluster: &Cluster, flake: &str, options: &[&str]) -> Said {
    let mut arguments = vec!["submit", flake, "--include", "packages.*.*", "--watch"];
    arguments.extend(options);
    cluster.gradient(&arguments)
}

/// Cases F01 and F08: one clear outcome each, and nothing is tried twice.
#[test]
fn locks_are_completed_or_refused_and_inputs_are_overridden() {
    let cluster = Cluster::start_with(1);
    let open = folder(&cluster, "open", &[("flake.nix", F01), ("dep/value", "one\n")]);
    let open = format!("path:{}", open.display());
    let hand_outs = || Evaluation::newest(&cluster).summary["hand_outs"].clone();
    let said = submit(&cluster, &open, &[]).ok();
    assert!(said.stdout.contains("no flake.lock for input 'dep'"), "{}", said.stdout);
    assert!(cluster.log().succeeded().contains("app-one"));

    let said = submit(&cluster, &open, &["--strict-lock"]).with_code(1);
    assert!(said.stdout.contains("no flake.lock for input 'dep'"), "{}", said.stdout);
    assert_eq!(hand_outs(), 1, "it is not tried again");

    let markers = "<<<<<<< ours\n{ \"nodes\": {} }\n=======\n{ }\n>>>>>>> theirs\n";
    let files = [("flake.nix", F01), ("flake.lock", markers), ("dep/value", "one\n")];
    let broken = folder(&cluster, "broken", &files);
    let said = submit(&cluster, &format!("path:{}", broken.display()), &[]).with_code(1);
    assert!(said.stdout.contains("flake.lock is not JSON"), "{}", said.stdout);
    assert_eq!(hand_outs(), 1, "it is not tried again");

    let other = folder(&cluster, "other", &[("dep/value", "two\n")]);
    let tarball = other.join("dep.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&other).arg("-czf").arg(&tarball).arg("dep");
    assert!(tar.status().expect("tar").success());
    let dep = format!("tarball+{}/dep.tar.gz", http::serve(tarball));
    let said = submit(&cluster, &open, &["--override-input", "d*", &dep]).ok();
    assert!(said.stdout.contains("'d*' matches no input of flake.lock"), "{}", said.stdout);
    assert!(!cluster.log().succeeded().contains("app-two"));
    let _ = submit(&cluster, &open, &["--override-input", "dep", &dep]).ok();
    assert!(cluster.log().succeeded().contains("app-two"));
    submit(&cluster, &open, &["--override-input", "dep", "path:/etc"]).refused(2, "path:/etc");
    cluster.finish();
}

/// Case F06, and a private repository.
#[test]
fn commits_are_evaluated_and_a_key_is_handed_over_and_deleted() {
    let mut cluster = Cluster::prepare(1);
    let (repository, commit) = repository(&cluster);
    let seen = cluster.folder().join("seen");
    let script = format!(
        "while [ $# -gt 1 ]; do [ \"$1\" = -i ] && {{ stat -c %a \"$2\"; cat \"$2\"; }} >> {}; shift; done\n\
         exec git upload-pack {}",
        seen.display(),
        repository.display()
    );
    cluster.put_before("ssh", &script);
    cluster.up();

    // A folder of a user, for temporary files, may have any name.
    let odd = folder(&cluster, "100%25 odd?&#x", &[("x", "")]);
    let local = format!("git+file://{}", repository.display());
    let mut command = cluster.command(&["submit", &local, "--include", "packages.*.tracked"]);
    let _ = Running::start(command.env("TMPDIR", &odd)).end().ok();
    assert_eq!(files_of(&odd).len(), 1, "something is left");

    std::fs::write(repository.join("tracked.txt"), "changed\n").expect("written");
    let said = submit(&cluster, &local, &[]).with_code(1);
    assert!(cluster.log().succeeded().contains(&format!("tracked-{commit}")));
    assert!(said.stdout.contains("/untracked.txt': No such file"), "{}", said.stdout);
    assert!(said.stdout.contains("add submodules=1"), "{}", said.stdout);

    let key = folder(&cluster, "key", &[("id", KEY)]).join("id");
    let key = key.to_string_lossy();
    let remote = "git+ssh://git@host.invalid/repository?ref=main";
    let _ = submit(&cluster, remote, &["--ssh-key", &key]).with_code(1);
    let evaluation = Evaluation::newest(&cluster);
    let locked = evaluation.summary["locked_url"].as_str().expect("locked");
    assert!(locked.contains(&commit), "{locked}");
    let seen = std::fs::read_to_string(&seen).expect("ssh was started");
    assert!(seen.starts_with("600\n") && seen.contains(KEY), "{seen}");
    until_true("the key is deleted", LIMIT, || files_of(&cluster.data().join("keys")).is_empty());
    for file in files_of(cluster.data()) {
        let text = std::fs::read(&file).unwrap_or_default();
        let has_it = text.windows(20).any(|part| part == b"never-seen-elsewhere");
        assert!(!has_it, "the key is in {}", file.display());
    }
    submit(&cluster, remote, &["--ssh-key", "/does/not/exist"]).refused(2, "cannot be read");
    cluster.finish();
}

/// Every file below a folder.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_of(&entry.path())),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files
}
