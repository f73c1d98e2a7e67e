//! The walls between our crates, and around a few libraries (docs/architecture.md).

use std::collections::{BTreeMap, BTreeSet};

use gradient_tidy::krate::{self, Crate};
use gradient_tidy::{Faults, rust, tree};

/// What each crate may use of ours. A new edge is a decision: it belongs here first.
const ALLOWED: &[(&str, &[&str])] = &[
    ("gradient-domain", &[]),
    ("gradient-events", &["domain"]),
    ("gradient-log", &["domain", "events"]),
    ("gradient-scheduler-core", &["domain", "events"]),
    ("gradient-scheduler", &["domain", "events", "log", "runtime", "scheduler-core"]),
    ("gradient-cache", &["daemon", "domain", "evalcache", "runtime"]),
    ("gradient-api", &["domain", "events", "log", "postgres", "projections", "runtime"]),
    (
        "gradient-server",
        &[
            "api",
            "cache",
            "domain",
            "events",
            "log",
            "postgres",
            "projections",
            "runtime",
            "scheduler",
        ],
    ),
    (
        "gradient-worker",
        &["daemon", "domain", "events", "fetch", "ipc", "log", "nix", "pool", "runtime"],
    ),
    (
        "gradient-cli",
        &[
            "api",
            "daemon",
            "domain",
            "evalcache",
            "events",
            "fetch",
            "ipc",
            "log",
            "pool",
            "postgres",
            "projections",
            "runtime",
            "scheduler-core",
        ],
    ),
    ("gradient-runtime", &[]),
    ("gradient-projections", &["domain", "events"]),
    ("gradient-postgres", &["domain", "events", "log", "projections", "runtime"]),
    ("gradient-ipc", &["domain"]),
    ("gradient-evalcache", &["domain", "ipc"]),
    ("gradient-nix", &["domain", "evalcache", "ipc"]),
    ("gradient-daemon", &["domain"]),
    ("gradient-fetch", &["daemon", "domain"]),
    ("gradient-pool", &["daemon", "domain", "evalcache", "ipc", "nix"]),
    ("gradient-sim", &["domain", "events", "projections", "scheduler-core"]),
    ("gradient-bench", &["suite"]),
    ("gradient-tidy", &[]),
];

/// What the tests of a crate may use of ours beside that.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("gradient-projections", &["scheduler-core", "sim"]),
    ("gradient-postgres", &["scheduler-core", "sim"]),
    ("gradient-api", &["scheduler-core"]),
    ("gradient-cache", &["ipc"]),
    ("gradient-worker", &["cache", "evalcache"]),
    ("gradient-cli", &["cache"]),
];

/// Drives the product from outside and may use all of it.
const SUITE: &str = "gradient-suite";

/// Libraries that one crate alone may use, for the rest of the product to be free of them.
const ONLY: &[(&str, &str)] = &[
    ("async-nats", "gradient-log"),
    ("tokio-postgres", "gradient-postgres"),
    ("deadpool-postgres", "gradient-postgres"),
    ("refinery", "gradient-postgres"),
    ("libloading", "gradient-nix"),
    ("rusqlite", "gradient-evalcache"),
    ("object_store", "gradient-cache"),
    ("procfs", "gradient-pool gradient-worker"),
];

/// Tests that look behind a wall with a library of its owner.
const ONLY_BUT_FOR_TESTS: &[(&str, &str)] = &[("tokio-postgres", "gradient-api")];

/// No IO, no async, no chance, no network.
const PURE: &[&str] = &["tokio", "async-nats", "rand", "reqwest", "tokio-postgres", "libloading"];

/// What a crate must not see, however far away.
const BLIND: &[(&str, &[&str])] = &[
    ("gradient-domain", PURE),
    ("gradient-events", PURE),
    ("gradient-scheduler-core", PURE),
    ("gradient-projections", PURE),
    ("gradient-ipc", PURE),
    ("gradient-sim", PURE),
    ("gradient-log", &["tokio-postgres", "gradient-scheduler-core"]),
    ("gradient-scheduler", &["tokio-postgres", "gradient-postgres", "gradient-cache"]),
    ("gradient-cache", &["gradient-scheduler-core", "tokio-postgres", "async-nats"]),
    ("gradient-api", &["gradient-scheduler-core"]),
    ("gradient-worker", &["tokio-postgres", "gradient-scheduler-core", "gradient-projections"]),
    ("gradient-cli", &["tokio-postgres"]),
    ("gradient-runtime", &["gradient-domain", "gradient-events", "async-nats", "tokio-postgres"]),
    ("gradient-postgres", &["gradient-scheduler-core"]),
    ("gradient-evalcache", &["tokio", "async-nats", "libloading", "reqwest"]),
    ("gradient-nix", &["tokio", "async-nats"]),
    ("gradient-daemon", &["async-nats", "libloading"]),
    ("gradient-fetch", &["async-nats", "tokio-postgres", "libloading"]),
    ("gradient-pool", &["async-nats"]),
];

