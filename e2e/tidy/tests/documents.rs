//! Documents: complete, linked, and in step with the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use gradient_tidy::krate::{self, Crate};
use gradient_tidy::tree::TextFile;
use gradient_tidy::{Faults, is_blessing, rust, tree};

/// Where the crate graph stands.
const GRAPH_PAGE: &str = "docs/architecture.md";
const GRAPH_BEGIN: &str = "<!-- crate graph: begin; generated, GRADIENT_BLESS=1 renews it -->\n";
const GRAPH_END: &str = "<!-- crate graph: end -->\n";

/// Enums whose every variant the protocol page names, and the file that has them.
const TOLD: &[(&str, &str)] = &[
    ("WorkerMessage", "events/schema/src/worker.rs"),
    ("JobUpdate", "events/schema/src/worker.rs"),
    ("ServerMessage", "events/schema/src/server.rs"),
    ("Command", "events/schema/src/command.rs"),
    ("Input", "events/schema/src/entry.rs"),
    ("Event", "events/schema/src/event.rs"),
    ("FailureKind", "events/schema/src/job.rs"),
];

/// Sections of a decision record, in this order.
const RECORD: [&str; 4] = ["## Context", "## Decision", "## Consequences", "## Rejected"];

/// Most lines of a decision record: one page.
const RECORD_LINES_MAX: usize = 70;
/// Most lines of the README of a crate.
const CRATE_README_LINES_MAX: usize = 25;

fn pages() -> Vec<TextFile> {
    tree::texts().into_iter().filter(|file| file.path.ends_with(".md")).collect()
}

/// The crate graph as a mermaid block, from what the crates declare.
fn graph() -> String {
    let short = |name: &str| name.strip_prefix("gradient-").unwrap_or(name).to_owned();
    let mut folders: BTreeMap<String, Vec<Crate>> = BTreeMap::new();
    for one in krate::all() {
        let top = one.folder.split('/').next().unwrap_or_default().to_owned();
        folders.entry(top).or_default().push(one);
    }
    let mut text = String::from("```mermaid\nflowchart TD\n");
    for (folder, crates) in &folders {
        let _ = writeln!(text, "  subgraph in-{folder} [{folder}]");
        for one in crates {
            let _ = writeln!(text, "    {}", short(&one.name));
        }
        text.push_str("  end\n");
    }
    for one in folders.values().flatten() {
        let mut used: Vec<String> = one
            .dependencies
            .iter()
            .filter(|used| !used.is_dev && Crate::is_ours(&used.name))
            .map(|used| short(&used.name))
            .collect();
        used.sort();
        used.dedup();
        for name in used {
            let _ = writeln!(text, "  {} --> {name}", short(&one.name));
        }
    }
    text.push_str("```\n");
    text
}

#[test]
fn the_crate_graph_is_what_cargo_says() {
    let page = tree::text(GRAPH_PAGE);
    let (before, rest) = page.split_once(GRAPH_BEGIN).expect("the page has the first marker");
    let (found, after) = rest.split_once(GRAPH_END).expect("the page has the last marker");
    let right = graph();
    if found == right {
        return;
    }
    assert!(is_blessing(), "the crate graph in {GRAPH_PAGE} is old; GRADIENT_BLESS=1 renews it");
    let page = format!("{before}{GRAPH_BEGIN}{right}{GRAPH_END}{after}");
    fs::write(tree::root().join(GRAPH_PAGE), page).expect("the page is written");
}

#[test]
fn the_protocol_page_names_every_message() {
    let page = tree::text("docs/protocol.md");
    let mut faults = Faults::default();
    for (name, path) in TOLD {
        let variants = rust::variants(&tree::text(path), name);
        assert!(variants.len() > 1, "{path} has no enum {name}");
        for variant in variants {
            faults.check(page.contains(&format!("`{variant}`")), || format!("{name}::{variant}"));
        }
    }
    faults.finish("docs/protocol.md does not name");
}

#[test]
fn the_operations_page_names_every_metric() {
    let page = tree::text("docs/operations.md");
    let mut faults = Faults::default();
    for file in tree::rust_files().iter().filter(|file| !file.path.starts_with("e2e/")) {
        let has_constants = file.path.ends_with("/metrics.rs");
        for name in file.text.lines().filter_map(|line| metric(line, has_constants)) {
            faults.check(page.contains(&format!("`{name}`")), || format!("{}: {name}", file.path));
        }
    }
    faults.finish("docs/operations.md does not name");
}

/// The metric of a line such as `const PENDING: &str = "gradient_pending_jobs";` in a file of
/// constants, or `counter!("gradient_uploads_total")` anywhere.
fn metric(line: &str, has_constants: bool) -> Option<&str> {
    let starts = ["counter!(\"", "gauge!(\"", "histogram!(\"", ": &str = \""];
    let starts = &starts[..if has_constants { 4 } else { 3 }];
    let value = starts.iter().find_map(|start| line.split_once(start))?.1;
    let name = value.split('"').next()?;
    let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    (is_name && name.starts_with("gradient_")).then_some(name)
}

#[test]
fn links_lead_to_files() {
    let mut faults = Faults::default();
    for page in pages() {
        let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (at, _) in page.text.match_indices("](") {
            let target = page.text[at + 2..].split([')', ' ', '\n']).next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let exists = tree::root().join(folder).join(file).exists();
            let line = rust::line_of(&page.text, at);
            faults.check(exists, || format!("{}:{line}: {target}", page.path));
        }
    }
    faults.finish("links that lead nowhere");
}

#[test]
fn every_crate_says_its_layer_and_wall() {
    let mut faults = Faults::default();
    for one in krate::all() {
        let path = format!("{}/README.md", one.folder);
        let text = fs::read_to_string(tree::root().join(&path)).unwrap_or_default();
        let is_right = |word: &str| text.lines().any(|line| line.starts_with(word));
        faults
            .check(text.starts_with(&format!("# {}\n", one.name)), || format!("{path}: no title"));
        faults.check(is_right("Layer: "), || format!("{path}: no line `Layer: `"));
        faults.check(is_right("Wall: "), || format!("{path}: no line `Wall: `"));
        let lines = text.lines().count();
        faults.check(lines <= CRATE_README_LINES_MAX, || format!("{path}: {lines} lines"));
    }
    faults.finish("a crate's README.md says in about ten lines what it is, its layer and its wall");
}

#[test]
fn decision_records_are_whole_and_numbered() {
    let mut faults = Faults::default();
    let records: Vec<TextFile> =
        pages().into_iter().filter(|page| page.path.starts_with("docs/adr/")).collect();
    for (n, record) in records.iter().enumerate() {
        let number = format!("docs/adr/{:04}-", n + 1);
        faults.check(record.path.starts_with(&number), || {
            format!("{}: a number is missing or used twice before it", record.path)
        });
        let title = format!("# {}. ", n + 1);
        faults.check(record.text.starts_with(&title), || format!("{}: title", record.path));
        let sections: Vec<&str> =
            record.text.lines().filter(|line| line.starts_with("## ")).collect();
        faults.check(sections == RECORD, || format!("{}: has {sections:?}", record.path));
        let lines = record.text.lines().count();
        faults.check(lines <= RECORD_LINES_MAX, || format!("{}: {lines} lines", record.path));
    }
    faults.check(records.len() >= 12, || format!("{} records", records.len()));
    faults.finish("a decision record has Context, Decision, Consequences, Rejected on one page");
}
