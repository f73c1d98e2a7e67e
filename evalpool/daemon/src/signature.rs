//! Signatures of store paths: Ed25519 keys in the text form of Nix, `name:base64`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

/// Longest name of a key, in bytes.
const NAME_LEN_MAX: usize = 128;

/// A text that is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind} key of the form name:base64: {reason}")]
pub struct ParseKeyError {
    kind: &'static str,
    reason: &'static str,
}

/// Whether a key may be named so.
fn name_fault(name: &str) -> Option<&'static str> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Some("its name has not 1 to 128 characters");
    }
    (!name.bytes().all(allowed)).then_some("its name holds other than letters, digits and -._")
}

fn parse<const N: usize>(
    kind: &'static str,
    text: &str,
) -> Result<(String, [u8; N]), ParseKeyError> {
    let fault = |reason| ParseKeyError { kind, reason };
    let (name, key) = text.trim().split_once(':').ok_or(fault("it has no colon"))?;
    if let Some(reason) = name_fault(name) {
        return Err(fault(reason));
    }
    let bytes = STANDARD.decode(key).map_err(|_| fault("it is not base64"))?;
    let bytes = bytes.try_into().map_err(|_| fault("it has the wrong length"))?;
    Ok((name.to_owned(), bytes))
}

/// A key that signs.
#[derive(Clone)]
pub struct SecretKey {
    name: String,
    key: SigningKey,
}

impl SecretKey {
    /// A key from 32 random bytes.
    ///
    /// # Errors
    /// If the name is empty, longer than 128 bytes or holds other than letters, digits and `-._`.
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, ParseKeyError> {
        match name_fault(name) {
            Some(reason) => Err(ParseKeyError { kind: "secret", reason }),
            None => Ok(SecretKey { name: name.to_owned(), key: SigningKey::from_bytes(seed) }),
        }
    }

    /// Reads `name:base64` of the 64 bytes of a secret key.
    ///
    /// # Errors
    /// If it is something else or its two halves do not belong together.
    pub fn parse(text: &str) -> Result<Self, ParseKeyError> {
        let (name, bytes) = parse::<64>("secret", text)?;
        match SigningKey::from_keypair_bytes(&bytes) {
            Ok(key) => Ok(SecretKey { name, key }),
            Err(_) => {
                Err(ParseKeyError { kind: "secret", reason: "its halves do not belong together" })
            }
        }
    }

    /// The text of the key. Whoever has it can sign.
    #[must_use]
    pub fn expose(&self) -> String {
        format!("{}:{}", self.name, STANDARD.encode(self.key.to_keypair_bytes()))
    }

    /// The key that verifies.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey { name: self.name.clone(), key: self.key.verifying_key() }
    }

    /// Signs a fingerprint: `name:base64`.
    #[must_use]
    pub fn sign(&self, fingerprint: &str) -> String {
        let signature = self.key.sign(fingerprint.as_bytes());
        format!("{}:{}", self.name, STANDARD.encode(signature.to_bytes()))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.name)
    }
}

/// A key that verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    name: String,
    key: VerifyingKey,
}

impl PublicKey {
    /// Reads `name:base64` of the 32 bytes of a public key.
    ///
    /// # Errors
    /// If it is something else.
    pub fn parse(text: &str) -> Result<Self, ParseKeyError> {
        let (name, bytes) = parse::<32>("public", text)?;
        match VerifyingKey::from_bytes(&bytes) {
            Ok(key) => Ok(PublicKey { name, key }),
            Err(_) => Err(ParseKeyError { kind: "public", reason: "it is no point of the curve" }),
        }
    }

    /// Whether one of the signatures is by this key and over this fingerprint.
    #[must_use]
    pub fn verifies<'a>(
        &self,
        fingerprint: &str,
        signatures: impl IntoIterator<Item = &'a String>,
    ) -> bool {
        signatures.into_iter().any(|text| {
            let Ok((name, bytes)) = parse::<64>("signature", text) else {
                return false;
            };
            let signature = Signature::from_bytes(&bytes);
            name == self.name && self.key.verify_strict(fingerprint.as_bytes(), &signature).is_ok()
        })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, STANDARD.encode(self.key.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_half_signs_the_other_verifies() {
        let secret = SecretKey::from_seed("fleet-1", &[7; 32]).expect("valid");
        let again = SecretKey::parse(&secret.expose()).expect("parses");
        let public = PublicKey::parse(&again.public().to_string()).expect("parses");
        let good = again.sign("1;a");
        assert!(public.verifies("1;a", [&"junk".into(), &good]));
        assert!(!public.verifies("1;b", [&good]));
        assert!(!public.verifies("1;a", [&good.replace("fleet-1", "other")]));
        let other = SecretKey::from_seed("fleet-1", &[8; 32]).expect("valid");
        assert!(!public.verifies("1;a", [&other.sign("1;a")]));
        assert!(!format!("{secret:?}").contains(&secret.expose()[8..]));
    }

    #[test]
    fn junk_is_no_key() {
        for junk in ["", "a", ":AAAA", "a:AAAA", "a b:AAAA", "a:!"] {
            assert!(PublicKey::parse(junk).is_err(), "{junk}");
            assert!(SecretKey::parse(junk).is_err(), "{junk}");
        }
        assert!(SecretKey::from_seed("a:b", &[0; 32]).is_err());
    }
}
