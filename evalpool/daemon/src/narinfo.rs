//! Narinfo files: what a binary cache says of a path.

use std::collections::BTreeSet;
use std::fmt;

use gradient_domain::{StorePath, nix_base32};

use crate::path_info::{NarHash, PathInfo, parse_sha256};

/// Largest narinfo that is read, in bytes.
pub const NARINFO_SIZE_MAX: usize = 4 << 20;

/// What a binary cache says of one store path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarInfo {
    /// The path.
    pub path: StorePath,
    /// Where its NAR is, relative to the cache.
    pub url: String,
    /// How its NAR is compressed, such as `zstd` or `none`.
    pub compression: String,
    /// SHA-256 of the compressed NAR.
    pub file_hash: NarHash,
    /// Size of the compressed NAR in bytes.
    pub file_size: u64,
    /// What a store knows of the path.
    pub info: PathInfo,
}

/// A text that is no narinfo.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a narinfo: {0}")]
pub struct ParseNarInfoError(String);

/// What is signed of a path: `1;<path>;sha256:<base 32>;<size>;<references>`.
#[must_use]
pub fn fingerprint(path: &StorePath, info: &PathInfo) -> String {
    let references: Vec<String> = info.references.iter().map(ToString::to_string).collect();
    format!("1;{path};{};{};{}", info.nar_hash_text(), info.nar_size, references.join(","))
}

impl NarInfo {
    /// What is signed of it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.path, &self.info)
    }

    /// Reads a narinfo; unknown fields are ignored.
    ///
    /// # Errors
    /// If it is over [`NARINFO_SIZE_MAX`], a needed field is missing or a value is wrong.
    pub fn parse(text: &str) -> Result<Self, ParseNarInfoError> {
        if text.len() > NARINFO_SIZE_MAX {
            return Err(ParseNarInfoError(format!("it has {} bytes", text.len())));
        }
        let mut fields = Fields::default();
        for line in text.lines() {
            let (key, value) = line
                .split_once(": ")
                .or_else(|| line.strip_suffix(':').map(|key| (key, "")))
                .ok_or_else(|| ParseNarInfoError(format!("'{line}' is no field")))?;
            fields.take(key, value)?;
        }
        fields.finish()
    }
}

#[derive(Default)]
struct Fields {
    path: Option<StorePath>,
    url: Option<String>,
    compression: Option<String>,
    file_hash: Option<NarHash>,
    file_size: Option<u64>,
    nar_hash: Option<NarHash>,
    nar_size: Option<u64>,
    references: BTreeSet<StorePath>,
    deriver: Option<StorePath>,
    signatures: BTreeSet<String>,
    content_address: String,
}

