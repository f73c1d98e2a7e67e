//! Results on standard output, and notes on standard error. A reader that goes away (`| head`) ends the
//! command quietly.

use std::io::Write;

use gradient_domain::Timestamp;

/// Prints a line.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        let gone = error.kind() == std::io::ErrorKind::BrokenPipe;
        std::process::exit(if gone { 0 } else { 3 });
    }
}

/// Tells a person something beside the results, on standard error. Nothing ends because nobody reads it,
/// or because it goes to a file on a full disk.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?);
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

/// A moment in UTC, `2026-11-29 18:29:25.404Z`.
pub(crate) fn moment(Timestamp(ms): Timestamp) -> String {
    let (days, ms_of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (secs, ms) = (ms_of_day / 1_000, ms_of_day % 1_000);
    let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar: years are counted from March
/// so that the leap day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
    fn moments_are_dates() {
        use gradient_domain::Timestamp;
        assert_eq!(super::moment(Timestamp(0)), "1970-01-01 00:00:00.000Z");
        assert_eq!(super::moment(Timestamp(951_782_400_000)), "2000-02-29 00:00:00.000Z");
        assert_eq!(super::moment(Timestamp(1_795_976_965_404)), "2026-11-29 18:29:25.404Z");
    }

    #[test]
    fn durations_and_texts_are_for_people() {
        assert_eq!(super::duration(999), "999 ms");
        assert_eq!(super::duration(61_500), "1 min 1 s");
        assert_eq!(super::duration(8_240), "8.2 s");
        assert_eq!(super::plain("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\n");
    }
}
