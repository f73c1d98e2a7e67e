//! Files of evaluation caches on their way between machines.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gradient_pool::Folder;
use uuid::Uuid;

/// Folder of files on their way, beside the caches.
const FOLDER: &str = "share";
/// Age of a file on its way that a worker left which was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);

/// The place of a file on its way. Whatever is there when this is dropped goes.
pub(super) struct OnItsWay(PathBuf);

impl OnItsWay {
    pub(super) async fn beside(caches: &Folder) -> std::io::Result<Self> {
        let folder = caches.path().join(FOLDER);
        let make = move || {
            std::fs::create_dir_all(&folder)?;
            remove_left_behind(&folder);
            Ok(OnItsWay(folder.join(Uuid::new_v4().to_string())))
        };
        tokio::task::spawn_blocking(make).await.map_err(std::io::Error::other).flatten()
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut file = self.0.clone().into_os_string();
            file.push(suffix);
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(%error, ?file, "a temporary file cannot be removed");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Removes what workers left that were killed.
fn remove_left_behind(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        if age.is_ok_and(|age| age > LEFT_BEHIND) {
            // What stays is tried again the next time.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
