//! Which evaluation caches the fleet still has to be given: one empty file for each, beside the caches.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use gradient_pool::Folder;

/// Folder of the notes, beside the caches.
const FOLDER: &str = "not-given";

/// The notes of one folder of caches. They outlive the worker.
#[derive(Clone, Debug)]
pub(super) struct NotGiven(PathBuf);

impl NotGiven {
    pub(super) fn of(caches: &Folder) -> NotGiven {
        NotGiven(caches.path().join(FOLDER))
    }

    /// Notes a cache before it is given, so that a stop in between loses nothing.
    pub(super) fn note(&self, fingerprint: &str) -> io::Result<()> {
        std::fs::create_dir_all(&self.0)?;
        std::fs::write(self.0.join(fingerprint), "")
    }

    /// The fleet has it, or never will.
    pub(super) fn forget(&self, fingerprint: &str) {
        match std::fs::remove_file(self.0.join(fingerprint)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "a note of a cache to give cannot be removed");
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// The caches that are noted, at most `most`: the newest, for whoever comes next may want it.
    pub(super) fn newest(&self, most: usize) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut notes: Vec<(SystemTime, String)> = entries
            .filter_map(|entry| {
                let at = entry.metadata().and_then(|metadata| metadata.modified()).ok()?;
                Some((at, entry.file_name().into_string().ok()?))
            })
            .collect();
        notes.sort_by(|a, b| b.cmp(a));
        notes.into_iter().take(most).map(|(_, fingerprint)| fingerprint).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_noted_stays_until_it_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let notes = NotGiven::of(&Folder::new(folder.path()));
        assert_eq!(notes.newest(9), [""; 0]);
        for (name, minutes) in [("a", 3), ("b", 1), ("c", 2)] {
            notes.note(name).expect("noted");
            let at = SystemTime::now() - Duration::from_secs(minutes * 60);
            let file = File::options().write(true).open(folder.path().join(FOLDER).join(name));
            file.and_then(|file| file.set_modified(at)).expect("dated");
        }
        assert_eq!(notes.newest(2), ["b", "c"]);
        notes.note("a").expect("noted again");
        assert_eq!(notes.newest(9), ["a", "b", "c"]);
        notes.forget("a");
        notes.forget("a");
        assert_eq!(notes.newest(9), ["b", "c"]);
    }
}
