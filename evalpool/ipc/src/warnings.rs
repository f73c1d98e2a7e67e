//! Warnings among the lines that Nix prints to standard error.

use std::collections::BTreeSet;

use crate::message::bounded;

const BLOCK_STARTS: [&str; 4] = ["warning:", "trace:", "error:", "note:"];

/// The warnings of one request: a block starts at a line with `warning:` and keeps all its lines up
/// to the next message. Reports about a busy evaluation cache are dropped, repeats told once. Each
/// block comes with what its first line came with: the attribute that was looked at.
#[must_use]
pub fn warning_blocks<T, S: AsRef<str>>(
    lines: impl IntoIterator<Item = (T, S)>,
) -> Vec<(T, String)> {
    let mut blocks: Vec<(T, String)> = Vec::new();
    let mut open = false;
    for (about, line) in lines {
        let line = line.as_ref().trim_end();
        let lower = line.to_ascii_lowercase();
        if lower.contains("warning:") {
            blocks.push((about, line.to_owned()));
            open = true;
        } else if BLOCK_STARTS.iter().any(|start| lower.starts_with(start)) {
            open = false;
        } else if let Some((_, block)) = blocks.last_mut().filter(|_| open) {
            block.push('\n');
            block.push_str(line);
        }
    }
    let busy = |block: &String| block.contains("SQLite database") && block.contains("is busy");
    let mut seen = BTreeSet::new();
    blocks
        .into_iter()
        .map(|(about, block)| (about, bounded(without_indent(block.trim_end()))))
        .filter(|(_, block)| !busy(block) && seen.insert(block.clone()))
        .collect()
}

/// A block without the indent that Nix gives to all lines after the first.
fn without_indent(block: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let rest = block.lines().skip(1).filter(|line| !line.trim().is_empty());
    let common = rest.map(indent).min().unwrap_or(0);
    let cut = |(n, line): (usize, &str)| match n {
        0 => line.to_owned(),
        _ => line.get(common..).unwrap_or_default().to_owned(),
    };
    block.lines().enumerate().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_and_told_once() {
        let lines = [
            "noise before",
            "evaluation warning: first line",
            "                    second line",
            "                      third line",
            "trace: shared",
            "not a warning",
            "evaluation warning: old option",
            "evaluation warning: old option",
            "warning: SQLite database '/x' is busy",
            "error: boom",
            "tail",
        ];
        assert_eq!(
            warning_blocks((0..).zip(lines)),
            [
                (1, "evaluation warning: first line\nsecond line\n  third line".to_owned()),
                (6, "evaluation warning: old option".to_owned()),
            ]
        );
    }
}
