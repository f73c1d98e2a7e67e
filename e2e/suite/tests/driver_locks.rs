//! Flakes whose inputs, lock files and checkouts are not as they should be, through the hidden harness.

use std::path::Path;

use gradient_suite::local::Local;
use gradient_suite::lock_case::{F01, F02, F08, f06};
use serde_json::{Value, json};

/// The requests that read everything of a reference: its lock, its fingerprint, its jobs.
fn whole(reference: &str) -> [Value; 3] {
    [
        json!({ "op": "lock", "repository": reference }),
        json!({ "op": "fingerprint", "repository": reference }),
        json!({ "op": "list", "repository": reference, "wildcards": ["packages.x86_64-linux.*"] }),
    ]
}

fn reference(folder: &Path) -> String {
    format!("path:{}", folder.display())
}

/// What a list has of an attribute: its derivation or its error.
#[track_caller]
fn of<'a>(list: &'a Value, name: &str, field: &str) -> &'a str {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let attr = format!("packages.x86_64-linux.{name}");
    let item = items.iter().find(|item| item["attr"] == attr.as_str());
    let text = item.and_then(|item| item[field].as_str());
    text.unwrap_or_else(|| panic!("no {field} of {name} in {list}"))
}

#[test]
fn f01_inputs_that_are_not_locked_are_named_and_the_checkout_stays_as_it_is() {
    let local = Local::new();
    let folder = local.flake("f01", &[("flake.nix", F01), ("dep/value", "one\n")]);
    let flake = reference(&folder);
    let [lock, fingerprint, list] = <[Value; 3]>::try_from(local.drive(&whole(&flake))).expect("3");
    assert_eq!(lock["not_locked"], json!(["dep"]), "{lock}");
    let words = "there is no flake.lock for input 'dep'";
    for response in [&lock, &list] {
        let told = response["warnings"].as_array().expect("a list");
        let is_told = told.iter().any(|one| one.as_str().is_some_and(|one| one.contains(words)));
        assert!(is_told, "{response}");
    }
    assert!(!folder.join("flake.lock").exists(), "it was written to");
    let strict = json!({ "op": "lock", "repository": flake, "strict_lock": true });
    let refused = &local.drive(std::slice::from_ref(&strict))[0];
    let message = refused["message"].as_str().expect("an error");
    assert!(refused["kind"] == "err" && message.contains(words), "{refused}");

    // Another value is another evaluation, under another key.
    let _ = local.flake("f01", &[("dep/value", "two\n")]);
    let after = local.drive(&whole(&flake));
    assert_ne!(after[1]["fingerprint"], fingerprint["fingerprint"]);
    assert_ne!(of(&after[2], "app", "drv_path"), of(&list, "app", "drv_path"));

    // A lock file that is out of date is not used in silence.
    let _ = local.nix("nix", &["flake", "lock", &flake]);
    let locked = local.drive(&[strict.clone(), whole(&flake)[0].clone()]);
    assert!(locked[0]["kind"] == "lock_ok" && locked[1]["not_locked"] == json!([]), "{locked:?}");
    let other = F01.replace("path:./dep", "path:./other");
    let _ = local.flake("f01", &[("flake.nix", &other), ("other/value", "three\n")]);
    let stale = local.drive(&[strict, whole(&flake)[0].clone()]);
    let words = "flake.lock does not match flake.nix in input 'dep'";
    assert!(stale[0]["message"].as_str().is_some_and(|one| one.contains(words)), "{stale:?}");
    assert!(stale[1]["warnings"].to_string().contains(words), "{stale:?}");
}

#[test]
fn f02_an_input_that_follows_another_is_that_one() {
    let local = Local::new();
    let flake = local.flake("f02", F02);
    let responses = local.drive(&whole(&reference(&flake)));
    let list = &responses[2];
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{responses:?}");
    assert_eq!(list["errors"], json!([]));
    let app = of(list, "viaMid", "drv_path");
    let folder = local.path().join("root/nix/store");
    let text = std::fs::read_to_string(folder.join(app.trim_start_matches("/nix/store/")));
    let lib = of(list, "direct", "drv_path").trim_start_matches("/nix/store/");
    assert!(text.expect("a derivation").contains(lib), "{app} is made of another {lib}");
    assert!(!format!("{responses:?}").contains("does-not-exist"), "it was looked for");
}

#[test]
fn f06_a_checkout_is_what_git_tracks_of_it() {
    let local = Local::new();
    let flake = f06(&local);
    let list = &local.drive(&whole(&flake))[2];
    assert!(of(list, "tracked", "drv_path").ends_with("-tracked.drv"));
    for name in ["untracked", "ignored"] {
        let error = of(list, name, "error");
        assert!(error.contains("No such file or directory"), "{name}: {error}");
        assert!(!error.contains("submodules"), "{name}: {error}");
    }
    assert!(of(list, "sub", "error").contains("add submodules=1"), "{list}");
    let with = &local.drive(&whole(&format!("{flake}?submodules=1")))[2];
    assert!(of(with, "sub", "drv_path").ends_with("-sub.drv"));
}

#[test]
fn f08_a_broken_lock_file_is_one_clear_error() {
    let local = Local::new();
    for (name, files, words) in F08 {
        let flake = local.flake(name, files);
        for response in local.drive(&whole(&reference(&flake))) {
            assert_eq!(response["kind"], "err", "{name}: {response}");
            let message = response["message"].as_str().expect("a text");
            assert!(message.contains(words), "{name}: {message}");
        }
    }
}
