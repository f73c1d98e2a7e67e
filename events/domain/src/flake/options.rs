//! How the source of a flake is fetched and locked.

use serde::{Deserialize, Serialize};

/// Most overrides of one flake.
pub const OVERRIDES_MAX: usize = 64;
/// Longest path of an input, in bytes.
const PATH_BYTES_MAX: usize = 1 << 10;
/// Longest reference, in bytes.
const REFERENCE_BYTES_MAX: usize = 4 << 10;

/// An input and what takes its place.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct Override {
    /// Its name, such as `nixpkgs`; with `/` an input of an input; with `*` and `?` a pattern.
    pub input: String,
    /// A flake reference.
    pub reference: String,
}

/// What is wrong with an override.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// There are too many.
    #[error("{0} overrides were given; at most {OVERRIDES_MAX} are allowed")]
    TooMany(usize),
    /// The path of the input.
    #[error("'{0}' is no input: names of letters, digits, '-', '_', '+' and '.', divided by '/'")]
    Input(String),
    /// A pattern below an input.
    #[error("'{0}' has '*' or '?' below an input: patterns stand for inputs of the flake itself")]
    Nested(String),
    /// The reference.
    #[error("the reference that replaces input '{0}' is empty, too long or holds spaces")]
    Reference(String),
}

impl Override {
    /// Whether its name stands for several inputs.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.input.contains(['*', '?'])
    }

    /// Takes an override as a person gives it.
    ///
    /// # Errors
    /// If it cannot be one.
    pub fn check(&self) -> Result<(), OverrideError> {
        let shown = || self.input.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
        let allowed = |c: char| c.is_alphanumeric() || "-_+.*?'".contains(c);
        let is_name =
            |name: &str| !name.is_empty() && !name.starts_with('-') && name.chars().all(allowed);
        if self.input.len() > PATH_BYTES_MAX || !self.input.split('/').all(is_name) {
            return Err(OverrideError::Input(shown()));
        }
        if self.is_pattern() && self.input.contains('/') {
            return Err(OverrideError::Nested(shown()));
        }
        let reference = &self.reference;
        let is_bad = reference.is_empty()
            || reference.starts_with('-')
            || reference.len() > REFERENCE_BYTES_MAX
            || reference.contains(|c: char| c.is_whitespace() || c.is_control());
        if is_bad { Err(OverrideError::Reference(shown())) } else { Ok(()) }
    }
}

/// Checks all overrides of a flake.
///
/// # Errors
/// If there are too many, or one cannot be one.
pub fn check_overrides(overrides: &[Override]) -> Result<(), OverrideError> {
    if overrides.len() > OVERRIDES_MAX {
        return Err(OverrideError::TooMany(overrides.len()));
    }
    overrides.iter().try_for_each(Override::check)
}

/// What a lock file that is missing or incomplete means.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum LockPolicy {
    /// The lock is completed in memory, and the evaluation says so.
    #[default]
    Complete,
    /// It is an error.
    Strict,
}

/// A commit of a source tree, visible to the flake as `self.rev`.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct Commit {
    /// Its hash, in hex.
    pub rev: String,
    /// Commits up to it, where known.
    pub rev_count: Option<u64>,
    /// Seconds since 1970 of the commit, where known.
    pub last_modified: Option<u64>,
}

/// What a submitter says beside the flake itself.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct FetchOptions {
    /// Inputs that are replaced, at most [`OVERRIDES_MAX`].
    pub overrides: Vec<Override>,
    /// What an incomplete lock file means.
    pub lock_policy: LockPolicy,
    /// Whether the server keeps a key for SSH for it (ADR 18).
    pub has_ssh_key: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(input: &str, reference: &str) -> Override {
        Override { input: input.into(), reference: reference.into() }
    }

    #[test]
    fn what_is_no_override_is_refused() {
        for good in [over("a", "github:o/r"), over("a/b-c", "r"), over("n*", "r")] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for bad in [
            over("", "r"),
            over("a//b", "r"),
            over("--x", "r"),
            over("a b", "r"),
            over("a/*", "r"),
            over("a", ""),
            over("a", "-r"),
            over("a", "r r"),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert_eq!(check_overrides(&vec![over("a", "r"); 65]), Err(OverrideError::TooMany(65)));
    }
}
