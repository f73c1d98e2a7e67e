//! The store that derivations are written to.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use gradient_domain::percent;
use gradient_domain::{Derivation, StorePath};
use gradient_pool::settings::store_folder;
use tempfile::TempDir;
use tokio::process::Command;

use crate::exit::Failure;
use crate::up::programs;

/// Where the machine's own Nix daemon listens.
pub(super) const DAEMON_SOCKET: &str = "/nix/var/nix/daemon-socket/socket";

/// File in the data directory that is locked while a store is made, and how long to wait for that.
const MAKING: &str = "eval-store.lock";
const MAKING_MAX: Duration = Duration::from_secs(60);

/// How often and after which pause a folder that somebody still writes to is removed again.
const REMOVALS_MAX: u32 = 40;
const REMOVAL_PAUSE: Duration = Duration::from_millis(50);

/// A store, by the name that Nix has for it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) uri: String,
    /// Where its `/nix/store` really is.
    pub(crate) dir: PathBuf,
}

/// A folder that is removed in the end, with the read-only folders of a store in it.
#[derive(Debug)]
pub(crate) struct Vanishing(TempDir);

impl Vanishing {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Vanishing {
    fn drop(&mut self) {
        // Evaluators that were killed a moment ago may not have ended yet.
        for _ in 0..REMOVALS_MAX {
            make_writable(self.0.path());
            match std::fs::remove_dir_all(self.0.path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    std::thread::sleep(REMOVAL_PAUSE);
                }
                Ok(()) | Err(_) => return,
            }
        }
    }
}

/// Gives back the right to write, which Nix takes from what is in a store, so that it can be removed.
fn make_writable(folder: &Path) {
    // What cannot be changed is left to the removal, which leaves it.
    let _ = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        make_writable(&entry.path());
    }
}

impl Store {
    /// The given store, the machine's, or one below the data directory.
    pub(super) fn open(data_dir: &Path, given: Option<&str>) -> Result<Store, Failure> {
        match given {
            Some(uri) => Ok(Store::named(uri)),
            None if Path::new(DAEMON_SOCKET).exists() => Ok(Store::named("daemon")),
            None => Store::below(&data_dir.join("eval-store")),
        }
    }

    /// A store that vanishes in the end, at the top of a folder that may hold more: for what only has to be
    /// read once, and for evaluations, since there is no safe way to tell an embedded Nix that it shall
    /// write nothing.
    pub(crate) fn throw_away() -> Result<(Store, Vanishing), Failure> {
        let folder = tempfile::Builder::new().prefix("gradient-store-").tempdir();
        let folder = folder.context("cannot make a temporary folder")?;
        Ok((Store::below(folder.path())?, Vanishing(folder)))
    }

    fn named(uri: &str) -> Store {
        // A path is a store below it, as Nix has it.
        let uri = match uri.starts_with('/') {
            true => format!("local?root={}", percent::encode(uri)),
            false => uri.to_owned(),
        };
        let dir = store_folder(&uri);
        Store { uri, dir }
    }

    fn below(folder: &Path) -> Result<Store, Failure> {
        let root =
            std::path::absolute(folder).context("the data directory has no absolute path")?;
        std::fs::create_dir_all(&root)
            .with_context(|| format!("cannot create {}", root.display()))?;
        Ok(Store::named(&root.to_string_lossy()))
    }

    /// Makes a store in a folder if there is none yet. Several programs that do so at once fail, so those
    /// of one data directory do it one after the other; whoever meets one that cannot be made says why.
    pub(super) async fn make(&self, data_dir: &Path) -> anyhow::Result<()> {
        let Some(nix) = programs::find_nix().filter(|_| self.is_to_be_made()) else {
            return Ok(());
        };
        std::fs::create_dir_all(data_dir)
            .with_context(|| format!("cannot create {}", data_dir.display()))?;
        let file = data_dir.join(MAKING);
        let file = File::create(&file).with_context(|| format!("cannot create {}", file.display()));
        // After that somebody holds it up, and whoever needs the store tries it.
        let made = tokio::time::timeout(MAKING_MAX, self.make_in_turn(&nix, file?)).await;
        made.unwrap_or(Ok(()))
    }

    async fn make_in_turn(&self, nix: &Path, file: File) -> anyhow::Result<()> {
        let turn = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
        let _turn = turn.await?.context("the lock of the store cannot be had")?;
        if self.is_to_be_made() {
            let mut command = Command::new(nix);
            command.args(["--extra-experimental-features", "nix-command", "store", "info"]);
            command.args(["--store", &self.uri]).stdin(Stdio::null()).kill_on_drop(true);
            let _said = command.output().await;
        }
        Ok(())
    }

    /// Whether this is a store in a folder that nobody made yet. Nix writes this file last.
    fn is_to_be_made(&self) -> bool {
        let root = self.dir.ancestors().nth(2).filter(|_| self.uri.starts_with("local?root="));
        root.is_some_and(|root| !root.join("nix/var/nix/db/schema").exists())
    }

    /// Whether its paths are known to lie in [`Store::dir`], so that what is there tells what it has.
    pub(super) fn is_at_hand(&self) -> bool {
        let (kind, query) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        let only_root = query.split('&').all(|pair| pair.is_empty() || pair.starts_with("root="));
        let is_socket =
            kind.strip_prefix("unix://").is_some_and(|socket| Path::new(socket).exists());
        only_root && (matches!(kind, "local" | "daemon" | "auto") || is_socket)
    }

    /// The socket of its daemon; `None` for a store without one.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        match self.uri.strip_prefix("unix://") {
            Some(rest) => Some(rest.split('?').next().unwrap_or(rest).into()),
            None => (self.uri.split('?').next() == Some("daemon")).then(|| DAEMON_SOCKET.into()),
        }
    }

    /// Reads a derivation.
    pub(super) fn read(&self, drv_path: &StorePath) -> anyhow::Result<Derivation> {
        let file = self.dir.join(drv_path.base_name());
        let text =
            std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Derivation::parse(&text).with_context(|| format!("cannot parse {drv_path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_have_their_folder_and_their_socket() {
        let rows = [
            ("daemon", "/nix/store", Some(DAEMON_SOCKET)),
            ("unix:///tmp/d.sock?root=/tmp/r", "/tmp/r/nix/store", Some("/tmp/d.sock")),
            ("local?root=/tmp/r&trusted=1", "/tmp/r/nix/store", None),
            ("local", "/nix/store", None),
            ("/tmp/r", "/tmp/r/nix/store", None),
        ];
        for (uri, dir, socket) in rows {
            let store = Store::named(uri);
            assert_eq!(store.dir, Path::new(dir), "{uri}");
            assert_eq!(store.socket().as_deref(), socket.map(Path::new), "{uri}");
        }
        assert_eq!(Store::named("/tmp/r").uri, "local?root=/tmp/r");
    }

    #[test]
    fn a_throw_away_store_is_thrown_away() {
        let (store, folder) = Store::throw_away().expect("made");
        let root = store.dir.ancestors().nth(2).expect("a root").to_owned();
        let closed = root.join("closed");
        std::fs::create_dir(&closed).expect("made");
        std::fs::write(closed.join("file"), "x").expect("written");
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o555)).expect("closed");
        drop(folder);
        assert!(!root.exists());
    }
}
