//! A private key for SSH: checked where it comes in, and never printed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest key file, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// A private key for SSH (ADR 18).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct SshKey(String);

/// Why something is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SshKeyError {
    /// Nothing or too much.
    #[error("a key for SSH has 1 to {KEY_BYTES_MAX} bytes")]
    Size,
    /// It does not look like one.
    #[error(
        "this is no private key for SSH: a file that begins with '-----BEGIN ... PRIVATE KEY-----'"
    )]
    Form,
}

impl SshKey {
    /// Takes the text of a key file.
    ///
    /// # Errors
    /// If it does not look like a private key.
    pub fn new(text: impl Into<String>) -> Result<Self, SshKeyError> {
        let mut text = text.into();
        if text.is_empty() || text.len() > KEY_BYTES_MAX {
            return Err(SshKeyError::Size);
        }
        if !text.starts_with("-----BEGIN ") || !text.contains("PRIVATE KEY-----") {
            return Err(SshKeyError::Form);
        }
        // OpenSSH refuses a file whose last line does not end.
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(Self(text))
    }

    /// The text of the key file.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SshKey {
    type Error = SshKeyError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(text)
    }
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----";

    #[test]
    fn a_key_is_not_printed_and_looks_like_one() {
        let key = SshKey::new(KEY).expect("a key");
        assert_eq!(format!("{key:?}"), "SshKey(..)");
        assert_eq!(key.reveal(), format!("{KEY}\n"));
        assert_eq!(SshKey::new(""), Err(SshKeyError::Size));
        assert_eq!(SshKey::new("-".repeat(KEY_BYTES_MAX + 1)), Err(SshKeyError::Size));
        assert_eq!(SshKey::new("ssh-ed25519 AAAA x"), Err(SshKeyError::Form));
    }
}
