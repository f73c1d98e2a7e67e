//! Git trees (case F06), tarballs, and a key for SSH.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::{Host, git, local};
use gradient_domain::SshKey;
use gradient_fetch::{FetchError, Reach, Request, Source};

const FLAKE: &str = r#"{
  outputs = { self }:
    let mk = name: v: derivation { inherit name v; system = "x86_64-linux"; builder = "/bin/sh"; args = [ (self.rev or "none") ]; };
    in { packages.x86_64-linux = {
      tracked = mk "tracked" (builtins.readFile ./tracked.txt);
      untracked = mk "untracked" (builtins.readFile ./untracked.txt);
      ignored = mk "ignored" (builtins.readFile ./target/ignored.txt);
      sub = mk "sub" (builtins.readFile ./vendor/sub/file.txt);
    }; };
}"#;

const FILES: [(&str, &str); 5] = [
    ("flake.nix", FLAKE),
    ("tracked.txt", "t\n"),
    ("untracked.txt", "u\n"),
    (".gitignore", "target/\n"),
    ("target/ignored.txt", "i\n"),
];

/// A checkout with a submodule, an untracked and an ignored file, at its commit.
fn checkout(host: &Host) -> (PathBuf, String) {
    let sub = host.folder("sub", &[("file.txt", "s\n")]);
    git(&sub, &["init", "-q", "-b", "main"]);
    git(&sub, &["add", "."]);
    git(&sub, &["commit", "-q", "-m", "one"]);
    let folder = host.folder("repo", &FILES);
    git(&folder, &["init", "-q", "-b", "main"]);
    git(&folder, &["add", "flake.nix", "tracked.txt", ".gitignore"]);
    git(&folder, &["submodule", "--quiet", "add", &sub.to_string_lossy(), "vendor/sub"]);
    git(&folder, &["commit", "-q", "-m", "one"]);
    let commit = git(&folder, &["rev-parse", "HEAD"]);
    (folder, commit)
}

fn derivation(host: &Host, url: &str, name: &str) -> Result<String, String> {
    let expression =
        format!("(builtins.getFlake \"{url}\").outputs.packages.x86_64-linux.{name}.drvPath");
    host.nix(&["eval", "--raw", "--expr", &expression])
}

#[tokio::test]
async fn f06_tracked_files_only() {
    let host = Host::new();
    let (folder, commit) = checkout(&host);
    let reference = format!("git+file://{}?rev={commit}", folder.display());
    let flake = host.fetch(&local(&reference)).await.expect("fetched");
    assert!(flake.is_locked(), "{flake:?}");
    assert_eq!(flake.tree.commit.as_ref().map(|c| c.rev.as_str()), Some(commit.as_str()));
    let tracked = derivation(&host, &flake.url, "tracked").expect("a job");
    let attribute = format!("{reference}#packages.x86_64-linux.tracked.drvPath");
    assert_eq!(tracked, host.nix(&["eval", "--raw", &attribute]).expect("evaluated"));
    for (missing, hinted) in [("untracked", false), ("ignored", false), ("sub", true)] {
        let error = derivation(&host, &flake.url, missing).expect_err(missing);
        assert!(error.contains("does not exist"), "{error}");
        let hint = flake.hint_on(&error).unwrap_or_default();
        assert_eq!(hint.contains("submodules=1"), hinted, "{missing}: {hint}");
    }
}

#[tokio::test]
async fn f06_a_dirty_checkout_is_marked_and_ci_takes_the_commit() {
    let host = Host::new();
    let (folder, commit) = checkout(&host);
    let clean = host.fetch(&local(folder.to_string_lossy())).await.expect("fetched");
    assert!(clean.is_locked() && clean.reference.contains(&commit), "{clean:?}");
    std::fs::write(folder.join("tracked.txt"), "changed\n").expect("written");
    let dirty = host.fetch(&local(folder.to_string_lossy())).await.expect("fetched");
    assert!(dirty.is_dirty && !dirty.is_locked() && dirty.tree.commit.is_none(), "{dirty:?}");
    assert!(derivation(&host, &dirty.url, "tracked").is_ok());
    let again = host.fetcher.fetch_tree(&folder.to_string_lossy(), Reach::LocalCommit).await;
    assert_eq!(again.expect("fetched"), clean.tree);

    let empty = host.folder("empty", &[("flake.nix", FLAKE)]);
    git(&empty, &["init", "-q"]);
    let error = host.fetcher.fetch_tree(&empty.to_string_lossy(), Reach::LocalCommit).await;
    assert!(error.expect_err("no commit").to_string().contains("has no commit yet"));
}

