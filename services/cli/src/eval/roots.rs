//! Symlinks that keep derivations from being collected.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gradient_domain::StorePath;

use super::daemons::{Daemons, LOCAL_MAX, within};
use crate::exit::Failure;

/// A folder of roots.
pub(super) struct Roots {
    folder: PathBuf,
}

impl Roots {
    pub(super) fn open(folder: &Path) -> Result<Roots, Failure> {
        let folder = std::path::absolute(folder).map_err(Failure::usage)?;
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Roots { folder })
    }

    /// Makes a derivation a root. A link that is there says nothing: whoever made it may have failed to
    /// register it, or the daemon has forgotten it.
    pub(super) async fn add(&self, daemons: &Daemons, path: &StorePath) -> Result<(), Failure> {
        let link = self.folder.join(path.base_name());
        let target = PathBuf::from(path.to_string());
        if !std::fs::read_link(&link).is_ok_and(|there| there == target) {
            std::os::unix::fs::symlink(&target, &link)
                .with_context(|| format!("cannot link {}", link.display()))?;
        }
        let mut daemon = daemons.get().await?;
        within(LOCAL_MAX, daemon.connection().add_indirect_root(&link)).await?;
        daemon.give_back();
        Ok(())
    }
}
