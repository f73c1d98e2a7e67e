//! The checks of what is submitted: everything from outside has a limit and a clear refusal.

use gradient_domain::flake::{self, Commit};
use gradient_domain::pattern::{PATTERNS_MAX, PatternSet};

use crate::error::ApiError;
use crate::types::{SubmitEvaluation, SubmitFlake};

/// Longest flake reference, label or folder, in bytes.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// Refuses what the scheduler or a worker would refuse later.
pub(crate) fn check(submitted: &SubmitEvaluation) -> Result<(), ApiError> {
    let patterns = &submitted.patterns;
    if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
        let error =
            format!("{} patterns were given; 1 to {PATTERNS_MAX} are allowed", patterns.len());
        return Err(ApiError::bad(error, "for everything below packages give \"packages.*.*\""));
    }
    PatternSet::from_texts(patterns).map_err(|error| {
        let hint =
            "such as \"packages.*.*\", \"checks.x86_64-linux.#\" or \"!packages.x86_64-linux.big\"";
        ApiError::bad(error.to_string(), hint)
    })?;
    check_overrides(submitted)?;
    match &submitted.flake {
        SubmitFlake::Reference { url } => check_reference(url),
        SubmitFlake::Store { nar_hash, subdir, label, commit, .. } => {
            check_hash(nar_hash)?;
            check_subdir(subdir)?;
            commit.as_deref().map_or(Ok(()), check_commit)?;
            check_text("the label", label)
        }
    }
}

fn check_overrides(submitted: &SubmitEvaluation) -> Result<(), ApiError> {
    let hint = "such as nixpkgs, tools/nixpkgs or nixpkgs-*";
    flake::check_overrides(&submitted.overrides)
        .map_err(|error| ApiError::bad(error.to_string(), hint))?;
    submitted.overrides.iter().try_for_each(|one| check_reference(&one.reference))
}

fn check_commit(commit: &Commit) -> Result<(), ApiError> {
    let is_hash = matches!(commit.rev.len(), 40 | 64)
        && commit.rev.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    if is_hash {
        return Ok(());
    }
    Err(ApiError::bad("the commit has no hash of git", "40 or 64 digits of lower-case hex"))
}

fn check_text(what: &str, text: &str) -> Result<(), ApiError> {
    if text.len() > TEXT_BYTES_MAX || text.contains(char::is_control) {
        let error = format!(
            "{what} has {} bytes or control characters; at most {TEXT_BYTES_MAX} bytes and none are allowed",
            text.len()
        );
        return Err(ApiError::bad(error, ""));
    }
    Ok(())
}

fn check_reference(url: &str) -> Result<(), ApiError> {
    check_text("the flake reference", url)?;
    flake::check_reference(url).map_err(|error| ApiError::bad(error.to_string(), flake::HINT))
}

fn check_hash(nar_hash: &str) -> Result<(), ApiError> {
    let digits = nar_hash.strip_prefix("sha256-").unwrap_or_default();
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    let well_formed =
        digits.len() == 44 && digits.ends_with('=') && digits[..43].bytes().all(is_base64);
    if well_formed {
        return Ok(());
    }
    let shown: String = nar_hash.chars().take(80).collect();
    Err(ApiError::bad(format!("'{shown}' is not a hash"), "sha256-<44 characters of base 64>"))
}

fn check_subdir(subdir: &str) -> Result<(), ApiError> {
    check_text("the folder", subdir)?;
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if subdir.is_empty() || subdir.split('/').all(is_plain) {
        return Ok(());
    }
    Err(ApiError::bad(format!("'{subdir}' is not a folder below the source"), "such as nix/flake"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: serde_json::Value) -> bool {
        check(&serde_json::from_value(json).expect("well-formed")).is_err()
    }

    #[test]
    fn what_is_taken_and_what_is_refused() {
        let reference = |url: &str| serde_json::json!({"flake": {"type": "reference", "url": url}, "patterns": ["*"]});
        for good in ["github:owner/name", "git+https://host/r?ref=main"] {
            assert!(!refused(reference(good)), "{good}");
        }
        for bad in ["", "nixpkgs", "a b", "./flake", "path:/etc", "git+file:///etc", "a\u{7}"] {
            assert!(refused(reference(bad)), "{bad}");
        }
        let store = |hash: &str, subdir: &str| {
            serde_json::json!({"flake": {"type": "store", "nar_hash": hash, "subdir": subdir,
                "path": "/nix/store/b9d5lnjsb9d5lnjsb9d5lnjsb9d5lnjs-source"}, "patterns": ["*"]})
        };
        let hash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        assert!(!refused(store(hash, "")) && !refused(store(hash, "nix/flake")));
        assert!(refused(store("sha256-xyz", "")));
        assert!(
            refused(store(hash, "../up"))
                && refused(store(hash, "/etc"))
                && refused(store(hash, "a//b"))
        );
        let patterns = |patterns: Vec<&str>| serde_json::json!({"flake": {"type": "reference", "url": "github:x/y"}, "patterns": patterns});
        assert!(!refused(patterns(vec!["packages.*.*", "!packages.x86_64-linux.big"])));
        assert!(
            refused(patterns(vec![]))
                && refused(patterns(vec!["!a"]))
                && refused(patterns(vec!["a..b"]))
        );
        assert!(refused(patterns(vec!["a"; 257])));
        let overrides = |input: &str, with: &str| {
            serde_json::json!({"flake": {"type": "reference", "url": "github:x/y"},
            "patterns": ["*"], "overrides": [{"input": input, "reference": with}], "lock_policy": "strict"})
        };
        assert!(
            !refused(overrides("a/b", "github:x/z")) && !refused(overrides("n*", "github:x/z"))
        );
        assert!(refused(overrides("a/*", "github:x/z")) && refused(overrides("a", "path:/etc")));
        let commit = |rev: &str| {
            let mut body = store(hash, "");
            body["flake"]["commit"] = serde_json::json!({"rev": rev, "rev_count": 3});
            body
        };
        assert!(!refused(commit(&"0a".repeat(20))) && refused(commit("main")));
    }
}
