//! Upload tokens: who may write what until when, signed with the cluster's secret, so that the
//! cache needs to ask nobody.
//!
//! `base64url(JSON) "." base64url(HMAC-SHA256(secret, base64url(JSON)))`, without padding.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Longest token that is read, in bytes.
pub const TOKEN_LEN_MAX: usize = 2048;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Upload store paths and the log of the assignment.
    Upload,
}

/// Permission for one assignment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadToken {
    /// The job, as text.
    pub job: String,
    /// The assignment, as text; also the id of its log.
    pub assignment: String,
    /// Milliseconds since the Unix epoch from which on it is not valid.
    pub expires_at_ms: u64,
    /// What it allows.
    pub scope: Scope,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is no token, or another secret signed it.
    #[error("the token is not valid")]
    Invalid,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
}

fn mac(secret: &[u8], text: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac
}

/// Signs a token.
#[must_use]
pub fn mint(secret: &[u8], token: &UploadToken) -> String {
    let json = serde_json::to_vec(token).expect("a token is plain data");
    let payload = URL_SAFE_NO_PAD.encode(json);
    let tag = mac(secret, &payload).finalize().into_bytes();
    format!("{payload}.{}", URL_SAFE_NO_PAD.encode(tag))
}

/// Checks a token, in constant time as far as the secret is concerned.
///
/// # Errors
/// If it is over [`TOKEN_LEN_MAX`], malformed, signed by another secret, or expired at `now_ms`.
pub fn verify(secret: &[u8], now_ms: u64, text: &str) -> Result<UploadToken, TokenError> {
    let invalid = |_| TokenError::Invalid;
    if text.len() > TOKEN_LEN_MAX {
        return Err(TokenError::Invalid);
    }
    let (payload, tag) = text.split_once('.').ok_or(TokenError::Invalid)?;
    let tag = URL_SAFE_NO_PAD.decode(tag).map_err(invalid)?;
    mac(secret, payload).verify_slice(&tag).map_err(|_| TokenError::Invalid)?;
    let json = URL_SAFE_NO_PAD.decode(payload).map_err(invalid)?;
    let token: UploadToken = serde_json::from_slice(&json).map_err(|_| TokenError::Invalid)?;
    match now_ms < token.expires_at_ms {
        true => Ok(token),
        false => Err(TokenError::Expired),
    }
}

/// Whether two texts are equal, in a time that tells nothing of either.
pub(crate) fn is_equal(secret: &[u8], given: &str, expected: &str) -> bool {
    let expected = mac(secret, expected).finalize().into_bytes();
    mac(secret, given).verify_slice(&expected).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> UploadToken {
        UploadToken {
            job: "build:0000007b".into(),
            assignment: "a12".into(),
            expires_at_ms: 1_000,
            scope: Scope::Upload,
        }
    }

    #[test]
    fn a_minted_token_is_valid_until_it_expires() {
        let text = mint(b"secret", &token());
        assert_eq!(verify(b"secret", 999, &text), Ok(token()));
        assert_eq!(verify(b"secret", 1_000, &text), Err(TokenError::Expired));
        assert_eq!(verify(b"other", 0, &text), Err(TokenError::Invalid));
    }

    #[test]
    fn a_changed_token_is_not_valid() {
        let text = mint(b"secret", &token());
        let longer = UploadToken { expires_at_ms: 2_000, ..token() };
        let (payload, _) = text.split_once('.').expect("a dot");
        let (_, tag) = text.split_once('.').expect("a dot");
        let other = mint(b"wrong", &longer);
        let (other_payload, _) = other.split_once('.').expect("a dot");
        let junk = [
            String::new(),
            ".".into(),
            payload.into(),
            format!("{other_payload}.{tag}"),
            format!("{text}A"),
            format!("{payload}."),
            "x".repeat(TOKEN_LEN_MAX + 1),
        ];
        for text in junk {
            assert_eq!(verify(b"secret", 0, &text), Err(TokenError::Invalid), "{text}");
        }
    }

    #[test]
    fn texts_are_compared_whole() {
        assert!(is_equal(b"s", "abc", "abc"));
        assert!(!is_equal(b"s", "abc", "abd"));
        assert!(!is_equal(b"s", "", "abc"));
    }
}
