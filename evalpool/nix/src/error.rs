//! Errors of Nix as text for people.

use std::fmt;

/// An error of Nix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct EvalError {
    /// Nix's message, without colours.
    pub message: String,
    /// Where in the source, `<file>:<line>:<column>`, if Nix says.
    pub position: Option<String>,
}

impl EvalError {
    pub(crate) fn plain(message: impl Into<String>) -> EvalError {
        EvalError { message: message.into(), position: None }
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.position {
            Some(position) => write!(f, "\nat {position}"),
            None => Ok(()),
        }
    }
}

/// Text without terminal escapes.
pub(crate) fn strip_ansi(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            plain.push(c);
        } else if chars.next_if_eq(&'[').is_some() {
            for c in chars.by_ref() {
                if ('@'..='~').contains(&c) {
                    break;
                }
            }
        }
    }
    plain
}

/// The innermost position of a full error text, which Nix prints last.
pub(crate) fn last_position(full: &str) -> Option<String> {
    let is_position = |text: &str| {
        let mut parts = text.rsplitn(3, ':');
        let number = |part: Option<&str>| {
            part.is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        };
        number(parts.next()) && number(parts.next()) && parts.next().is_some()
    };
    full.lines()
        .rev()
        .filter_map(|line| line.trim().strip_prefix("at ")?.strip_suffix(':'))
        // Our own expression is no place in the user's source.
        .filter(|text| !text.starts_with("«string»"))
        .find(|text| is_position(text))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_away() {
        assert_eq!(strip_ansi("\u{1b}[31;1merror:\u{1b}[0m boom\u{1b}[K"), "error: boom");
        assert_eq!(strip_ansi("plain \u{1b}"), "plain ");
    }

    #[test]
    fn the_last_position_is_the_innermost() {
        let full = "error:\n  … while evaluating\n    at /a/flake.nix:3:5:\n  2| x\n\n  error: boom\n  \
                    at /a/flake.nix:8:19:\n";
        assert_eq!(last_position(full).as_deref(), Some("/a/flake.nix:8:19"));
        assert_eq!(last_position("error: look at this:"), None);
    }
}
