//! The hash and the store path of a folder, computed without Nix.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use base64::Engine as _;
use gradient_daemon::{nar, store_path_of};
use gradient_domain::StorePath;
use sha2::{Digest as _, Sha256};

/// Largest tree that is hashed here, in bytes of its NAR; Nix takes larger ones.
const NAR_BYTES_MAX: u64 = 1 << 30;

/// What lies in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hashed {
    /// `sha256-<base64>`.
    pub(crate) nar_hash: String,
    bytes: [u8; 32],
    /// Seconds since 1970 of the newest file.
    pub(crate) last_modified: i64,
}

impl Hashed {
    /// Where Nix puts it.
    pub(crate) fn store_path(&self) -> StorePath {
        store_path_of::source(&self.bytes, &BTreeSet::new(), "source")
            .expect("the name is one that Nix allows")
    }
}

/// Hashes a folder; blocks.
pub(crate) fn hash(folder: &Path) -> io::Result<Hashed> {
    let newest = Cell::new(folder.symlink_metadata()?.mtime());
    let look = |path: &Path| {
        if let Ok(metadata) = path.symlink_metadata() {
            newest.set(newest.get().max(metadata.mtime()));
        }
        true
    };
    let mut sink = Sink { digest: Sha256::new(), left: NAR_BYTES_MAX };
    nar::pack(folder, &look, &mut sink)?;
    let bytes: [u8; 32] = sink.digest.finalize().into();
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    Ok(Hashed { nar_hash: format!("sha256-{text}"), bytes, last_modified: newest.get() })
}

struct Sink {
    digest: Sha256,
    left: u64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| io::Error::other("the tree is too large"))?;
        self.digest.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
