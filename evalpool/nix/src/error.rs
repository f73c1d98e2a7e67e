//! Errors of Nix as text for people.

use std::fmt;

use gradient_ipc::message::TEXT_LEN_MAX;

/// What C++ says when there is no memory. The collector of Nix throws it, too.
const NO_MEMORY: &str = "std::bad_alloc";

/// Words for what is no error of Nix, but of what it stands on.
pub(crate) fn foreign(message: &str) -> String {
    match message {
        NO_MEMORY => format!("out of memory: a value is larger than can be had ({NO_MEMORY})"),
        other => other.to_owned(),
    }
}

/// An error of Nix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct EvalError {
    /// Nix's message, without colours.
    pub message: String,
    /// Where in the source, `<file>:<line>:<column>`, if Nix says.
    pub position: Option<String>,
    /// Whether every evaluation of the same locked flake ends so.
    pub is_repeatable: bool,
}

impl EvalError {
    pub(crate) fn plain(message: impl Into<String>) -> EvalError {
        EvalError { message: message.into(), position: None, is_repeatable: false }
    }
}

/// C++ types of errors that follow from the flake alone. `InvalidPathError` is no such type: a path
/// can become valid; nor is `RestrictedPathError`: what may be read depends on what this process
/// has fetched before.
const REPEATABLE: [&str; 8] = [
    "EvalError",
    "AssertionError",
    "ThrownError",
    "Abort",
    "TypeError",
    "UndefinedVarError",
    "MissingArgumentError",
    "InfiniteRecursionError",
];

/// What Nix says before the reference of an input in quotes that it could not fetch.
const FETCHING: &str = "while fetching the input '";

/// Words of errors of these types that do not follow from the flake: a limit, a setting, and what came
/// over the network.
const PASSING: [&str; 6] = [
    "stack overflow",
    "'allow-import-from-derivation' is disabled",
    "hash mismatch",
    "unable to download",
    FETCHING,
    "restricted mode",
];

/// Whether an error of this C++ type with this message follows from the flake alone, and neither
/// from a limit (the depth of calls) nor from the settings about imports from derivations.
pub(crate) fn is_repeatable(type_name: &str, message: &str) -> bool {
    let name = type_name.trim().trim_start_matches("nix::");
    REPEATABLE.contains(&name) && !PASSING.iter().any(|words| message.contains(words))
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

/// What an error is about: its own text and, where an input could not be fetched, which one. Nix says so in
/// the trace only.
pub(crate) fn with_input(text: &str, full: &str) -> String {
    let input = full.rsplit_once(FETCHING).and_then(|(_, rest)| rest.split('\'').next());
    match input {
        Some(input) => format!("fetching the input '{input}' failed: {text}"),
        None => text.to_owned(),
    }
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
        // Nor is where Nix fetches the inputs.
        .filter(|text| !text.starts_with("«nix-internal»/call-flake.nix"))
        .find(|text| is_position(text))
        .map(str::to_owned)
}

/// A full error text as the message of an error. Nix tells the cause last, so a text that is too long
/// loses its middle.
pub(crate) fn trace(full: &str) -> String {
    const HEAD_MAX: usize = TEXT_LEN_MAX / 4;
    const TAIL_MAX: usize = TEXT_LEN_MAX / 2;
    if full.len() <= TEXT_LEN_MAX {
        return full.to_owned();
    }
    let head = (0..=HEAD_MAX).rev().find(|at| full.is_char_boundary(*at)).unwrap_or(0);
    let tail = (full.len() - TAIL_MAX..full.len()).find(|at| full.is_char_boundary(*at));
    format!("{}\n[...]\n{}", &full[..head], &full[tail.unwrap_or(full.len())..])
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
    fn a_long_trace_keeps_its_cause() {
        let full = format!("error: way\n{}\nerror: cause", "\u{e4}".repeat(TEXT_LEN_MAX));
        let cut = trace(&full);
        assert!(cut.len() < TEXT_LEN_MAX, "{}", cut.len());
        assert!(cut.starts_with("error: way\n") && cut.ends_with("\nerror: cause"));
        assert_eq!(trace("short"), "short");
    }

    #[test]
    fn only_what_follows_from_the_flake_is_repeatable() {
        let rows = [
            ("nix::ThrownError", "unfree", true),
            ("nix::Abort", "evaluation aborted", true),
            ("nix::EvalError", "attribute 'x' missing", true),
            ("nix::EvalError", "stack overflow; max-call-depth exceeded", false),
            (
                "nix::EvalError",
                "cannot build 'x' because 'allow-import-from-derivation' is disabled",
                false,
            ),
            ("nix::EvalError", "hash mismatch in file downloaded from 'http://x'", false),
            ("nix::EvalError", "NAR hash mismatch in input", false),
            ("nix::EvalError", "… while fetching the input 'github:o/r'\nerror: no", false),
            ("nix::RestrictedPathError", "access to /x is forbidden in pure mode", false),
            ("nix::InvalidPathError", "path is not valid", false),
            ("nix::Error", "import from derivation failed", false),
            ("nix::FileTransferError", "unable to download", false),
            ("", "", false),
        ];
        for (name, message, expected) in rows {
            assert_eq!(is_repeatable(name, message), expected, "{name} {message}");
        }
    }

    #[test]
    fn an_input_that_cannot_be_fetched_is_named() {
        let full = "error:\n  … from call site\n    at /a/flake.nix:3:5:\n  … while calling\n    at \
            «nix-internal»/call-flake.nix:56:11:\n  … while fetching the input 'github:o/r'\n  error: no";
        assert_eq!(with_input("no", full), "fetching the input 'github:o/r' failed: no");
        assert_eq!(last_position(full).as_deref(), Some("/a/flake.nix:3:5"));
        assert_eq!(with_input("no", "error: no"), "no");
    }

    #[test]
    fn the_last_position_is_the_innermost() {
        let full = "error:\n  … while evaluating\n    at /a/flake.nix:3:5:\n  2| x\n\n  error: boom\n  \
                    at /a/flake.nix:8:19:\n";
        assert_eq!(last_position(full).as_deref(), Some("/a/flake.nix:8:19"));
        assert_eq!(last_position("error: look at this:"), None);
    }
}
