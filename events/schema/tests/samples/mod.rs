//! One value or more of every variant of everything that travels or is logged.
//!
//! A sample is frozen with its golden files: never change one, add another beside it.

mod entries;
mod event;
mod fixture;
mod server;
mod worker;

use gradient_events::command::Command;
use gradient_events::entry::EntryBatch;
use gradient_events::query::{KnownDerivations, QueryKnownDerivations};
use gradient_events::server::ServerMessage;
use gradient_events::worker::{FromWorker, Heartbeat, WorkerMetrics};

use fixture::{SESSION, evaluation, job, path, store_source};

/// A named value; the name is the name of its golden files.
pub(crate) type Sample<T> = (String, T);

/// Declares every variant of an enum: a match that a new variant breaks, and the list of names that
/// must each have a sample.
macro_rules! variants {
    ($function:ident, $all:ident, $type:ty: $($variant:ident => $pattern:pat),+ $(,)?) => {
        /// Name of the variant.
        fn $function(value: &$type) -> &'static str {
            match value {
                $($pattern => stringify!($variant),)+
            }
        }
        /// Every variant.
        const $all: &[&str] = &[$(stringify!($variant)),+];
    };
}
pub(crate) use variants;

/// Fails if a variant of `all` is the `name_of` no value.
pub(crate) fn assert_complete<'a, T: 'a>(
    all: &[&str],
    values: impl IntoIterator<Item = &'a T>,
    name_of: fn(&T) -> &'static str,
) {
    let seen: std::collections::BTreeSet<&str> = values.into_iter().map(name_of).collect();
    let without: Vec<&&str> = all.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(without.is_empty(), "no sample for {without:?}");
}

/// `CamelCase` as `snake-case` with dashes: the name of a file.
fn file_name(variant: &str) -> String {
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// Names values after their variants; a repeated variant is numbered from 2.
fn named<T>(values: Vec<T>, name_of: fn(&T) -> &'static str) -> Vec<Sample<T>> {
    let mut counts = std::collections::BTreeMap::new();
    values
        .into_iter()
        .map(|value| {
            let name = file_name(name_of(&value));
            let count = counts.entry(name.clone()).and_modify(|n| *n += 1).or_insert(1);
            (if *count == 1 { name } else { format!("{name}-{count}") }, value)
        })
        .collect()
}

/// Bodies of type `worker`.
pub(crate) fn from_worker() -> Vec<Sample<FromWorker>> {
    worker::all()
        .into_iter()
        .map(|(name, message)| (name, FromWorker { session: SESSION, message }))
        .collect()
}

/// Bodies of type `heartbeat`.
pub(crate) fn heartbeats() -> Vec<Sample<Heartbeat>> {
    let measured = WorkerMetrics {
        cpu_usage_pct: 37,
        ram_free_mb: 12_345,
        disk_speed_mbps: Some(900),
        upload_speed_mbps: Some(80),
        download_speed_mbps: Some(250),
        build_peak_ram_mb: Some(vec![(job(), 512)]),
    };
    let idle = WorkerMetrics { ram_free_mb: 8_000, ..WorkerMetrics::default() };
    vec![
        ("measured".into(), Heartbeat { session: SESSION, metrics: measured }),
        ("idle".into(), Heartbeat { session: SESSION, metrics: idle }),
    ]
}

/// Bodies of type `server`.
pub(crate) fn server() -> Vec<Sample<ServerMessage>> {
    server::all()
}

/// Bodies of type `command`.
pub(crate) fn commands() -> Vec<Sample<Command>> {
    variants!(name_of, ALL, Command:
        Submit => Command::Submit { .. },
        CancelEvaluation => Command::CancelEvaluation { .. },
        CancelBuild => Command::CancelBuild { .. },
    );
    let values = vec![
        Command::Submit {
            evaluation: evaluation(),
            flake: store_source(),
            patterns: vec!["packages.*.*".into(), "!packages.*.big".into()],
            fetch: fixture::fetch_options(),
        },
        Command::CancelEvaluation { evaluation: evaluation() },
        Command::CancelBuild { build: fixture::BUILD },
        Command::Submit {
            evaluation: evaluation(),
            flake: gradient_events::FlakeSource::Reference {
                url: "github:example/project/main".into(),
            },
            patterns: vec!["checks.x86_64-linux.*".into()],
            fetch: Default::default(),
        },
    ];
    assert_complete(ALL, &values, name_of);
    named(values, name_of)
}

/// Bodies of type `entries`.
pub(crate) fn entries() -> Vec<Sample<EntryBatch>> {
    entries::all()
}

/// Bodies of type `query.known_derivations`.
pub(crate) fn queries() -> Vec<Sample<QueryKnownDerivations>> {
    vec![(
        "two".into(),
        QueryKnownDerivations { drv_paths: vec![path("first.drv"), path("second.drv")] },
    )]
}

/// Bodies of type `answer.known_derivations`.
pub(crate) fn answers() -> Vec<Sample<KnownDerivations>> {
    vec![
        ("one".into(), KnownDerivations { known: vec![path("first.drv")] }),
        ("none".into(), KnownDerivations { known: Vec::new() }),
    ]
}
