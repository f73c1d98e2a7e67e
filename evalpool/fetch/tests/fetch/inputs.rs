//! Inputs on their way into the store: those that are there half-way, those that cannot be had, those
//! that must not be read, and what Nix remembers of fetching.

use std::path::{Path, PathBuf};

use crate::host::{Host, git, local, path_reference};
use gradient_domain::flake::{LockPolicy, Override};
use gradient_fetch::{FetchError, LockedFlake, Reach, Request, Retry, Source};

/// A flake with one input that is no flake and that one of two packages reads.
fn using(url: &str) -> String {
    format!(
        r#"{{
  inputs.far = {{ url = "{url}"; flake = false; }};
  outputs = {{ self, far }}: let
    mk = name: text: derivation {{ inherit name text; system = "x86_64-linux"; builder = "/bin/sh"; }};
  in {{ packages.x86_64-linux = {{
    reads = mk "reads" (builtins.readFile "${{far}}/x");
    free = mk "free" "";
  }}; }};
}}"#
    )
}

/// The same with a lock file, and the folder that the input is.
fn locked(host: &Host) -> (PathBuf, PathBuf) {
    let far = host.folder("far", &[("x", "far away")]);
    let folder = host.folder("f", &[("flake.nix", &using(&path_reference(&far)))]);
    Host::new().nix(&["flake", "lock", &path_reference(&folder)]).expect("locked");
    (folder, far)
}

/// A derivation of a fetched flake.
fn derivation(host: &Host, flake: &LockedFlake, name: &str) -> Result<String, String> {
    let of = format!(
        "(builtins.getFlake \"{}\").outputs.packages.x86_64-linux.{name}.drvPath",
        flake.url
    );
    host.nix(&["eval", "--raw", "--show-trace", "--expr", &of])
}

#[tokio::test]
async fn an_input_that_a_stop_left_half_way_is_fetched_again() {
    let host = Host::new();
    let (folder, far) = locked(&host);
    let far = host.nix(&["store", "add", "--name", "source", &far.to_string_lossy()]);
    let far = far.expect("added");
    // What a stop leaves: some of the files, and a store that knows nothing of them.
    host.nix(&["store", "delete", &far]).expect("deleted");
    std::fs::create_dir_all(host.real(&far)).expect("made");
    std::fs::write(host.real(&far).join("half"), "half").expect("written");
    let flake = host.fetch(&local(path_reference(&folder))).await.expect("fetched");
    assert!(flake.warnings.is_empty(), "{flake:?}");
    assert!(host.nix(&["path-info", "--offline", &far]).is_ok(), "the store knows it");
    let text = std::fs::read_to_string(host.real(&far).join("x"));
    assert_eq!(text.expect("the whole input"), "far away");
    assert!(derivation(&host, &flake, "reads").is_ok());
}

/// Says that a host is not there when an input is fetched and its folder is gone.
fn without_network(host: &mut Host, far: &Path) {
    host.before_nix(&format!(
        "case \"$*\" in *flake\\ archive*|*fetchTree*) [ -e {} ] || \
         {{ echo 'error: Could not resolve host: far' >&2; exit 1; }};; esac",
        far.display()
    ));
}

#[tokio::test]
async fn an_input_that_the_network_keeps_back_is_missing_only_to_what_reads_it() {
    let mut host = Host::new();
    let (folder, far) = locked(&host);
    without_network(&mut host, &far);
    std::fs::rename(&far, host.path().join("gone")).expect("moved");
    let flake = host.fetch(&local(path_reference(&folder))).await.expect("fetched without it");
    assert!(flake.is_locked());
    let warnings = flake.warnings.join("\n");
    assert!(warnings.contains("input 'far' cannot be fetched: "), "{warnings}");
    assert!(warnings.contains("Could not resolve host"), "{warnings}");
    assert!(derivation(&host, &flake, "free").is_ok());
    let error = derivation(&host, &flake, "reads").expect_err("it is missing");
    let missing = flake.missing_for(&error).expect("it is known why");
    assert_eq!((missing.input.as_str(), missing.retry), ("far", Retry::Backoff), "{missing:?}");
    let hint = flake.hint_on(&error).expect("it is told why");
    assert!(hint.starts_with("input 'far' cannot be fetched: "), "{hint}");
    assert!(flake.missing_for("error: while fetching the input 'path:/other'").is_none());
    // Nothing of it is remembered.
    std::fs::rename(host.path().join("gone"), &far).expect("moved");
    let flake = host.fetch(&local(path_reference(&folder))).await.expect("fetched");
    assert!(flake.warnings.is_empty(), "{flake:?}");
    assert!(derivation(&host, &flake, "reads").is_ok());
}