/// Crates whose default features bring SQL, each with the feature that does.
const WITH_SQL: &[(&str, &str)] = &[("gradient-postgres", "database"), ("gradient-api", "server")];

/// The one crate that calls into C.
const FOREIGN_CODE: &str = "evalpool/nix/";

fn short(name: &str) -> &str {
    name.strip_prefix("gradient-").unwrap_or(name)
}

fn row(table: &[(&str, &'static [&'static str])], name: &str) -> Option<&'static [&'static str]> {
    table.iter().find(|(row, _)| *row == name).map(|(_, cells)| *cells)
}

#[test]
fn crates_use_each_other_as_decided() {
    let mut faults = Faults::default();
    for one in krate::all().iter().filter(|one| one.name != SUITE) {
        let Some(allowed) = row(ALLOWED, &one.name) else {
            faults.add(format!("{} is not in the table of this test", one.name));
            continue;
        };
        let in_tests = row(ALLOWED_IN_TESTS, &one.name).unwrap_or_default();
        for used in one.dependencies.iter().filter(|used| Crate::is_ours(&used.name)) {
            let name = short(&used.name);
            let is_allowed = allowed.contains(&name)
                || (used.is_dev && (in_tests.contains(&name) || used.name == one.name));
            faults.check(is_allowed, || {
                let kind = if used.is_dev { " in its tests" } else { "" };
                format!("{} must not use {}{kind}", one.name, used.name)
            });
        }
    }
    faults.finish("an edge that docs/architecture.md does not allow");
}

#[test]
fn tables_name_crates_that_exist() {
    let known: BTreeSet<String> = krate::all().into_iter().map(|one| one.name).collect();
    let mut faults = Faults::default();
    let owners = ONLY.iter().flat_map(|(_, owners)| owners.split(' '));
    let rows = [ALLOWED, ALLOWED_IN_TESTS, BLIND].into_iter().flatten().map(|(name, _)| *name);
    for name in rows.chain(owners) {
        faults.check(known.contains(name), || format!("no crate is named {name}"));
    }
    faults.finish("a table of this test is out of date");
}

#[test]
fn some_libraries_have_one_user() {
    let mut faults = Faults::default();
    for one in krate::all().iter().filter(|one| one.name != SUITE) {
        for used in &one.dependencies {
            let owners = ONLY.iter().find(|(library, _)| *library == used.name);
            let is_owner =
                owners.is_none_or(|(_, owners)| owners.split(' ').any(|owner| owner == one.name));
            let in_tests = ONLY_BUT_FOR_TESTS.contains(&(used.name.as_str(), one.name.as_str()));
            faults.check(is_owner || (used.is_dev && in_tests), || {
                format!("{} must not use {}", one.name, used.name)
            });
        }
    }
    faults.finish("a library behind the wrong wall");
}

#[test]
fn nobody_sees_through_a_wall() {
    let mut faults = Faults::default();
    for (name, hidden) in BLIND {
        let seen = krate::seen_by(name);
        assert!(seen.contains(*name), "cargo says nothing of {name}");
        for library in hidden.iter().filter(|library| seen.contains(**library)) {
            faults.add(format!(
                "{name} sees {library} (cargo tree -p {name} -e normal -i {library})"
            ));
        }
    }
    faults.finish("a crate sees what it must not");
}

#[test]
fn the_command_line_takes_no_sql() {
    let mut faults = Faults::default();
    for one in krate::all().iter().filter(|one| one.name == "gradient-cli") {
        for (library, feature) in WITH_SQL {
            for used in one.dependencies.iter().filter(|used| used.name == *library) {
                let has_sql =
                    used.has_default_features || used.features.iter().any(|name| name == feature);
                faults.check(!has_sql, || format!("{} takes {library} with SQL", one.name));
            }
        }
    }
    faults.finish("the command line starts PostgreSQL, it does not speak to it");
}

#[test]
fn one_crate_alone_calls_into_c() {
    let mut faults = Faults::default();
    for file in tree::rust_files().iter().filter(|file| !file.path.starts_with(FOREIGN_CODE)) {
        let code = rust::code_only(&file.text);
        for at in rust::words(&code, concat!("un", "safe")) {
            faults.add(format!("{}:{}", file.path, rust::line_of(&code, at)));
        }
    }
    faults.finish("only evalpool/nix holds code that the compiler does not check");
}

#[test]
fn pure_crates_have_the_same_bans() {
    let mut files = BTreeMap::new();
    for folder in ["services/scheduler-core", "projections/model", "evalpool/ipc"] {
        files.entry(tree::text(&format!("{folder}/clippy.toml"))).or_insert(folder);
    }
    let text = files.keys().next().expect("three files");
    let mut faults = Faults::default();
    faults.check(files.len() == 1, || format!("they differ: {:?}", files.values()));
    for banned in ["SystemTime::now", "Instant::now", "std::env", "std::fs", "HashMap", "HashSet"] {
        faults.check(text.contains(banned), || format!("{banned} is not banned"));
    }
    faults.finish("clippy.toml of the pure crates (ADR 3)");
}
