//! Locks that are missing, out of date or broken, and overrides (cases F01, F02, F08).

use crate::host::{Host, local, path_reference};
use gradient_domain::flake::{LockPolicy, Override};
use gradient_fetch::{FetchError, LockedFlake, Reach, Request, Retry, Source};

const DEP: (&str, &str) = ("dep/value", "one\n");

/// A flake with an input that is a folder of it.
fn with_dep(url: &str) -> String {
    format!(
        r#"{{
  inputs.dep = {{ url = "{url}"; flake = false; }};
  outputs = {{ self, dep }}: {{
    packages.x86_64-linux.app = derivation {{ name = "app"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "read x < ${{dep}}/value; echo $x > $out" self.outPath ]; }};
  }};
}}"#
    )
}

/// The file of the input that the derivation reads. Nix itself is no measure here: while a lock is in
/// memory only, 2.26 hands out the whole source for a folder that is no flake, and the folder once the
/// lock is in a file.
fn input_of(host: &Host, flake: &LockedFlake) -> String {
    let expression = format!(
        "builtins.elemAt (builtins.getFlake \"{}\").outputs.packages.x86_64-linux.app.args 1",
        flake.url
    );
    let script = host.nix(&["eval", "--raw", "--expr", &expression]).expect("evaluated");
    script.split([' ', ';']).nth(3).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn f01_a_missing_lock_is_completed_in_memory_or_refused() {
    let host = Host::new();
    let folder = host.folder("f", &[("flake.nix", &with_dep("path:./dep")), DEP]);
    let mut request = local(path_reference(&folder));
    let flake = host.fetch(&request).await.expect("fetched");
    assert!(!flake.is_locked());
    assert_eq!(flake.not_locked, ["dep"]);
    assert!(flake.warnings.join("\n").contains("no flake.lock for input 'dep'"), "{flake:?}");
    assert!(!folder.join("flake.lock").exists(), "the checkout is left alone");
    assert!(input_of(&host, &flake).ends_with("-source/./dep/value"));

    request.lock_policy = LockPolicy::Strict;
    let error = host.fetch(&request).await.expect_err("refused");
    assert!(matches!(error, FetchError::NotLocked { .. }) && error.retry() == Retry::Never);
    assert!(error.to_string().contains("no flake.lock for input 'dep'"), "{error}");
}

#[tokio::test]
async fn f01_a_stale_lock_is_named() {
    let host = Host::new();
    let two = ("dep2/value", "two\n");
    let folder = host.folder("f", &[("flake.nix", &with_dep("path:./dep")), DEP, two]);
    let reference = path_reference(&folder);
    host.nix(&["flake", "lock", &reference]).expect("locked");
    let mut request = local(&reference);
    request.lock_policy = LockPolicy::Strict;
    let flake = host.fetch(&request).await.expect("a complete lock does");
    assert!(flake.is_locked() && flake.warnings.is_empty(), "{flake:?}");

    std::fs::write(folder.join("flake.nix"), with_dep("path:./dep2")).expect("written");
    let error = host.fetch(&request).await.expect_err("refused").to_string();
    assert!(error.contains("flake.lock does not match flake.nix in input 'dep'"), "{error}");
    request.lock_policy = LockPolicy::Complete;
    let flake = host.fetch(&request).await.expect("fetched");
    assert_eq!(flake.not_locked, ["dep"]);
    assert!(flake.warnings.join("\n").contains("does not match"), "{flake:?}");
    assert!(input_of(&host, &flake).ends_with("-source/./dep2/value"));
}

#[tokio::test]
async fn under_a_strict_policy_an_unreachable_input_is_not_locked() {
    let host = Host::new();
    let flake = "{ inputs.far.url = \"git+https://localhost:1/x\"; outputs = _: { }; }";
    let mut request = local(path_reference(&host.folder("f", &[("flake.nix", flake)])));
    let error = host.fetch(&request).await.expect_err("unreachable");
    assert_eq!(error.retry(), Retry::Backoff, "{error}");
    request.lock_policy = LockPolicy::Strict;
    let error = host.fetch(&request).await.expect_err("unreachable");
    assert!(error.retry() == Retry::Never && error.to_string().contains("'far'"), "{error}");
}

const LIB: &str = r#"{ outputs = { self }: { packages.x86_64-linux.lib = derivation { name = "lib"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo lib > $out" ]; }; }; }"#;
const MID: &str = r#"{
  inputs.base.url = "path:../does-not-exist";
  outputs = { self, base }: { packages.x86_64-linux.app = derivation { name = "app"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo ${base.packages.x86_64-linux.lib} > $out" ]; }; };
}"#;
const TOP: &str = r#"{
  inputs.base.url = "path:./base";
  inputs.mid = { url = "path:./mid"; inputs.base.follows = "base"; };
  outputs = { self, base, mid }: {
    packages.x86_64-linux = { direct = base.packages.x86_64-linux.lib; viaMid = mid.packages.x86_64-linux.app; };
  };
}"#;

#[tokio::test]
async fn f02_follows_and_folders_of_the_flake() {
    let host = Host::new();
    let files = [("flake.nix", TOP), ("base/flake.nix", LIB), ("mid/flake.nix", MID)];
    let folder = host.folder("f", &files);
    let reference = path_reference(&folder);
    for locked in [false, true] {
        if locked {
            host.nix(&["flake", "lock", &reference]).expect("locked");
        }
        let flake = host.fetch(&local(&reference)).await.expect("fetched");
        assert_eq!(flake.is_locked(), locked);
        let found = host.derivations(&flake).expect("evaluated");
        assert_eq!(found, host.expected(&reference, &[]));
        assert!(found.contains("viaMid") && found.contains("-lib.drv"), "{found}");
    }
}

#[tokio::test]
async fn f08_broken_locks_are_one_permanent_error() {
    let host = Host::new();
    let flake =
        "{ inputs.d = { url = \"path:./d\"; flake = false; }; outputs = { self, d }: { }; }";
    let cycle =
        "{ inputs.a.follows = \"b\"; inputs.b.follows = \"a\"; outputs = { self, a, b }: { }; }";
    for (name, flake, lock, expected) in [
        (
            "markers",
            flake,
            "<<<<<<< ours\n{ \"nodes\": {} }\n=======\n{ }\n>>>>>>> theirs\n",
            "flake.lock",
        ),
        (
            "version",
            flake,
            "{ \"nodes\": { \"root\": {} }, \"root\": \"root\", \"version\": 99 }",
            "flake.lock",
        ),
        ("empty", flake, "", "flake.lock"),
        (
            "cycle",
            cycle,
            "{ \"nodes\": { \"root\": {} }, \"root\": \"root\", \"version\": 7 }",
            "cycle detected: [b -> a -> b]",
        ),
    ] {
        let folder = host.folder(name, &[("flake.nix", flake), ("flake.lock", lock), ("d/x", "")]);
        let error = host.fetch(&local(path_reference(&folder))).await.expect_err(name);
        assert!(matches!(error, FetchError::Lock { .. }), "{name}: {error:?}");
        assert_eq!(error.retry(), Retry::Never);
        assert!(error.to_string().contains(expected), "{name}: {error}");
    }
}

/// A flake whose only package names its input and itself.
fn using(input: &str, url: &str) -> String {
    format!(
        r#"{{
  inputs.{input}.url = "{url}";
  outputs = {{ self, {input} }}: {{
    value = {input}.value + "!";
    packages.x86_64-linux.app = derivation {{ name = "app"; system = "x86_64-linux"; builder = {input}.value; args = [ self.outPath {input}.outPath ]; }};
  }};
}}"#
    )
}