/// A repository with these files, at one commit, and how a worker reaches it through [`by_ssh`].
fn repository(host: &Host, name: &str, files: &[(&str, &str)]) -> String {
    let folder = host.folder(name, files);
    git(&folder, &["init", "-q", "-b", "main"]);
    git(&folder, &["add", "."]);
    git(&folder, &["commit", "-q", "-m", "one"]);
    format!("git+ssh://git@host.invalid{}?ref=main", folder.display())
}

/// Puts a `ssh` before `nix` that reaches repositories of this machine; the file that has a line for each
/// run of `nix` from now on.
fn by_ssh(host: &mut Host) -> PathBuf {
    let script = "while [ $# -gt 1 ]; do shift; done\nexec sh -c \"exec git-upload-pack ${1#git-upload-pack}\"";
    let ssh = host.program("ssh-bin", "ssh", script);
    let bin = ssh.parent().expect("a folder").to_owned();
    let runs = host.path().join("runs");
    host.before_nix(&format!(
        "export PATH={}:$PATH; echo \"$*\" >> {}",
        bin.display(),
        runs.display()
    ));
    runs
}

/// Fetches a flake as a worker does and requires that it is refused for an input of this machine, and
/// that nothing but what came from elsewhere lies in the store.
async fn refused(host: &Host, flake: &Path, overrides: &[(&str, &str)], input: &str) {
    let tree = host.fetcher.fetch_tree(&path_reference(flake), Reach::Local).await;
    let mut request = Request::new(Source::Store(tree.expect("fetched")), Reach::Remote);
    let over = |(input, reference): &(&str, &str)| Override {
        input: (*input).to_owned(),
        reference: (*reference).to_owned(),
    };
    request.overrides = overrides.iter().map(over).collect();
    let error = host.fetch(&request).await.expect_err("refused");
    for path in host.paths() {
        let file = host.fetcher.store_dir.join(&path).join("key");
        assert!(!file.exists(), "{} came into the store", file.display());
    }
    assert!(matches!(error, FetchError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("input '{input}'")), "{error}");
}

#[tokio::test]
async fn what_an_unlocked_input_asks_for_is_refused_before_it_is_read() {
    let mut host = Host::new();
    let secret = host.folder("secret", &[("key", "secret")]);
    let secret = path_reference(&secret);
    let text =
        format!("{{ inputs.y = {{ url = \"{secret}\"; flake = false; }}; outputs = _: {{ }}; }}");
    let outer = |url: &str| format!("{{ inputs.far.url = \"{url}\"; outputs = _: {{ }}; }}");
    let far = repository(&host, "far", &[("flake.nix", &text)]);
    let farther = repository(&host, "farther", &[("flake.nix", &outer(&far))]);
    let clean = repository(&host, "clean", &[("flake.nix", "{ outputs = _: { }; }")]);
    let above = outer(&far).replace("far.url", "far.inputs.y.follows = \"clean\"; inputs.far.url");
    let above = above.replace("outputs", &format!("inputs.clean.url = \"{clean}\"; outputs"));
    let _ = by_ssh(&mut host);
    let direct = host.folder("direct", &[("flake.nix", &outer(&far))]);
    refused(&host, &direct, &[], "far/y").await;
    let twice = host.folder("twice", &[("flake.nix", &outer(&farther))]);
    refused(&host, &twice, &[], "far/far/y").await;
    let inside = [("flake.nix", outer("path:./sub")), ("sub/flake.nix", text.clone())];
    let inside: Vec<(&str, &str)> = inside.iter().map(|(name, text)| (*name, &**text)).collect();
    refused(&host, &host.folder("inside", &inside), &[], "far/y").await;
    let plain = host.folder("plain", &[("flake.nix", &outer(&clean))]);
    refused(&host, &plain, &[("far", &far)], "far/y").await;

    // What takes its place is all that counts.
    let follows = host.folder("follows", &[("flake.nix", &above)]);
    for (folder, overrides) in [(&follows, vec![]), (&direct, vec![("far/y", clean.as_str())])] {
        let tree = host.fetcher.fetch_tree(&path_reference(folder), Reach::Local).await;
        let mut request = Request::new(Source::Store(tree.expect("fetched")), Reach::Remote);
        request.overrides = overrides
            .iter()
            .map(|(input, reference)| Override {
                input: (*input).to_owned(),
                reference: (*reference).to_owned(),
            })
            .collect();
        let flake = host.fetch(&request).await.expect("nothing of this machine is read");
        assert!(flake.not_locked.contains(&"far".to_owned()), "{flake:?}");
    }
}

