//! Derivation files (ATerm), parsed without Nix (reference 5.12).

/// One derivation, as its `.drv` file says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {}
