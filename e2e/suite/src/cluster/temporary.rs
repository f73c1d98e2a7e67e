//! What surrounds a cluster: its environment, and a folder for temporary files of it alone.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Cluster;

impl Cluster {
    /// Sets a variable of the environment of the cluster that is started next.
    pub fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.variables.push((name, value.into()));
    }

    /// Gives the cluster that is started next, and the commands on it, a folder for temporary files that
    /// nobody else uses.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn own_temporary_folder(&mut self) {
        let folder = self.temporary();
        std::fs::create_dir_all(&folder).expect("made");
        let for_all = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(&folder, for_all).expect("the folder is ours");
    }

    /// The folder of [`Cluster::own_temporary_folder`].
    #[must_use]
    pub fn temporary(&self) -> PathBuf {
        self.folder.path().join("t")
    }

    /// What tells programs of the folder, once there is one.
    pub(super) fn temporary_variable(&self) -> Option<(&'static str, PathBuf)> {
        let folder = self.temporary();
        folder.is_dir().then_some(("TMPDIR", folder))
    }
}
