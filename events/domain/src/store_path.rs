//! Store paths, parsed once. The store directory is `/nix/store` for the whole fleet; a private
//! store maps it below its own root, which only the daemon and the evaluator know.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nix_base32;

/// The store directory of every path that the fleet speaks of.
pub const STORE_DIR: &str = "/nix/store";

/// Characters of the hash part.
pub const HASH_LEN: usize = 32;

/// Longest name part that Nix allows, in bytes.
pub const NAME_LEN_MAX: usize = 211;

/// A text that is no store path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a store path: {reason}")]
pub struct ParseStorePathError {
    text: String,
    reason: &'static str,
}

/// A path directly in the store, held as its base name `<hash>-<name>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, rkyv::Archive, rkyv::Serialize)]
#[rkyv(derive(PartialEq, Eq, PartialOrd, Ord))]
pub struct StorePath {
    base_name: String,
}

/// A path in a message is parsed like any other: bytes from outside prove nothing.
impl<D> rkyv::Deserialize<StorePath, D> for ArchivedStorePath
where
    D: rkyv::rancor::Fallible + ?Sized,
    D::Error: rkyv::rancor::Source,
{
    fn deserialize(&self, _: &mut D) -> Result<StorePath, D::Error> {
        StorePath::from_base_name(self.base_name.as_str()).map_err(rkyv::rancor::Source::new)
    }
}

impl StorePath {
    /// Parses a base name `<hash>-<name>`.
    ///
    /// # Errors
    /// If the hash is not 32 digits of Nix's base 32 or the name is empty, longer than 211 bytes
    /// or holds other characters than Nix allows.
    pub fn from_base_name(base_name: &str) -> Result<Self, ParseStorePathError> {
        match base_name_fault(base_name) {
            None => Ok(Self { base_name: base_name.to_owned() }),
            Some(reason) => {
                Err(ParseStorePathError { text: base_name.chars().take(260).collect(), reason })
            }
        }
    }

    /// A path made from its 20 hash bytes and a name.
    ///
    /// # Errors
    /// As [`StorePath::from_base_name`].
    pub fn from_parts(hash: &[u8; 20], name: &str) -> Result<Self, ParseStorePathError> {
        Self::from_base_name(&format!("{}-{name}", nix_base32::encode(hash)))
    }

    /// `<hash>-<name>`.
    #[must_use]
    pub fn base_name(&self) -> &str {
        &self.base_name
    }

    /// The 32 digits before the first dash: the key of a narinfo.
    #[must_use]
    pub fn hash_part(&self) -> &str {
        &self.base_name[..HASH_LEN]
    }

    /// What follows the dash.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.base_name[HASH_LEN + 1..]
    }

    /// The base name as a segment of a URL: a name may hold `?`.
    #[must_use]
    pub fn url_segment(&self) -> String {
        self.base_name().replace('?', "%3F")
    }

    /// Whether the path names a derivation file.
    #[must_use]
    pub fn is_derivation(&self) -> bool {
        self.base_name.ends_with(".drv")
    }
}

fn base_name_fault(base_name: &str) -> Option<&'static str> {
    let bytes = base_name.as_bytes();
    if bytes.len() <= HASH_LEN || bytes[HASH_LEN] != b'-' {
        return Some("it does not start with 32 digits and a dash");
    }
    if !bytes[..HASH_LEN].iter().all(|b| nix_base32::is_digit(*b)) {
        return Some("its hash holds other than base-32 digits");
    }
    let name = &bytes[HASH_LEN + 1..];
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Some("its name has not 1 to 211 bytes");
    }
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"+-._?=".contains(b);
    if !name.iter().all(allowed) {
        return Some("its name holds a character that Nix does not allow");
    }
    let dotted = |dots: &[u8]| {
        name == dots || (name.starts_with(dots) && name.get(dots.len()) == Some(&b'-'))
    };
    if dotted(b".") || dotted(b"..") {
        return Some("its name starts like a relative path");
    }
    None
}

impl FromStr for StorePath {
    type Err = ParseStorePathError;

    /// Parses a full path `/nix/store/<hash>-<name>`, nothing below it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix(STORE_DIR).and_then(|rest| rest.strip_prefix('/')) {
            Some(base_name) => Self::from_base_name(base_name),
            None => Err(ParseStorePathError {
                text: text.chars().take(260).collect(),
                reason: "it is not in /nix/store",
            }),
        }
    }
}

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE_DIR}/{}", self.base_name)
    }
}

impl fmt::Debug for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base_name)
    }
}

impl Serialize for StorePath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StorePath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0mdqa9w1p6cmli6976v4wi0sw9r4p5pr";

    #[test]
    fn a_path_has_its_parts() {
        let path: StorePath = format!("/nix/store/{HASH}-hello-2.12.drv").parse().expect("valid");
        assert_eq!(path.hash_part(), HASH);
        assert_eq!(path.name(), "hello-2.12.drv");
        assert!(path.is_derivation());
        assert_eq!(path.to_string().parse::<StorePath>(), Ok(path));
    }

    #[test]
    fn a_forged_path_in_a_message_is_refused() {
        let path = StorePath::from_base_name(&format!("{HASH}-hello")).expect("valid");
        let mut bytes = rkyv::to_bytes::<rkyv::rancor::Error>(&path).expect("written").into_vec();
        let read = rkyv::from_bytes::<StorePath, rkyv::rancor::Error>(&bytes);
        assert_eq!(read.ok(), Some(path));
        bytes[1] = b'e';
        rkyv::from_bytes::<StorePath, rkyv::rancor::Error>(&bytes)
            .expect_err("no digit of base 32");
    }

    #[test]
    fn what_is_no_store_path_is_refused() {
        let long = "x".repeat(212);
        let junk = [
            String::new(),
            "/nix/store/".into(),
            format!("/nix/store/{HASH}"),
            format!("/nix/store/{HASH}-"),
            format!("/nix/store/{HASH}-a/b"),
            format!("/nix/store/{HASH}-a b"),
            format!("/nix/store/{HASH}-.."),
            format!("/nix/store/{HASH}-{long}"),
            format!("/nix/store/{}-a", "e".repeat(32)),
            format!("/tmp/{HASH}-a"),
        ];
        for text in junk {
            assert!(text.parse::<StorePath>().is_err(), "{text}");
        }
    }
}
