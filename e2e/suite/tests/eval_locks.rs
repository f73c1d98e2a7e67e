//! `gradient eval` on flakes whose inputs, lock files and checkouts are not as they should be.

use std::path::{Path, PathBuf};

use gradient_suite::local::{Local, line, sorted};
use gradient_suite::lock_case::{F01, F02, F08, f06};

#[test]
fn inputs_that_are_not_locked_are_named_and_the_checkout_stays_as_it_is() {
    let local = Local::new();
    let flake = local.flake("f01", &[("flake.nix", F01), ("dep/value", "one\n")]);
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
    let flake = local.flake("f01", &[("flake.nix", F01), ("dep/value", "one\n")]);
    let folder = flake.to_str().expect("text");
    let _ = local.nix("nix", &["flake", "lock", &format!("path:{folder}")]);
    let _ = local.eval(&flake, &["--strict-lock"]).ok();
    let other = F01.replace("path:./dep", "path:./other");
    let _ = local.flake("f01", &[("flake.nix", &other), ("other/value", "three\n")]);
    let refused = local.eval(&flake, &["--strict-lock"]).with_code(1);
    assert!(refused.stderr.contains("does not match flake.nix in input 'dep'"), "{refused:?}");
    let said = local.eval(&flake, &[]).ok();
    assert!(said.stderr.contains("does not match flake.nix in input 'dep'"), "{said:?}");
}

#[test]
fn an_input_that_follows_another_is_that_one() {
    let local = Local::new();
    let flake = local.flake("f02", F02);
    let lines = sorted(&local.eval(&flake, &["--show-input-drvs"]).ok());
    let lib = line(&lines, "packages.x86_64-linux.direct")["drvPath"].as_str().expect("a path");
    let inputs = &line(&lines, "packages.x86_64-linux.viaMid")["inputDrvs"];
    assert_eq!(inputs[lib], serde_json::json!(["out"]), "{lines:#?}");
}

#[test]
fn a_broken_lock_file_is_one_clear_error() {
    let local = Local::new();
    for (name, files, words) in F08 {
        let flake = local.flake(name, files);
        let said = local.eval(&flake, &[]).with_code(1);
        assert!(said.stderr.starts_with("error: ") && said.stderr.contains(words), "{said:?}");
        assert_eq!(said.stdout, "", "{name}");
    }
}

#[test]
fn a_checkout_is_what_git_tracks_of_it() {
    let local = Local::new();
    let reference = f06(&local);
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

/// What Nix remembers of fetching, wherever it is below a folder.
fn caches_of_fetches(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(caches_of_fetches(&entry.path()));
        } else if name.starts_with("fetcher-cache-v") && name.ends_with(".sqlite") {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn a_damaged_cache_of_fetches_harms_nothing() {
    let local = Local::new();
    let flake = local.flake("f02", F02);
    let folder = flake.to_str().expect("text");
    let _ = local.nix("nix", &["flake", "lock", &format!("path:{folder}")]);
    let _ = local.eval(&flake, &["packages.x86_64-linux.direct"]).ok();
    for (is_cut, pattern) in [(false, "viaMid"), (true, "*")] {
        let caches = caches_of_fetches(&local.path().join("data"));
        assert!(!caches.is_empty(), "nothing is remembered");
        for cache in caches {
            let whole = std::fs::read(&cache).expect("read");
            let damaged = match is_cut {
                true => whole[..whole.len() / 2].to_vec(),
                false => b"no database at all".repeat(1_000),
            };
            std::fs::write(cache, damaged).expect("damaged");
        }
        // The lock is remembered, so that the evaluators are the first to look.
        let said = local.eval(&flake, &[&format!("packages.x86_64-linux.{pattern}")]).ok();
        assert!(!sorted(&said).is_empty(), "{said:?}");
    }
}
