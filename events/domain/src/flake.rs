//! Flake references that workers fetch, and how they fetch them.

mod locked;
mod options;

pub use locked::is_locked;
pub use options::{
    Commit, FetchOptions, LockPolicy, OVERRIDES_MAX, Override, OverrideError, check_overrides,
};

/// Schemes of references that mean the same on every machine. Whatever names a file, a repository or a
/// registry of the machine that reads it is not among them.
pub const SCHEMES: [&str; 10] = [
    "github",
    "gitlab",
    "sourcehut",
    "git+https",
    "git+ssh",
    "git+http",
    "https",
    "http",
    "tarball+https",
    "tarball+http",
];

/// What to do instead, for people.
pub const HINT: &str = "write github:OWNER/NAME, gitlab:OWNER/NAME, sourcehut:~OWNER/NAME, git+https://..., \
    git+ssh://... or the https:// address of a tarball; `gradient submit DIR` and git+file:DIR upload from this machine";

/// A reference that workers do not fetch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{reference}' is no flake reference that workers fetch")]
pub struct RefusedReference {
    /// What was given, cut to what a person reads.
    pub reference: String,
}

/// Checks that every worker can fetch a reference.
///
/// # Errors
/// If its scheme is not one of [`SCHEMES`], nothing follows it, or it holds spaces or control
/// characters.
pub fn check_reference(reference: &str) -> Result<(), RefusedReference> {
    let is_known = reference
        .split_once(':')
        .is_some_and(|(scheme, rest)| SCHEMES.contains(&scheme) && !rest.is_empty());
    if is_known && !reference.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Ok(());
    }
    let shown = reference.chars().take(200).flat_map(|c| match c.is_control() {
        true => c.escape_default().collect::<Vec<char>>(),
        false => vec![c],
    });
    Err(RefusedReference { reference: shown.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_every_worker_can_reach() {
        for good in [
            "github:owner/name",
            "gitlab:owner/name/branch",
            "sourcehut:~owner/name",
            "git+https://host/repository?ref=main",
            "git+ssh://git@host/repository",
            "https://host/archive.tar.gz",
            "tarball+https://host/archive.tar.gz",
        ] {
            assert_eq!(check_reference(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "nixpkgs",
            "flake:nixpkgs",
            "github:",
            "-x",
            "./flake",
            "/etc",
            "~/x",
            "path:/etc",
            "file:///etc/passwd",
            "file+https://host/x",
            "git+file:///etc",
            "git:///etc",
            "git+ext::sh",
            "tarball+file:///etc/x.tar",
            "GitHub:owner/name",
            "github:a b",
            "github:a\u{7}",
        ] {
            assert!(check_reference(bad).is_err(), "{bad}");
        }
        let shown = check_reference("a\u{1b}[2J").expect_err("refused").to_string();
        assert_eq!(shown, "'a\\u{1b}[2J' is no flake reference that workers fetch");
    }
}
