//! Inputs that could not be fetched. An evaluation does without them as long as it does not read them; if
//! it does, the fetch step knows better than the evaluator why they are not there.

use serde_json::{Map, Value};

use crate::error::Retry;
use gradient_domain::percent;

/// What Nix and our evaluators say of an input that cannot be had, before its reference in quotes.
const FETCHING: &str = "fetching the input '";

/// An input that could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its path, `a/b` for the input `b` of `a`.
    pub input: String,
    /// What Nix said.
    pub reason: String,
    /// Whether another attempt may bring it.
    pub retry: Retry,
    /// Texts of which any reference to it holds one: its commit, or the hash of its files.
    pub(crate) marks: Vec<String>,
}

impl Missing {
    /// An input with these locked attributes.
    pub(crate) fn new(
        input: String,
        locked: &Map<String, Value>,
        reason: String,
        retry: Retry,
    ) -> Self {
        let text = |name: &str| locked.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
        let hash = text("narHash").map(|hash| format!("narHash={}", percent::encode(hash)));
        let marks = text("rev").map(str::to_owned).into_iter().chain(hash).collect();
        Self { input, reason, retry, marks }
    }

    /// Whether an error of the evaluation is that this input is not there.
    pub(crate) fn is_cause(&self, error: &str) -> bool {
        let references = error.split(FETCHING).skip(1);
        let mut references = references.filter_map(|rest| rest.split('\'').next());
        references.any(|reference| self.marks.iter().any(|mark| reference.contains(mark.as_str())))
    }

    /// The same for people.
    #[must_use]
    pub fn told(&self) -> String {
        format!("input '{}' cannot be fetched: {}", self.input, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_of_an_input_if_it_names_its_commit_or_its_hash() {
        let locked = serde_json::json!({ "rev": "abc", "narHash": "sha256-a+b=" });
        let locked = locked.as_object().expect("attributes");
        let missing = Missing::new("a".into(), locked, "gone".into(), Retry::Never);
        assert_eq!(missing.told(), "input 'a' cannot be fetched: gone");
        for (error, expected) in [
            ("… while fetching the input 'github:o/r/abc'", true),
            ("fetching the input 'https://x?narHash=sha256-a%2Bb%3D' failed: no", true),
            ("fetching the input 'x' failed\nfetching the input 'y?rev=abc'", true),
            ("while fetching the input 'github:o/r/def'", false),
            ("while fetching the input 'x'\nabc", false),
            ("abc", false),
        ] {
            assert_eq!(missing.is_cause(error), expected, "{error}");
        }
        let locked = Map::new();
        let unmarked = Missing::new("a".into(), &locked, String::new(), Retry::Never);
        assert!(!unmarked.is_cause("while fetching the input 'x'"));
    }
}
