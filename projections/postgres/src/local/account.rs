//! Whom the server runs as, and the folders that this user needs.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use nix::unistd::{Gid, Uid, User, chown, geteuid};
use tokio::process::Command;

use super::LocalPostgresError;

/// An unprivileged user, if this process is privileged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    user: Option<(Uid, Gid, &'static str)>,
}

impl Account {
    pub(super) fn find() -> Result<Self, LocalPostgresError> {
        if !geteuid().is_root() {
            return Ok(Self { user: None });
        }
        let user = ["postgres", "nobody"]
            .iter()
            .find_map(|name| Some((User::from_name(name).ok().flatten()?, *name)))
            .ok_or(LocalPostgresError::NoUser)?;
        let (User { uid, gid, .. }, name) = user;
        Ok(Self { user: Some((uid, gid, name)) })
    }

    pub(super) fn ids(self) -> Option<(u32, u32)> {
        self.user.map(|(uid, gid, _)| (uid.as_raw(), gid.as_raw()))
    }

    /// Runs a program as this user, in a folder that everybody may enter.
    pub(super) fn applied(self, command: &mut Command) {
        command.current_dir("/");
        if let Some((uid, gid)) = self.ids() {
            command.uid(uid).gid(gid);
        }
    }

    /// A folder of ours that the user can pass through, made if it is missing.
    pub(super) fn make_passable(self, dir: &Path) -> Result<(), LocalPostgresError> {
        std::fs::create_dir_all(dir).map_err(LocalPostgresError::io("cannot create", dir))?;
        let Some((uid, gid, user)) = self.user else { return Ok(()) };
        let allow = || {
            let mut permissions = std::fs::metadata(dir)?.permissions();
            permissions.set_mode(permissions.mode() | 0o011);
            std::fs::set_permissions(dir, permissions)?;
            dir.canonicalize()
        };
        let whole =
            allow().map_err(LocalPostgresError::io("cannot let the database user into", dir))?;
        let closed = |folder: &&Path| {
            std::fs::metadata(folder).is_ok_and(|meta| {
                let bit = match () {
                    () if meta.uid() == uid.as_raw() => 0o100,
                    () if meta.gid() == gid.as_raw() => 0o010,
                    () => 0o001,
                };
                meta.mode() & bit == 0
            })
        };
        match whole.ancestors().skip(1).find(closed) {
            None => Ok(()),
            Some(folder) => Err(LocalPostgresError::NotPassable {
                dir: dir.to_owned(),
                folder: folder.to_owned(),
                user,
            }),
        }
    }

    /// A folder that only this user may enter, made if it is missing.
    pub(super) fn make_private(self, dir: &Path) -> Result<(), LocalPostgresError> {
        let make = || {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
            let (uid, gid) = self.user.map(|(uid, gid, _)| (uid, gid)).unzip();
            chown(dir, uid, gid).map_err(std::io::Error::from)
        };
        make().map_err(LocalPostgresError::io("cannot make private to the database user", dir))
    }
}
