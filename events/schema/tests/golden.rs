//! Golden files: the bytes of every type and schema as they were first written, and the JSON that
//! people see. A build that reads or writes them otherwise has changed the log's meaning.
//!
//! `GRADIENT_BLESS=1 cargo test -p gradient-events` writes the files that are missing
//! (docs/adding-an-event.md).

mod samples;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use gradient_events::{ServerMessage, Wire};
use serde::Serialize;
use serde::de::DeserializeOwned;

use samples::Sample;

fn folder(type_name: &str, schema: u16) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{type_name}-v{schema}"))
}

/// The file's bytes; written first if it is missing and `GRADIENT_BLESS=1`.
fn golden(file: &Path, made: &[u8]) -> Vec<u8> {
    if !file.exists() {
        let bless = std::env::var_os("GRADIENT_BLESS").is_some_and(|value| value == "1");
        assert!(bless, "{} is missing; GRADIENT_BLESS=1 writes it", file.display());
        fs::create_dir_all(file.parent().expect("a file in a folder")).expect("folder is made");
        fs::write(file, made).expect("golden file is written");
    }
    fs::read(file).expect("golden file is readable")
}

/// Bytes read back to the sample and are written alike.
fn check_bytes<T: Wire + PartialEq + Debug>(samples: &[Sample<T>]) {
    let folder = folder(T::TYPE, T::SCHEMA);
    for (name, value) in samples {
        let file = folder.join(format!("{name}.bin"));
        let bytes = golden(&file, &value.to_body());
        let read = T::from_body(T::SCHEMA, &bytes);
        assert_eq!(read.as_ref(), Ok(value), "{} reads as something else", file.display());
        assert_eq!(value.to_body(), bytes, "{} would be written otherwise", file.display());
    }
    check_names(&folder, samples.iter().map(|(name, _)| name.as_str()));
}

/// The JSON reads back to the sample and is written alike.
fn check_json<T: Wire + PartialEq + Debug + Serialize + DeserializeOwned>(samples: &[Sample<T>]) {
    let folder = folder(T::TYPE, T::SCHEMA);
    for (name, value) in samples {
        let file = folder.join(format!("{name}.json"));
        let mut made = serde_json::to_string_pretty(value).expect("samples have JSON");
        made.push('\n');
        let text = String::from_utf8(golden(&file, made.as_bytes())).expect("JSON is text");
        assert_eq!(made, text, "{} would be written otherwise", file.display());
        let read: T = serde_json::from_str(&text).expect("golden JSON is readable");
        assert_eq!(&read, value, "{} reads as something else", file.display());
    }
}

/// No sample has the name of another, and no golden file is without its sample.
fn check_names<'a>(folder: &Path, names: impl Iterator<Item = &'a str>) {
    let mut known = BTreeSet::new();
    for name in names {
        assert!(known.insert(name.to_owned()), "two samples are named {name}");
    }
    for file in fs::read_dir(folder).expect("folder of golden files") {
        let path = file.expect("a folder entry").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a file name");
        assert!(known.contains(name), "{} has no sample", path.display());
    }
}

fn check<T: Wire + PartialEq + Debug + Serialize + DeserializeOwned>(samples: &[Sample<T>]) {
    check_bytes(samples);
    check_json(samples);
}

#[test]
fn what_workers_say_reads_as_it_was_written() {
    check(&samples::from_worker());
}

#[test]
fn heartbeats_read_as_they_were_written() {
    check(&samples::heartbeats());
}

#[test]
fn what_workers_are_told_reads_as_it_was_written() {
    let mut samples = samples::server();
    check_bytes(&samples);
    // JSON does not tell upload tokens, so it cannot give them back.
    for (name, message) in &mut samples {
        if let ServerMessage::AssignJob { upload_token, .. } = message {
            let token = upload_token.as_str().to_owned();
            let json = serde_json::to_string(upload_token).expect("a text");
            for shown in [format!("{upload_token:?}"), json] {
                assert!(!shown.contains(&token), "{name} shows its token: {shown}");
            }
            *upload_token = "(hidden)".into();
        }
    }
    check_json(&samples);
}

#[test]
fn commands_read_as_they_were_written() {
    check(&samples::commands());
}

#[test]
fn the_log_reads_as_it_was_written() {
    check(&samples::entries());
}

/// Queries are never shown, so they have bytes only.
#[test]
fn queries_read_as_they_were_written() {
    check_bytes(&samples::queries());
    check_bytes(&samples::answers());
}

#[test]
fn every_folder_of_golden_files_is_checked_here() {
    let known = [
        "worker-v1",
        "heartbeat-v1",
        "server-v1",
        "command-v1",
        "entries-v1",
        "query.known_derivations-v1",
        "answer.known_derivations-v1",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    for folder in fs::read_dir(root).into_iter().flatten() {
        let name = folder.expect("a folder entry").file_name();
        assert!(known.iter().any(|known| name == *known), "{name:?} is checked by no test");
    }
}
