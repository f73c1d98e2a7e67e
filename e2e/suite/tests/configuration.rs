//! The page of all settings is what the programs say of themselves.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use gradient_suite::programs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
const PAGE_TEXT: &str = include_str!("../../../docs/configuration.md");

/// Programs, with the arguments that come before `--help`.
const TOLD: [(&str, &[&str]); 5] = [
    ("gradient-worker", &[]),
    ("gradient-server", &[]),
    ("gradient", &["up"]),
    ("gradient", &["eval"]),
    ("gradient", &["submit"]),
];

/// A setting, as the help tells it.
#[derive(Default)]
struct Setting {
    flag: String,
    variable: String,
    default: String,
    words: Vec<String>,
}

impl Setting {
    fn take(&mut self, line: &str) {
        let bracket = |what: &str| line.strip_prefix(what)?.strip_suffix(']');
        if let Some(variable) = bracket("[env: ") {
            self.variable = format!("`{}`", variable.trim_end_matches('='));
        } else if let Some(default) = bracket("[default: ") {
            self.default = format!("`{default}`");
        } else if let Some(values) = bracket("[possible values: ") {
            self.words.push(format!("({values})"));
        } else if let Some((value, meaning)) =
            line.strip_prefix("- ").and_then(|l| l.split_once(':'))
        {
            self.words.push(format!("`{value}`: {};", meaning.trim()));
        } else {
            self.words.push(line.replace("Possible values:", "\u{2013}"));
        }
    }

    fn row(&self) -> String {
        let words = self.words.join(" ").trim_end_matches(';').to_owned();
        let cells = [&format!("`{}`", self.flag), &self.variable, &self.default, &words];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        format!("| {} |\n", cells.join(" | "))
    }
}

/// The settings of a program as a table.
fn table(program: &str, before: &[&str]) -> String {
    let mut command = Command::new(programs::own(program));
    command.args(before).arg("--help").env_clear().env("HOME", "/nowhere");
    let output = command.output().expect("a program");
    assert!(output.status.success(), "{program} {before:?} --help");
    let text = String::from_utf8(output.stdout).expect("text");
    let (_, options) = text.split_once("\nOptions:\n").expect("options");
    let mut settings: Vec<Setting> = Vec::new();
    for line in options.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('-') && !line.starts_with("- ") {
            settings.push(Setting { flag: line.to_owned(), ..Setting::default() });
        } else {
            settings.last_mut().expect("a flag comes first").take(line);
        }
    }
    let mut table = "| Flag | Variable | Default | Meaning |\n|---|---|---|---|\n".to_owned();
    let usual = ["--help", "--version"];
    for setting in settings {
        if !usual.iter().any(|name| setting.flag.contains(name)) {
            table.push_str(&setting.row());
        }
    }
    table
}

#[test]
fn the_page_of_settings_is_what_the_programs_say() {
    let mut page = PAGE_TEXT.split("\n## ").next().expect("a head").to_owned();
    for (program, before) in TOLD {
        let name = [&[program], before].concat().join(" ");
        let _ = write!(page, "\n## `{name}`\n\n{}", table(program, before));
    }
    if page == PAGE_TEXT {
        return;
    }
    let is_blessing = std::env::var_os("GRADIENT_BLESS").is_some();
    assert!(is_blessing, "docs/configuration.md is old; GRADIENT_BLESS=1 renews it\n{page}");
    std::fs::write(Path::new(PAGE), page).expect("the page is written");
}
