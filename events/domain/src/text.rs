//! Texts of a bounded length.

/// The text, cut at a character so that it has at most `bytes_max` bytes and a mark.
#[must_use]
pub fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|n| text.is_char_boundary(*n)).unwrap_or(0);
        text.truncate(end);
        text.push_str(" [truncated]");
    }
    text
}

/// A text as a string of the Nix language, with its quotes.
#[must_use]
pub fn nix_string(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace("${", "\\${");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("four".into(), 4), "four");
        assert_eq!(cut("üü".into(), 3), "ü [truncated]");
        assert_eq!(cut("ü".into(), 1), " [truncated]");
    }
}