fn over(input: &str, reference: &str) -> Override {
    Override { input: input.into(), reference: reference.into() }
}

#[tokio::test]
async fn overrides_give_what_nix_gives() {
    let host = Host::new();
    let leaf = |name: &str| {
        let text = format!("{{ outputs = _: {{ value = \"{name}\"; }}; }}");
        path_reference(&host.folder(name, &[("flake.nix", &text)]))
    };
    let (one, two) = (leaf("one"), leaf("two"));
    let middle = path_reference(&host.folder("m", &[("flake.nix", &using("leaf", &one))]));
    let folder = host.folder("top", &[("flake.nix", &using("middle", &middle))]);
    let reference = path_reference(&folder);
    host.nix(&["flake", "lock", &reference]).expect("locked");
    let plain = host.expected(&reference, &[]);
    for (input, nix_input, replaced) in
        [("middle", "middle", &two), ("middle/leaf", "middle/leaf", &two), ("mid*", "middle", &two)]
    {
        let mut request = local(&reference);
        request.overrides = vec![over(input, replaced)];
        request.lock_policy = LockPolicy::Strict;
        let flake = host.fetch(&request).await.expect(input);
        assert!(flake.warnings.is_empty(), "{flake:?}");
        let found = host.derivations(&flake).expect("evaluated");
        assert_ne!(found, plain, "{input}");
        let expected = host.expected(&reference, &["--override-input", nix_input, replaced]);
        assert_eq!(found, expected, "{input}");
        assert_eq!(flake.tree.path.name(), "source");
    }
    // A folder of the flake is replaced, whether it is locked or not.
    let inside = host.folder("inside", &[("flake.nix", &with_dep("path:./dep")), DEP]);
    let mut request = local(path_reference(&inside));
    let instead = path_reference(&host.folder("instead", &[("value", "two\n")]));
    request.overrides = vec![over("dep", &instead)];
    for _ in 0..2 {
        let flake = host.fetch(&request).await.expect("fetched");
        assert!(flake.is_locked(), "{flake:?}");
        let read = std::fs::read_to_string(host.real(&input_of(&host, &flake)));
        assert_eq!(read.expect("the file of the other input"), "two\n");
        host.nix(&["flake", "lock", &path_reference(&inside)]).expect("locked");
    }
    let mut request = local(&reference);
    request.overrides = vec![over("nothing", &two), over("no*", &two)];
    let flake = host.fetch(&request).await.expect("fetched");
    assert_eq!(host.derivations(&flake).expect("evaluated"), plain);
    let warnings = flake.warnings.join("\n");
    assert!(warnings.contains("'nothing' names no input"), "{warnings}");
    assert!(warnings.contains("'no*' matches no input"), "{warnings}");
}

