//! The table, for people and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::contest::Comparison;
use crate::measure::Spread;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// On what.
    pub(crate) machine: Machine,
    /// What could not be compared, and why.
    pub(crate) notes: Vec<String>,
    /// The figures.
    pub(crate) comparisons: Vec<Comparison>,
}

/// The machine and the versions.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// The model of its processors.
    pub(crate) processor: String,
    /// How many of them.
    pub(crate) processors: usize,
    /// Its memory in MiB.
    pub(crate) memory_mib: u64,
    /// Its kernel.
    pub(crate) kernel: String,
    /// `nix --version`.
    pub(crate) nix: String,
    /// The version of this program, which is that of the product.
    pub(crate) gradient: &'static str,
    /// Where the stores were.
    pub(crate) stores: String,
    /// How busy it was, before and after: processes ready to run, over a minute.
    pub(crate) load: [String; 2],
}

impl Machine {
    /// This one.
    pub(crate) fn here(nix: String, stores: String) -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let line = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or("", |(_, value)| value).trim().to_owned()
        };
        let memory = line(&text("/proc/meminfo"), "MemTotal");
        let memory: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Machine {
            processor: line(&text("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory / 1024,
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            nix,
            gradient: env!("CARGO_PKG_VERSION"),
            stores,
            load: [load(), String::new()],
        }
    }
}

/// How busy the machine is.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

impl Report {
    /// As a Markdown table.
    pub(crate) fn table(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{} x {}, {} MiB, Linux {}; {}; gradient {}; stores in {}; load {} before, {} after\n",
            machine.processors,
            machine.processor,
            machine.memory_mib,
            machine.kernel,
            machine.nix,
            machine.gradient,
            machine.stores,
            machine.load[0],
            machine.load[1],
        );
        text.push_str(
            "medians (least-most) of the runs; ratios are ours by the row's, run by run\n\n",
        );
        text.push_str("| Id | Work | Side | Runs | Wall s | Ratio | CPU s | Ratio | Memory MiB | Ratio | Largest process MiB |\n");
        text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
        for comparison in &self.comparisons {
            for (n, side) in comparison.sides.iter().enumerate() {
                let ratio = |spread: Spread| if n == 0 { "-".to_owned() } else { shown(spread, 2) };
                let (id, work) = if n == 0 {
                    (comparison.id.as_str(), comparison.work.as_str())
                } else {
                    ("", "")
                };
                let _ = writeln!(
                    text,
                    "| {id} | {work} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                    side.name,
                    side.runs.len(),
                    shown(side.wall_secs, 3),
                    ratio(side.wall_ratio),
                    shown(side.cpu_secs, 3),
                    ratio(side.cpu_ratio),
                    shown(side.rss_sum_mib, 0),
                    ratio(side.rss_sum_ratio),
                    shown(side.rss_largest_mib, 0),
                );
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }
}

fn shown(spread: Spread, digits: usize) -> String {
    let Spread { min, median, max } = spread;
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}