impl Fields {
    fn take(&mut self, key: &str, value: &str) -> Result<(), ParseNarInfoError> {
        let wrong = || ParseNarInfoError(format!("the value of {key} is wrong: '{value}'"));
        let base_name = |name: &str| StorePath::from_base_name(name).map_err(|_| wrong());
        let hash = || parse_sha256(value).ok_or_else(wrong);
        let number = || value.parse::<u64>().map_err(|_| wrong());
        match key {
            "StorePath" => self.path = Some(value.parse().map_err(|_| wrong())?),
            "URL" => self.url = Some(value.to_owned()),
            "Compression" => self.compression = Some(value.to_owned()),
            "FileHash" => self.file_hash = Some(hash()?),
            "FileSize" => self.file_size = Some(number()?),
            "NarHash" => self.nar_hash = Some(hash()?),
            "NarSize" => self.nar_size = Some(number()?),
            "References" => {
                self.references =
                    value.split_ascii_whitespace().map(base_name).collect::<Result<_, _>>()?;
            }
            "Deriver" if value != "unknown-deriver" => self.deriver = Some(base_name(value)?),
            "Sig" => {
                self.signatures.insert(value.to_owned());
            }
            "CA" => value.clone_into(&mut self.content_address),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<NarInfo, ParseNarInfoError> {
        fn need<T>(field: Option<T>, name: &str) -> Result<T, ParseNarInfoError> {
            field.ok_or_else(|| ParseNarInfoError(format!("it has no {name}")))
        }
        Ok(NarInfo {
            path: need(self.path, "StorePath")?,
            url: need(self.url, "URL")?,
            compression: need(self.compression, "Compression")?,
            file_hash: need(self.file_hash, "FileHash")?,
            file_size: need(self.file_size, "FileSize")?,
            info: PathInfo {
                deriver: self.deriver,
                nar_hash: need(self.nar_hash, "NarHash")?,
                nar_size: need(self.nar_size, "NarSize")?,
                references: self.references,
                signatures: self.signatures,
                content_address: self.content_address,
                is_ultimate: false,
            },
        })
    }
}

impl fmt::Display for NarInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "StorePath: {}", self.path)?;
        writeln!(f, "URL: {}", self.url)?;
        writeln!(f, "Compression: {}", self.compression)?;
        writeln!(f, "FileHash: sha256:{}", nix_base32::encode(&self.file_hash))?;
        writeln!(f, "FileSize: {}", self.file_size)?;
        writeln!(f, "NarHash: {}", self.info.nar_hash_text())?;
        writeln!(f, "NarSize: {}", self.info.nar_size)?;
        let references: Vec<&str> = self.info.references.iter().map(StorePath::base_name).collect();
        writeln!(f, "References: {}", references.join(" "))?;
        if let Some(deriver) = &self.info.deriver {
            writeln!(f, "Deriver: {}", deriver.base_name())?;
        }
        for signature in &self.info.signatures {
            writeln!(f, "Sig: {signature}")?;
        }
        if !self.info.content_address.is_empty() {
            writeln!(f, "CA: {}", self.info.content_address)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0mdqa9w1p6cmli6976v4wi0sw9r4p5pr";

    fn sample() -> NarInfo {
        let path =
            |name: &str| StorePath::from_base_name(&format!("{HASH}-{name}")).expect("valid");
        NarInfo {
            path: path("a"),
            url: "nar/x.nar.zst".into(),
            compression: "zstd".into(),
            file_hash: [1; 32],
            file_size: 7,
            info: PathInfo {
                deriver: Some(path("a.drv")),
                nar_hash: [2; 32],
                nar_size: 9,
                references: BTreeSet::from([path("b"), path("a")]),
                signatures: BTreeSet::from(["k:AAAA".to_owned()]),
                content_address: "fixed:r:sha256:x".into(),
                is_ultimate: false,
            },
        }
    }

    #[test]
    fn a_narinfo_survives_its_text() {
        let narinfo = sample();
        assert_eq!(NarInfo::parse(&narinfo.to_string()), Ok(narinfo.clone()));
        let hash = nix_base32::encode(&[2; 32]);
        assert_eq!(
            narinfo.fingerprint(),
            format!(
                "1;/nix/store/{HASH}-a;sha256:{hash};9;/nix/store/{HASH}-a,/nix/store/{HASH}-b"
            )
        );
        let bare =
            NarInfo { info: PathInfo { references: BTreeSet::new(), ..narinfo.info }, ..narinfo };
        assert_eq!(NarInfo::parse(&bare.to_string()), Ok(bare));
    }

    #[test]
    fn missing_and_wrong_fields_are_refused() {
        let text = sample().to_string();
        for key in ["StorePath", "URL", "NarHash", "NarSize", "FileHash"] {
            let without: String =
                text.lines().filter(|l| !l.starts_with(key)).map(|l| format!("{l}\n")).collect();
            let error = NarInfo::parse(&without).expect_err(key);
            assert!(error.to_string().contains(key), "{error}");
        }
        for (from, to) in [("NarSize: 9", "NarSize: -9"), (": zstd", "zstd"), ("-b", "/b")] {
            assert!(NarInfo::parse(&text.replace(from, to)).is_err(), "{to}");
        }
    }
}
