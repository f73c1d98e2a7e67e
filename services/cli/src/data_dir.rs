//! The data directory of a local cluster: its version, its lock, its secrets, and how commands find
//! the cluster that runs on it.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::fcntl::{Flock, FlockArg};
use rand::TryRngCore;
use serde::{Deserialize, Serialize};

use crate::exit::{Code, Failure};

/// Version of the layout; another one is refused.
const VERSION: &str = "gradient-data 1";
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// A data directory that exists and has our version.
#[derive(Clone, Debug)]
pub(crate) struct DataDir {
    root: PathBuf,
}

/// Where the running cluster listens; kept in `cluster.json`, mode 0600, while it runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClusterFile {
    pub(crate) pid: u32,
    pub(crate) http_url: String,
    pub(crate) nats_url: String,
    pub(crate) database_url: String,
}

/// `--data-dir` if it is not given: `/var/lib/gradient` for root, else the user's data folder.
pub(crate) fn default_root() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return "/var/lib/gradient".into();
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    data.unwrap_or_else(|| "/tmp".into()).join("gradient")
}

impl DataDir {
    /// Makes the directory if it is missing or empty; refuses one of another version or making.
    pub(crate) fn create(root: &Path) -> Result<Self, Failure> {
        let root = std::path::absolute(root).context("the data directory has no absolute path")?;
        let version = root.join("version");
        match std::fs::read_to_string(&version) {
            Ok(text) if text.trim() == VERSION => {}
            Ok(text) => {
                let error = anyhow::anyhow!(
                    "{} has version '{}', this program needs '{VERSION}'",
                    root.display(),
                    text.trim()
                );
                let hint =
                    "name another directory with --data-dir, or use the program that made it";
                return Err(Failure::new(Code::Usage, error).hint(hint));
            }
            Err(_) => Self::initialise(&root, &version)?,
        }
        Ok(Self { root })
    }

    fn initialise(root: &Path, version: &Path) -> Result<(), Failure> {
        let is_foreign = std::fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_some());
        if is_foreign {
            let error = anyhow::anyhow!(
                "{} is not empty and not a data directory of Gradient",
                root.display()
            );
            return Err(Failure::new(Code::Usage, error)
                .hint("name an empty or new directory with --data-dir"));
        }
        // Others may pass through, because PostgreSQL runs as another user; what is secret below is 0700.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o711).create(root);
        made.with_context(|| format!("cannot create the data directory {}", root.display()))?;
        std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o711))
            .with_context(|| format!("cannot use the data directory {}", root.display()))?;
        let aside = root.join("version.new");
        std::fs::write(&aside, format!("{VERSION}\n"))
            .and_then(|()| std::fs::rename(&aside, version))
            .with_context(|| format!("cannot write to the data directory {}", root.display()))?;
        Ok(())
    }

    /// An existing directory of ours.
    pub(crate) fn existing(root: &Path) -> Result<Self, Failure> {
        if root.join("version").is_file() {
            return Self::create(root);
        }
        let error = anyhow::anyhow!("there is no data directory of Gradient at {}", root.display());
        Err(Failure::new(Code::Unavailable, error)
            .hint("start a local cluster with `gradient up`, or name its --data-dir"))
    }

    /// Locks the directory for one cluster; the lock goes with the value.
    pub(crate) fn lock(&self) -> Result<Flock<std::fs::File>, Failure> {
        let path = self.path("lock");
        let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, _)| {
            let error = anyhow::anyhow!("a cluster runs on {} already", self.root.display());
            Failure::new(Code::Unavailable, error).hint("stop it, or name another --data-dir")
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// A folder below, only for this user.
    pub(crate) fn private(&self, below: &str) -> anyhow::Result<PathBuf> {
        let path = self.root.join(below);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// The file of a secret, made of random bytes the first time.
    pub(crate) fn secret(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.private("secrets")?.join(name);
        if !path.is_file() {
            let mut bytes = [0_u8; SECRET_BYTES];
            rand::rngs::OsRng
                .try_fill_bytes(&mut bytes)
                .context("the system gives no random bytes")?;
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            write_private(&path, &text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(path)
    }

    pub(crate) fn read_secret(&self, name: &str) -> anyhow::Result<String> {
        let path = self.secret(name)?;
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    pub(crate) fn write_cluster(&self, cluster: &ClusterFile) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(cluster)?;
        write_private(&self.path("cluster.json"), &text).context("cannot write cluster.json")
    }

    pub(crate) fn forget_cluster(&self) {
        let _ = std::fs::remove_file(self.path("cluster.json"));
    }

    /// The cluster that runs on this directory.
    pub(crate) fn cluster(&self) -> Result<ClusterFile, Failure> {
        let none = || {
            let error = anyhow::anyhow!("no cluster runs on {}", self.root.display());
            Failure::new(Code::Unavailable, error).hint("start one with `gradient up`")
        };
        let text = std::fs::read_to_string(self.path("cluster.json")).map_err(|_| none())?;
        let cluster: ClusterFile = serde_json::from_str(&text).map_err(|_| none())?;
        let pid = nix::unistd::Pid::from_raw(i32::try_from(cluster.pid).unwrap_or(i32::MAX));
        match nix::sys::signal::kill(pid, None) {
            Err(nix::errno::Errno::ESRCH) => Err(none()),
            Ok(()) | Err(_) => Ok(cluster),
        }
    }
}

/// Writes a file of this user alone, whole or not at all.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let aside = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(aside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_once_and_found_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("data");
        DataDir::existing(&root).expect_err("it is not there yet");
        let made = DataDir::create(&root).expect("made");
        let secret = made.read_secret("token").expect("made");
        assert_eq!(secret.len(), 2 * SECRET_BYTES);
        let again = DataDir::existing(&root).expect("found");
        assert_eq!(again.read_secret("token").expect("read"), secret);
        let mode =
            std::fs::metadata(again.path("secrets/token")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let lock = again.lock().expect("free");
        again.lock().expect_err("taken");
        drop(lock);
        again.lock().expect("free again");
        again.cluster().expect_err("none runs");
    }

    #[test]
    fn foreign_and_other_directories_are_refused_untouched() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("something"), "of somebody").expect("written");
        DataDir::create(dir.path()).expect_err("not empty");
        assert!(!dir.path().join("version").exists());
        let other = dir.path().join("other");
        std::fs::create_dir(&other).expect("made");
        std::fs::write(other.join("version"), "gradient-data 9").expect("written");
        let refused = DataDir::create(&other).expect_err("another version");
        assert!(refused.to_string().contains("gradient-data 9"), "{refused}");
    }
}
