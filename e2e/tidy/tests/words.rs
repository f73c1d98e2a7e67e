//! Words that must not be in the repository. The patterns are put together from pieces, so that this
//! file does not hold them.

use gradient_tidy::{Faults, rust, tree};

/// Unfinished or left behind: in code, not in comments or strings.
const LEFT_BEHIND: &[&str] = &[
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("#[", "ignore"),
];

/// A test waits for a condition with a limit; it does not sleep and hope. So a pause stands in the
/// loop that asks for the condition.
const SLEEPS: &[&str] = &[concat!("thread::", "sleep"), concat!("time::", "sleep")];

/// Pauses outside of a loop from before the rule. The list only shrinks.
const SLEEPS_LEFT: &[(&str, usize)] = &[];

/// Package indexes: which one is used is a setting of the machine.
const INDEXES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("npmjs", ".org"),
    concat!("proxy.golang", ".org"),
];

/// Folders of one machine.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/bash_", "jobs")];

/// Cargo writes the name of its index into its lock file.
const LOCK: &str = "Cargo.lock";

#[test]
fn nothing_is_left_behind() {
    let mut faults = Faults::default();
    let unfinished = concat!("FIX", "ME");
    for file in tree::rust_files() {
        let code = rust::code_only(&file.text);
        for word in LEFT_BEHIND {
            for (at, _) in code.match_indices(word) {
                faults.add(format!("{}:{}: {word}", file.path, rust::line_of(&code, at)));
            }
        }
        for (at, _) in file.text.match_indices(unfinished) {
            faults.add(format!("{}:{}: {unfinished}", file.path, rust::line_of(&file.text, at)));
        }
    }
    faults.finish("unfinished, left behind or switched off");
}

#[test]
fn tests_do_not_sleep_and_hope() {
    let mut faults = Faults::default();
    let is_test = |path: &str| path.contains("/tests/") || path.starts_with("e2e/suite/");
    for file in tree::rust_files().iter().filter(|file| is_test(&file.path)) {
        let code = rust::code_only(&file.text);
        let found: Vec<usize> = SLEEPS
            .iter()
            .flat_map(|word| code.match_indices(word))
            .filter(|(at, _)| !rust::is_in_loop(&code, *at))
            .map(|(at, _)| rust::line_of(&code, at))
            .collect();
        let left = SLEEPS_LEFT.iter().find(|(path, _)| *path == file.path).map_or(0, |(_, n)| *n);
        if found.len() > left {
            faults.add(format!("{}: sleeps in lines {found:?}, {left} allowed", file.path));
        } else if found.len() < left {
            faults.add(format!("{}: {} sleeps are left, lower its number", file.path, found.len()));
        }
    }
    for (path, _) in SLEEPS_LEFT {
        let is_there = tree::root().join(path).is_file();
        faults.check(is_there, || format!("{path} is gone, remove it from the list"));
    }
    faults.finish("tests wait for a condition with a limit (docs/testing.md)");
}

#[test]
fn nothing_depends_on_one_machine() {
    let mut faults = Faults::default();
    for file in tree::texts() {
        for word in INDEXES.iter().filter(|_| !file.path.ends_with(LOCK)).chain(MACHINE_PATHS) {
            for (at, _) in file.text.match_indices(word) {
                faults.add(format!("{}:{}: {word}", file.path, rust::line_of(&file.text, at)));
            }
        }
    }
    faults.finish("names of a machine or of a package index");
}

#[test]
fn ci_runs_what_people_run() {
    let mut faults = Faults::default();
    let has = |path: &str, line: &str| tree::text(path).lines().any(|l| l.trim() == line);
    faults.check(has(".ci/run", "exec make test"), || ".ci/run does not call make test".into());
    faults
        .check(has("Makefile", "e2e/run-tests.sh"), || "make test is not e2e/run-tests.sh".into());
    faults.finish("continuous integration runs make test");
}
