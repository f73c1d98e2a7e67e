//! A key for SSH that lives as long as one fetch (ADR 18).

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use gradient_domain::SshKey;
use tempfile::TempDir;

/// Folders of keys this old were left behind by a process that was killed.
const LEFT_AFTER: Duration = Duration::from_secs(2 * 60 * 60);
/// Folder of the keys below the cache home.
const FOLDER: &str = "fetch-keys";

/// The key as a file, and a place for what it opens; both gone when this is dropped.
#[derive(Debug)]
pub(crate) struct KeyFile {
    file: PathBuf,
    cache_home: PathBuf,
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
        open.write_all(key.reveal().as_bytes())?;
        let known_hosts = std::path::absolute(cache_home.join("known_hosts"))?;
        let own_home = file.with_file_name("cache");
        Ok(Self { file, cache_home: own_home, known_hosts, _folder: folder })
    }

    /// Where Nix caches what it fetches with the key: what one key can read is not for those without.
    pub(crate) fn cache_home(&self) -> &Path {
        &self.cache_home
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

/// Removes the keys of a process that was killed. Only for when nothing is fetched with this cache home,
/// such as at the start of a worker.
///
/// # Errors
/// If the folder cannot be emptied.
pub fn remove_left_keys(cache_home: &Path) -> io::Result<()> {
    match fs::remove_dir_all(cache_home.join(FOLDER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
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
    fn what_a_killed_process_left_is_removed() {
        let home = tempfile::tempdir().expect("a folder");
        remove_left_keys(home.path()).expect("nothing is there");
        let key = SshKey::new(KEY).expect("a key");
        let file = KeyFile::write(&key, home.path()).expect("written");
        let path = file.file.clone();
        std::mem::forget(file);
        fs::write(home.path().join("other"), "").expect("written");
        remove_left_keys(home.path()).expect("removed");
        assert!(!path.exists() && home.path().join("other").exists());
        assert!(KeyFile::write(&key, home.path()).is_ok());
    }
}
