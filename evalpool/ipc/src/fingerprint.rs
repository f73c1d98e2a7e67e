//! What an evaluation cache is named after: everything that the results of a locked flake depend on.

use gradient_domain::flake::is_locked;
use sha2::{Digest, Sha256};

/// Version of the walk's rules and of the cache's tables. Whoever changes what a walk finds raises it.
pub const CACHE_SCHEMA: u32 = 4;

/// The evaluator's part of a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NixIdentity<'a> {
    /// Version of Nix: pure code can read it, so results depend on it.
    pub version: &'a str,
    /// Folder that store paths begin with.
    pub store_dir: &'a str,
    /// The settings that the evaluator is given, as text: features, limits, purity.
    pub config: &'a str,
}

/// The fingerprint of a locked flake in hexadecimal; `None` if the reference is not locked, so that
/// what it evaluates to may be another thing tomorrow.
#[must_use]
pub fn fingerprint(reference: &str, locks: &str, nix: NixIdentity<'_>) -> Option<String> {
    if !is_locked(reference) {
        return None;
    }
    let mut digest = Sha256::new();
    digest.update(b"gradient-eval-cache");
    digest.update(CACHE_SCHEMA.to_le_bytes());
    for part in [reference, locks, nix.version, nix.store_dir, nix.config] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    Some(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIX: NixIdentity<'_> =
        NixIdentity { version: "2.26.3", store_dir: "/nix/store", config: "pure-eval = true" };
    const FLAKE: &str = "path:/nix/store/x-source?narHash=sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA%3D&dir=";

    #[test]
    fn whatever_results_depend_on_changes_the_name() {
        let name = |reference: &str, locks: &str, nix| fingerprint(reference, locks, nix);
        let one = name(FLAKE, "{}", NIX);
        assert_eq!(one.as_deref().map(str::len), Some(64));
        assert_eq!(one, name(FLAKE, "{}", NIX));
        let others = [
            name(&format!("{FLAKE}x"), "{}", NIX),
            name(FLAKE, "{ }", NIX),
            name(FLAKE, "{}", NixIdentity { version: "2.28.4", ..NIX }),
            name(FLAKE, "{}", NixIdentity { store_dir: "/gnu/store", ..NIX }),
            name(FLAKE, "{}", NixIdentity { config: "", ..NIX }),
            // The border between two parts is part of them.
            name(&format!("{FLAKE}{{"), "}", NIX),
        ];
        for other in others {
            assert!(other.is_some() && other != one);
        }
        assert_eq!(name("path:/x", "{}", NIX), None);
    }
}