#[tokio::test]
async fn f06_submodules_on_demand_and_shallow_clones() {
    let host = Host::new();
    let (folder, commit) = checkout(&host);
    let reference = format!("git+file://{}?rev={commit}&submodules=1", folder.display());
    // Git itself refuses submodules of this machine unless it is told.
    let allow = host.path().join("gitconfig");
    std::fs::write(&allow, "[protocol \"file\"]\n\tallow = always\n").expect("written");
    let mut allowing = Host::new();
    allowing.before_nix(&format!("export GIT_CONFIG_GLOBAL={}", allow.display()));
    let flake = allowing.fetch(&local(&reference)).await.expect("fetched");
    assert!(flake.submodules.is_empty());
    assert!(derivation(&allowing, &flake.url, "sub").is_ok());

    let shallow = host.path().join("shallow");
    let from = format!("file://{}", folder.display());
    git(&host.path(), &["clone", "-q", "--depth", "1", &from, &shallow.to_string_lossy()]);
    let flake = host.fetch(&local(format!("git+file://{}?rev={commit}", shallow.display()))).await;
    let flake = flake.expect("a shallow clone does");
    let plain = format!("git+file://{}?rev={commit}", folder.display());
    assert_eq!(flake.tree.path, host.fetch(&local(plain)).await.expect("fetched").tree.path);
}

#[tokio::test]
async fn folders_below_and_tarballs() {
    let host = Host::new();
    let flake = "{ outputs = { self }: { packages.x86_64-linux.a = derivation { name = \"a\"; system = \"x\"; builder = ../x; }; }; }";
    let folder = host.folder("p/top", &[("in side/flake.nix", flake), ("x", "x")]);
    let reference = format!("path:{}?dir=in%20side", folder.display());
    let found = host.fetch(&local(&reference)).await.expect("fetched");
    assert_eq!(found.tree.subdir, "in side");
    let expected = host.derivations(&found).expect("evaluated");
    let tar = host.path().join("x.tar.gz");
    let mut command = std::process::Command::new("tar");
    command.arg("-C").arg(folder.parent().expect("a folder")).arg("-czf").arg(&tar).arg("top");
    assert!(command.status().expect("tar").success());
    let reference = format!("file://{}?dir=in%20side", tar.display());
    let found = host.fetch(&local(&reference)).await.expect("fetched");
    assert!(found.reference.contains("narHash="), "{found:?}");
    assert_eq!(host.derivations(&found).expect("evaluated"), expected);
}

const KEY: &str =
    "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n";

/// A `ssh` that notes its arguments and the mode of the key, and runs git here.
fn fake_ssh(host: &Host, folder: &Path) -> (PathBuf, PathBuf) {
    let seen = host.path().join("seen");
    let script = format!(
        "echo \"$*\" >> {seen}\n\
         while [ $# -gt 1 ]; do [ \"$1\" = -i ] && {{ stat -c %a \"$2\"; cat \"$2\"; }} >> {seen}; shift; done\n\
         exec git upload-pack {}",
        folder.display(),
        seen = seen.display()
    );
    host.program("ssh-bin", "ssh", &script);
    let bin = host.path().join("ssh-bin");
    (bin, seen)
}

#[tokio::test]
async fn a_key_is_there_for_the_fetch_and_gone_afterwards() {
    let mut host = Host::new();
    let (folder, commit) = checkout(&host);
    let (bin, seen) = fake_ssh(&host, &folder);
    // The fake is the first `ssh` for git, as a child of this nix only.
    host.before_nix(&format!("export PATH={}:$PATH", bin.display()));
    let url = "git+ssh://git@host.invalid/repo?ref=main";
    let mut request = Request::new(Source::Reference(url.into()), Reach::Remote);
    request.ssh_key = Some(SshKey::new(KEY).expect("a key"));
    let flake = host.fetch(&request).await.expect("fetched");
    assert_eq!(flake.tree.commit.as_ref().map(|c| c.rev.as_str()), Some(commit.as_str()));
    let seen = std::fs::read_to_string(seen).expect("ssh was started");
    assert!(seen.contains("-o IdentitiesOnly=yes") && seen.contains("-F /dev/null"), "{seen}");
    assert!(seen.contains("\n600\n") && seen.contains("\nsecret\n"), "{seen}");
    let kept = std::fs::read_dir(host.fetcher.cache_home.join("fetch-keys")).expect("a folder");
    assert_eq!(kept.count(), 0, "the key is gone");
    assert!(derivation(&host, &flake.url, "tracked").is_ok(), "no key is needed any more");
}

#[tokio::test]
async fn what_a_key_opened_stays_closed_to_requests_without_it() {
    let mut host = Host::new();
    let (folder, commit) = checkout(&host);
    let (bin, _) = fake_ssh(&host, &folder);
    host.before_nix(&format!("export PATH={}:$PATH", bin.display()));
    let url = format!("git+ssh://git@host.invalid/repo?ref=main&rev={commit}");
    let mut request = Request::new(Source::Reference(url), Reach::Remote);
    request.ssh_key = Some(SshKey::new(KEY).expect("a key"));
    host.fetch(&request).await.expect("fetched");
    request.ssh_key = None;
    host.program("ssh-bin", "ssh", "echo 'Permission denied (publickey).' >&2; exit 255");
    let error = host.fetch(&request).await.expect_err("no key");
    assert!(error.to_string().contains("Permission denied"), "{error}");
}

#[tokio::test]
async fn a_fetch_that_takes_too_long_ends() {
    let mut host = Host::new();
    host.before_nix("exec sleep 600");
    host.fetcher.timeout = Duration::from_secs(1);
    let request = Request::new(Source::Reference("github:o/r".into()), Reach::Remote);
    let error = host.fetch(&request).await.expect_err("late");
    assert!(matches!(error, FetchError::Timeout { .. }), "{error:?}");
}
