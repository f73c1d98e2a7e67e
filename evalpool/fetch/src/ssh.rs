//! A key for SSH that lives as long as one fetch (ADR 18).

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use tempfile::TempDir;

/// Largest key file, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Folders of keys this old were left behind by a process that was killed.
const LEFT_AFTER: Duration = Duration::from_secs(2 * 60 * 60);
/// Folder of the keys below the cache home.
const FOLDER: &str = "fetch-keys";

/// A private key for SSH. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SshKey(Vec<u8>);

/// Why something is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SshKeyError {
    /// Nothing or too much.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes")]
    Size,
    /// It does not look like one.
    #[error("this is no private key in PEM or OpenSSH format without a passphrase prompt")]
    Form,
}

impl SshKey {
    /// Takes the text of a key file.
    ///
    /// # Errors
    /// If it does not look like a private key.
    pub fn new(text: impl Into<Vec<u8>>) -> Result<Self, SshKeyError> {
        let mut text = text.into();
        if text.is_empty() || text.len() > KEY_BYTES_MAX {
            return Err(SshKeyError::Size);
        }
        let is_private = std::str::from_utf8(&text)
            .is_ok_and(|text| text.starts_with("-----BEGIN ") && text.contains("PRIVATE KEY-----"));
        if !is_private {
            return Err(SshKeyError::Form);
        }
        // OpenSSH refuses a file whose last line does not end.
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        Ok(Self(text))
    }

    /// The text of the key file.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshKey(..)")
    }
}

/// The key as a file; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct KeyFile {
    file: PathBuf,
    known_hosts: PathBuf,
    _folder: TempDir,
}

impl KeyFile {
    pub(crate) fn write(key: &SshKey, cache_home: &Path) -> io::Result<Self> {
        let folder = cache_home.join(FOLDER);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        sweep(&folder);
        let private = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(private).tempdir_in(&folder)?;
        let file = std::path::absolute(folder.path().join("key"))?;
        let mut options = fs::OpenOptions::new();
        let mut open = options.write(true).create_new(true).mode(0o600).open(&file)?;
        open.write_all(key.reveal())?;
        let known_hosts = std::path::absolute(cache_home.join("known_hosts"))?;
        Ok(Self { file, known_hosts, _folder: folder })
    }

    /// `GIT_SSH_COMMAND`: this key and nothing else of the machine's.
    pub(crate) fn command(&self) -> String {
        format!(
            "ssh -F /dev/null -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes \
             -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={}",
            quoted(&self.file),
            quoted(&self.known_hosts)
        )
    }
}

/// For the shell that git starts.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|entry| entry.modified()).map(|at| at.elapsed());
        if age.is_ok_and(|age| age.is_ok_and(|age| age > LEFT_AFTER)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----";

    #[test]
    fn a_key_is_private_and_vanishes() {
        let home = tempfile::tempdir().expect("a folder");
        let key = SshKey::new(KEY).expect("a key");
        let file = KeyFile::write(&key, home.path()).expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&file.file), 0o600);
        assert_eq!(mode(file.file.parent().expect("a folder")), 0o700);
        assert!(fs::read_to_string(&file.file).expect("read").ends_with("-----\n"));
        let path = file.file.clone();
        drop(file);
        assert!(!path.exists() && !path.parent().expect("a folder").exists());
    }

    #[test]
    fn a_key_is_not_printed_and_looks_like_one() {
        let key = SshKey::new(KEY).expect("a key");
        assert_eq!(format!("{key:?}"), "SshKey(..)");
        assert_eq!(SshKey::new(""), Err(SshKeyError::Size));
        assert_eq!(SshKey::new(vec![b'-'; KEY_BYTES_MAX + 1]), Err(SshKeyError::Size));
        assert_eq!(SshKey::new("ssh-ed25519 AAAA x"), Err(SshKeyError::Form));
    }
}
