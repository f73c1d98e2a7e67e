//! Content addresses that an upload claims, and whether they are true.

use std::collections::BTreeSet;

use gradient_daemon::store_path_of;
use gradient_domain::{StorePath, nix_base32};

/// A hash algorithm of Nix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Algorithm::Md5 => nix_base32::decode::<16>(text).map(Vec::from),
            Algorithm::Sha1 => nix_base32::decode::<20>(text).map(Vec::from),
            Algorithm::Sha256 => nix_base32::decode::<32>(text).map(Vec::from),
            Algorithm::Sha512 => nix_base32::decode::<64>(text).map(Vec::from),
        }
    }
}

/// `text:sha256:<hash>`, `fixed:<algo>:<hash>` or `fixed:r:<algo>:<hash>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    is_text: bool,
    is_recursive: bool,
    /// As in the claim: `sha256`, `r:sha256`.
    algo: String,
    algorithm: Algorithm,
    hash: Vec<u8>,
}

/// What was seen of an upload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) path: &'a StorePath,
    pub(crate) references: &'a BTreeSet<StorePath>,
    pub(crate) nar_sha256: &'a [u8; 32],
    /// SHA-256 and SHA-512 of the contents, if the path is one plain file.
    pub(crate) file: Option<([u8; 32], [u8; 64])>,
}

/// What became of a claim that is not false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The contents have this address.
    Verified,
    /// The path follows from the claim, but nobody here computes that hash.
    Unverifiable,
}

impl Claim {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is_text, rest) = match text.strip_prefix("text:") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("fixed:")?),
        };
        let (algo, hash) = rest.rsplit_once(':')?;
        let (is_recursive, name) = match algo.strip_prefix("r:") {
            Some(name) => (true, name),
            None => (false, algo),
        };
        let algorithm = match name {
            "md5" => Algorithm::Md5,
            "sha1" => Algorithm::Sha1,
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return None,
        };
        if is_text && algo != "sha256" {
            return None;
        }
        Some(Claim {
            is_text,
            is_recursive,
            algo: algo.to_owned(),
            algorithm,
            hash: algorithm.decode(hash)?,
        })
    }

    /// Checks that the path follows from the claim and the claim from the contents.
    pub(crate) fn verify(&self, seen: &Seen<'_>) -> Result<Verdict, String> {
        if seen.references.contains(seen.path) {
            // Its hash would be over contents with the path itself blanked out.
            return Ok(Verdict::Unverifiable);
        }
        let expected = self.path(seen).map_err(|error| error.to_string())?;
        if expected != *seen.path {
            let path = seen.path;
            return Err(format!(
                "the claimed content address belongs to {expected}, not to {path}"
            ));
        }
        let of_contents: &[u8] = match (self.is_recursive, self.algorithm, &seen.file) {
            (true, Algorithm::Sha256, _) => seen.nar_sha256,
            (false, Algorithm::Sha256, Some((sha256, _))) => sha256,
            (false, Algorithm::Sha512, Some((_, sha512))) => sha512,
            (false, _, None) => {
                return Err("a flat content address, but the path is no plain file".into());
            }
            (true, Algorithm::Sha512 | Algorithm::Sha1 | Algorithm::Md5, _)
            | (false, Algorithm::Sha1 | Algorithm::Md5, Some(_)) => {
                return Ok(Verdict::Unverifiable);
            }
        };
        match of_contents == self.hash {
            true => Ok(Verdict::Verified),
            false => Err("the contents have another hash than the claimed content address".into()),
        }
    }

    fn path(
        &self,
        seen: &Seen<'_>,
    ) -> Result<StorePath, gradient_domain::store_path::ParseStorePathError> {
        let name = seen.path.name();
        match <&[u8; 32]>::try_from(self.hash.as_slice()) {
            Ok(hash) if self.is_text => store_path_of::text(hash, seen.references, name),
            Ok(hash) if self.algo == "r:sha256" => {
                store_path_of::source(hash, seen.references, name)
            }
            _ => store_path_of::fixed_output(&self.algo, &self.hash, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(kind: &str, hash: &[u8]) -> Claim {
        Claim::parse(&format!("{kind}:{}", nix_base32::encode(hash))).expect("parses")
    }

    fn verify(claim: &Claim, path: &StorePath, nar: [u8; 32]) -> Result<Verdict, String> {
        let references = BTreeSet::new();
        claim.verify(&Seen {
            path,
            references: &references,
            nar_sha256: &nar,
            file: Some(([3; 32], [4; 64])),
        })
    }

    #[test]
    fn true_and_false_claims() {
        let none = BTreeSet::new();
        let text = store_path_of::text(&[3; 32], &none, "a.drv").expect("valid");
        let source = store_path_of::source(&[1; 32], &none, "src").expect("valid");
        let flat = store_path_of::fixed_output("sha512", &[4; 64], "file").expect("valid");
        let old = store_path_of::fixed_output("sha1", &[5; 20], "file").expect("valid");
        let verified = Ok(Verdict::Verified);
        let (text_claim, source_claim) =
            (claim("text:sha256", &[3; 32]), claim("fixed:r:sha256", &[1; 32]));
        assert_eq!(verify(&text_claim, &text, [1; 32]), verified);
        assert_eq!(verify(&source_claim, &source, [1; 32]), verified);
        assert_eq!(verify(&claim("fixed:sha512", &[4; 64]), &flat, [1; 32]), verified);
        let unknown = Ok(Verdict::Unverifiable);
        assert_eq!(verify(&claim("fixed:sha1", &[5; 20]), &old, [1; 32]), unknown);
        // Another path, other contents.
        assert!(verify(&text_claim, &source, [1; 32]).is_err());
        assert!(verify(&source_claim, &source, [2; 32]).is_err());
        assert!(verify(&claim("fixed:sha1", &[6; 20]), &old, [1; 32]).is_err());
    }

    #[test]
    fn junk_is_no_claim() {
        let long = nix_base32::encode(&[0; 64]);
        for junk in ["", "text:", "fixed:sha256:", "text:r:sha256:0", "fixed:blake3:0"] {
            assert_eq!(Claim::parse(junk), None, "{junk}");
        }
        assert_eq!(Claim::parse(&format!("fixed:sha256:{long}")), None);
        assert_eq!(Claim::parse(&format!("text:sha512:{long}")), None);
    }
}
