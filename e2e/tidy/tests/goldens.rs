//! Golden files are for ever: the list of their checksums only grows.
//!
//! `GRADIENT_BLESS=1 cargo test -p gradient-tidy` adds new ones (docs/adding-an-event.md).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use gradient_tidy::{Faults, is_blessing, tree};
use sha2::{Digest, Sha256};

/// Lines of `<sha-256>  <path>`, as `sha256sum` writes and checks them.
const LIST: &str = "e2e/tidy/goldens.sha256";

fn is_golden(path: &str) -> bool {
    path.split('/').rev().skip(1).any(|folder| folder == "golden")
}

fn checksum(path: &str) -> String {
    let bytes = fs::read(tree::root().join(path)).expect("a golden file is readable");
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn listed() -> BTreeMap<String, String> {
    let text = fs::read_to_string(tree::root().join(LIST)).unwrap_or_default();
    let pair = |line: &str| {
        let (sum, path) = line.split_once("  ").expect("a checksum, two spaces and a path");
        (path.to_owned(), sum.to_owned())
    };
    text.lines().map(pair).collect()
}

#[test]
fn golden_files_do_not_change() {
    let mut listed = listed();
    let mut faults = Faults::default();
    let found: Vec<String> = tree::paths().into_iter().filter(|path| is_golden(path)).collect();
    for path in listed.keys().filter(|path| !found.contains(path)) {
        faults.add(format!("{path} is gone"));
    }
    let mut is_new = false;
    for path in found {
        let sum = checksum(&path);
        match listed.get(&path) {
            Some(known) => faults.check(*known == sum, || format!("{path} was changed")),
            None if is_blessing() => {
                is_new = true;
                listed.insert(path, sum);
            }
            None => faults.add(format!("{path} is not in {LIST}; GRADIENT_BLESS=1 adds it")),
        }
    }
    faults.finish("golden files are never changed or deleted; a new form is a new schema");
    if is_new {
        let lines: String = listed.iter().map(|(path, sum)| format!("{sum}  {path}\n")).collect();
        fs::write(tree::root().join(LIST), lines).expect("the list is written");
    }
}
