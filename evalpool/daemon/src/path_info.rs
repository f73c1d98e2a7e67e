//! What a store knows of one of its paths.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use gradient_domain::{StorePath, nix_base32};
use tokio::io::AsyncRead;

use crate::wire::{Decoder, Encoder, PATH_LEN_MAX, WireError};

/// SHA-256 of a NAR.
pub type NarHash = [u8; 32];

/// Metadata of a store path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// The derivation it was built from, if it is known.
    pub deriver: Option<StorePath>,
    /// SHA-256 of its NAR.
    pub nar_hash: NarHash,
    /// Size of its NAR in bytes.
    pub nar_size: u64,
    /// Store paths that it mentions, itself included if it does.
    pub references: BTreeSet<StorePath>,
    /// Signatures `name:base64`.
    pub signatures: BTreeSet<String>,
    /// Content address such as `fixed:r:sha256:<base 32>`; empty for an input-addressed path.
    pub content_address: String,
    /// Whether it was built by the store itself.
    pub is_ultimate: bool,
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
    }
    text
}

/// Reads a SHA-256 in base 16 or in the base 32 of Nix, with or without `sha256:` in front.
#[must_use]
pub fn parse_sha256(text: &str) -> Option<NarHash> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    if digits.len() != 64 {
        return nix_base32::decode(digits);
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |b: u8| char::from(b).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(hash)
}

impl PathInfo {
    /// `sha256:` and the hash of the NAR in base 32, as narinfo files have it.
    #[must_use]
    pub fn nar_hash_text(&self) -> String {
        format!("sha256:{}", nix_base32::encode(&self.nar_hash))
    }

    /// Adds the fields of `AddToStoreNar` between the path and its flags.
    pub(crate) fn encode(&self, to: Encoder) -> Encoder {
        to.optional_path(self.deriver.as_ref())
            .bytes(hex(&self.nar_hash).as_bytes())
            .paths(&self.references)
            .number(0) // registration time: now
            .number(self.nar_size)
            .flag(self.is_ultimate)
            .list(&self.signatures)
            .bytes(self.content_address.as_bytes())
    }

    pub(crate) async fn decode<R: AsyncRead + Unpin>(
        from: &mut Decoder<R>,
    ) -> Result<Self, WireError> {
        let deriver = from.optional_path().await?;
        let hash = from.text("NAR hash", PATH_LEN_MAX).await?;
        let Some(nar_hash) = parse_sha256(&hash) else {
            return Err(WireError::invalid("NAR hash", hash));
        };
        let references = from.paths().await?;
        from.number().await?; // registration time
        let nar_size = from.number().await?;
        let is_ultimate = from.flag().await?;
        let signatures = from.texts("signature").await?.into_iter().collect();
        let content_address = from.text("content address", PATH_LEN_MAX).await?;
        Ok(PathInfo {
            deriver,
            nar_hash,
            nar_size,
            references,
            signatures,
            content_address,
            is_ultimate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_read_in_both_bases() {
        let hash: NarHash = std::array::from_fn(|n| u8::try_from(n * 7).expect("small"));
        let base_32 = nix_base32::encode(&hash);
        for text in [hex(&hash), base_32.clone(), format!("sha256:{base_32}")] {
            assert_eq!(parse_sha256(&text), Some(hash), "{text}");
        }
        for junk in ["", "sha256:", "sha256:00", &"g".repeat(64), &"ü".repeat(32)] {
            assert_eq!(parse_sha256(junk), None, "{junk}");
        }
    }
}
