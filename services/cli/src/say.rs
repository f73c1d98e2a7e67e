//! Results on standard output. A reader that goes away (`| head`) ends the command quietly.

use std::io::Write;

/// Prints a line.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        let gone = error.kind() == std::io::ErrorKind::BrokenPipe;
        std::process::exit(if gone { 0 } else { 3 });
    }
}

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?);
    Ok(())
}

/// Text from outside with control characters escaped, so that it cannot steer a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c {
            '\n' | '\t' => vec![c],
            c if c.is_control() => c.escape_default().collect(),
            c => vec![c],
        })
        .collect()
}

/// The first line of a text from outside.
pub(crate) fn first_line(text: &str) -> String {
    plain(text.lines().next().unwrap_or_default())
}

/// Rows as columns of equal width.
pub(crate) fn table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |n: usize| {
        rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}", width = *width))
            .collect();
        line(cells.join("  ").trim_end());
    }
}

/// A time span as people say it.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        1_000..=59_999 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..=3_599_999 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_and_texts_are_for_people() {
        assert_eq!(super::duration(999), "999 ms");
        assert_eq!(super::duration(61_500), "1 min 1 s");
        assert_eq!(super::duration(8_240), "8.2 s");
        assert_eq!(super::plain("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\n");
    }
}