#[tokio::test]
async fn what_is_locked_is_not_looked_into() {
    let mut host = Host::new();
    let clean = repository(&host, "clean", &[("flake.nix", "{ outputs = _: { }; }")]);
    let runs = by_ssh(&mut host);
    let request = Request::new(Source::Reference(clean.clone()), Reach::Remote);
    let tree = host.fetch(&request).await.expect("fetched").tree;
    let url = clean.trim_start_matches("git+").trim_end_matches("?ref=main");
    let original = serde_json::json!({ "type": "git", "url": url, "ref": "main" });
    let mut locked = original.clone();
    locked["rev"] = tree.commit.as_ref().expect("a commit").rev.clone().into();
    locked["narHash"] = tree.nar_hash.clone().into();
    let lock = serde_json::json!({ "version": 7, "root": "root", "nodes": {
        "root": { "inputs": { "far": "far" } },
        "far": { "locked": locked, "original": original },
    } });
    let text = format!("{{ inputs.far.url = \"{clean}\"; outputs = _: {{ }}; }}");
    let files = [("flake.nix", &*text), ("flake.lock", &*lock.to_string())];
    let folder = host.folder("f", &files);
    let top = host.fetcher.fetch_tree(&path_reference(&folder), Reach::Local).await;
    std::fs::remove_file(&runs).expect("runs");
    let request = Request::new(Source::Store(top.expect("fetched")), Reach::Remote);
    let flake = host.fetch(&request).await.expect("fetched");
    assert!(flake.is_locked() && flake.warnings.is_empty(), "{flake:?}");
    let runs = std::fs::read_to_string(runs).expect("runs");
    assert!(!runs.contains("flake prefetch"), "{runs}");
}

#[tokio::test]
async fn a_damaged_cache_of_fetches_is_thrown_away() {
    let mut host = Host::new();
    let runs = host.counted();
    let folder = host.folder("f", &[("flake.nix", "{ outputs = _: { }; }")]);
    let mut request = local(path_reference(&folder));
    request.lock_policy = LockPolicy::Strict;
    host.fetch(&request).await.expect("fetched");
    let is_cache = |name: &str| name.starts_with("fetcher-cache-v") && name.ends_with(".sqlite");
    let caches = std::fs::read_dir(&host.fetcher.cache_home).expect("a folder").flatten();
    let caches: Vec<PathBuf> = caches
        .filter(|entry| is_cache(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    assert_eq!(caches.len(), 1, "{caches:?}");
    let whole = std::fs::read(&caches[0]).expect("read");
    let half = whole[..whole.len() / 2].to_vec();
    // As long as it should be, and yet no table in it.
    let mut garbled = whole.clone();
    garbled[100..].fill(0xff);
    for (n, damaged) in [b"no database at all".repeat(500), half, garbled].iter().enumerate() {
        for beside in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{beside}", caches[0].display()));
        }
        std::fs::write(&caches[0], damaged).expect("damaged");
        std::fs::write(folder.join("more"), n.to_string()).expect("written");
        host.fetch(&request).await.expect("it is made anew");
        assert_ne!(&std::fs::read(&caches[0]).expect("there"), damaged, "it is as it was");
    }
    // What is whole stays, whatever else fails.
    let before = std::fs::read_to_string(&runs).expect("runs").lines().count();
    let reference = "git+https://localhost:1/x?rev=0123456789012345678901234567890123456789";
    host.fetch(&local(reference)).await.expect_err("nobody is there");
    let after = std::fs::read_to_string(&runs).expect("runs").lines().count();
    assert_eq!(after, before + 1, "it is tried once");
    assert!(caches[0].exists());
}
