//! Store paths that follow from contents, computed without Nix.
//!
//! A store path is the base 32 of a SHA-256, folded to 160 bits, over
//! `<type>:sha256:<hex>:/nix/store:<name>`.

use std::collections::BTreeSet;

use gradient_domain::StorePath;
use gradient_domain::store_path::{ParseStorePathError, STORE_DIR};
use sha2::{Digest as _, Sha256};

use crate::path_info::hex;

fn fold(hash: &[u8]) -> [u8; 20] {
    let mut folded = [0; 20];
    for (n, byte) in hash.iter().enumerate() {
        folded[n % 20] ^= byte;
    }
    folded
}

fn make(kind: &str, hash: &[u8; 32], name: &str) -> Result<StorePath, ParseStorePathError> {
    let fingerprint = format!("{kind}:sha256:{}:{STORE_DIR}:{name}", hex(hash));
    StorePath::from_parts(&fold(&Sha256::digest(fingerprint)), name)
}

fn with_references(kind: &str, references: &BTreeSet<StorePath>) -> String {
    references.iter().fold(kind.to_owned(), |kind, path| format!("{kind}:{path}"))
}

/// Path of a source tree: content address `fixed:r:sha256` over the SHA-256 of its NAR.
/// `references` are other paths that it mentions, normally none; itself it must not mention.
///
/// # Errors
/// If the name is not one that Nix allows.
pub fn source(
    nar_hash: &[u8; 32],
    references: &BTreeSet<StorePath>,
    name: &str,
) -> Result<StorePath, ParseStorePathError> {
    make(&with_references("source", references), nar_hash, name)
}

/// Path of a text such as a `.drv` file: content address `text:sha256` over the text itself.
///
/// # Errors
/// If the name is not one that Nix allows.
pub fn text(
    text_hash: &[u8; 32],
    references: &BTreeSet<StorePath>,
    name: &str,
) -> Result<StorePath, ParseStorePathError> {
    make(&with_references("text", references), text_hash, name)
}

/// Path of an output of a derivation with this hash. `derivation` is its name, without `.drv`.
///
/// # Errors
/// If the name is not one that Nix allows.
pub fn output(
    hash: &[u8; 32],
    derivation: &str,
    output: &str,
) -> Result<StorePath, ParseStorePathError> {
    let name = match output {
        "out" => derivation.to_owned(),
        other => format!("{derivation}-{other}"),
    };
    make(&format!("output:{output}"), hash, &name)
}

/// Path of a fixed output that is no source: `algo` is `sha512` and the like, with `r:` in front
/// for a hash over the NAR; `hash` are its bytes. Such an output has no references.
///
/// # Errors
/// If the name is not one that Nix allows.
pub fn fixed_output(algo: &str, hash: &[u8], name: &str) -> Result<StorePath, ParseStorePathError> {
    if let ("r:sha256", Ok(hash)) = (algo, hash.try_into()) {
        return source(hash, &BTreeSet::new(), name);
    }
    let inner = format!("fixed:out:{algo}:{}:", hex(hash));
    make("output:out", &Sha256::digest(inner).into(), name)
}