#[tokio::test]
async fn what_workers_do_not_fetch_is_refused() {
    let host = Host::new();
    for (url, overrides) in [
        ("path:/etc", vec![]),
        ("git+file:///etc", vec![]),
        ("github:o/r", vec![over("x", "path:/etc")]),
        ("github:o/r", vec![over("x/*", "github:o/r")]),
    ] {
        let mut request = Request::new(Source::Reference(url.into()), Reach::Remote);
        request.overrides = overrides;
        let error = host.fetch(&request).await.expect_err(url);
        assert!(matches!(error, FetchError::Refused { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::Never);
    }
    // A flake that somebody submitted must not read files of the worker by its inputs.
    let secret = host.folder("secret", &[("key", "secret")]);
    for scheme in ["path:", "git+file://"] {
        let url = format!("{scheme}{}", secret.display());
        let text = format!(
            "{{ inputs.x = {{ url = \"{url}\"; flake = false; }}; outputs = {{ self, x }}: {{ }}; }}"
        );
        crate::host::git(&secret, &["init", "-q", "-b", "main"]);
        crate::host::git(&secret, &["add", "."]);
        crate::host::git(&secret, &["commit", "-q", "--allow-empty", "-m", "one"]);
        let flake = path_reference(
            &host.folder(scheme.trim_end_matches(['/', ':']), &[("flake.nix", &text)]),
        );
        let tree = host.fetcher.fetch_tree(&flake, Reach::Local).await.expect("fetched");
        let before = host.paths();
        let mut request = Request::new(Source::Store(tree), Reach::Remote);
        let error = host.fetch(&request).await.expect_err("refused");
        assert!(matches!(error, FetchError::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains("input 'x'"), "{error}");
        assert_eq!(host.paths(), before, "nothing of the machine comes into the store");
        request.overrides = vec![over("x", "github:o/r")];
        let error = host.fetch(&request).await.expect_err("not there");
        assert!(!matches!(error, FetchError::Refused { .. }), "{error:?}");
    }
    // Nor by its lock file, whatever that says of a parent.
    let text = "{ inputs.x = { url = \"github:o/r\"; flake = false; }; outputs = _: { }; }";
    let hash = "sha256-FV1nyfXAADQTyDZmve5vuMyjE/ewdnyWhCunQBpgS0E=";
    for (name, parent) in [("plain", ""), ("child", r#""parent":[],"#)] {
        let lock = format!(
            r#"{{"nodes":{{"root":{{"inputs":{{"x":"x"}}}},"x":{{"flake":false,{parent}"original":{{"type":"github","owner":"o","repo":"r"}},"locked":{{"type":"path","path":"{}","narHash":"{hash}"}}}}}},"root":"root","version":7}}"#,
            secret.display()
        );
        let folder = host.folder(name, &[("flake.nix", text), ("flake.lock", &lock)]);
        let tree = host.fetcher.fetch_tree(&path_reference(&folder), Reach::Local).await;
        let before = host.paths();
        let request = Request::new(Source::Store(tree.expect("fetched")), Reach::Remote);
        let error = host.fetch(&request).await.expect_err("refused");
        assert!(matches!(error, FetchError::Refused { .. }), "{error:?}");
        assert_eq!(host.paths(), before, "nothing of the machine comes into the store");
    }
    let nothing = host.folder("nothing", &[("x", "")]);
    let error = host.fetch(&local(path_reference(&nothing))).await.expect_err("no flake");
    assert!(error.to_string().contains("no flake.nix"), "{error}");
}

#[tokio::test]
async fn inputs_are_in_the_store_before_the_evaluation() {
    let host = Host::new();
    let (near, gone) = (host.folder("near", &[("x", "")]), host.folder("gone", &[("y", "")]));
    let flake = format!(
        "{{ inputs.near = {{ url = \"{}\"; flake = false; }}; inputs.gone = {{ url = \"{}\"; flake = false; }}; outputs = _: {{ }}; }}",
        path_reference(&near),
        path_reference(&gone)
    );
    let folder = host.folder("f", &[("flake.nix", &flake)]);
    host.nix(&["flake", "lock", &path_reference(&folder)]).expect("locked");
    let store = std::fs::read_dir(&host.fetcher.store_dir).expect("a store");
    let left: Vec<_> = store.flatten().map(|entry| entry.path()).collect();
    std::fs::remove_dir_all(&gone).expect("removed");
    // Another store: nothing is there, and one input cannot be had any more.
    let other = Host::new();
    let flake = other.fetch(&local(path_reference(&folder))).await.expect("fetched");
    assert!(flake.is_locked() && left.len() >= 2);
    let warnings = flake.warnings.join("\n");
    assert!(warnings.contains("input 'gone' cannot be fetched"), "{warnings}");
    assert!(!warnings.contains("'near'"), "{warnings}");
    let near = other.nix(&["hash", "path", &near.to_string_lossy()]).expect("a hash");
    let is_near = |path: &std::path::Path| {
        other.nix(&["hash", "path", &path.to_string_lossy()]).is_ok_and(|hash| hash == near)
    };
    let there = std::fs::read_dir(&other.fetcher.store_dir).expect("a store");
    assert!(there.flatten().any(|entry| is_near(&entry.path())), "the other one is fetched");
}

#[tokio::test]
async fn a_folder_that_did_not_change_runs_no_nix() {
    let mut host = Host::new();
    let runs = host.counted();
    let flake = "{ outputs = { self }: { packages.x86_64-linux = { }; }; }";
    let folder = host.folder(
        "a b",
        &[
            ("flake.nix", flake),
            ("flake.lock", "{\"nodes\":{\"root\":{}},\"root\":\"root\",\"version\":7}"),
        ],
    );
    let request = local(format!("path:{}", folder.display().to_string().replace(' ', "%20")));
    let first = host.fetch(&request).await.expect("fetched");
    assert!(first.is_locked() && first.warnings.is_empty());
    let count = || std::fs::read_to_string(&runs).expect("runs").lines().count();
    let before = count();
    assert_eq!(host.fetch(&request).await.expect("remembered"), first);
    assert_eq!(count(), before);
    std::fs::write(folder.join("more"), "").expect("written");
    let second = host.fetch(&request).await.expect("fetched");
    assert!(count() > before && second.tree.path != first.tree.path);
    // What is not in the store any more is fetched again.
    let before = count();
    let gone = host.fetcher.store_dir.join(second.tree.path.base_name());
    std::fs::rename(&gone, host.path().join("moved")).expect("moved");
    let _ = host.fetch(&request).await;
    assert!(count() > before);
    // What is not locked is never remembered.
    let open = host.folder("open", &[("flake.nix", &with_dep("path:./dep")), DEP]);
    host.fetch(&local(path_reference(&open))).await.expect("fetched");
    let before = count();
    host.fetch(&local(path_reference(&open))).await.expect("fetched");
    assert!(count() > before);
}
