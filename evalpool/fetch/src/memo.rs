//! What was locked before: the same fixed reference under the same conditions is locked once.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use data_encoding::HEXLOWER;
use gradient_domain::StorePath;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::request::LockedFlake;

/// Form of an entry; another one is a miss.
const SCHEMA: u32 = 1;
/// Most entries; the oldest go first.
const ENTRIES_MAX: usize = 1_000;
/// Entries that were written so long ago go.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Largest entry that is written or read, in bytes.
const ENTRY_BYTES_MAX: u64 = 16 << 20;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    schema: u32,
    pub(crate) flake: LockedFlake,
    /// Everything that the evaluation reads; the entry counts while all of it is in the store.
    paths: Vec<StorePath>,
}

impl Entry {
    pub(crate) fn new(flake: LockedFlake, paths: Vec<StorePath>) -> Self {
        Self { schema: SCHEMA, flake, paths }
    }
}

/// The file of one entry.
#[derive(Clone, Debug)]
pub(crate) struct Memo {
    file: PathBuf,
}

impl Memo {
    /// The place of what was locked under exactly these conditions.
    pub(crate) fn of(cache_home: &Path, conditions: &impl Serialize) -> Option<Self> {
        let key = serde_json::to_vec(&(SCHEMA, conditions)).ok()?;
        let name = HEXLOWER.encode(&Sha256::digest(key));
        Some(Self { file: cache_home.join("locks").join(format!("{name}.json")) })
    }

    /// The entry, if it is there, whole, and its paths are in the store.
    pub(crate) fn load(&self, store_dir: &Path) -> Option<LockedFlake> {
        let is_small = fs::metadata(&self.file).ok()?.len() <= ENTRY_BYTES_MAX;
        let text = if is_small { fs::read(&self.file).ok()? } else { Vec::new() };
        let entry: Option<Entry> = serde_json::from_slice(&text).ok();
        let Some(entry) = entry.filter(|entry| entry.schema == SCHEMA) else {
            let _ = fs::remove_file(&self.file);
            return None;
        };
        let is_there =
            |path: &StorePath| store_dir.join(path.base_name()).symlink_metadata().is_ok();
        entry.paths.iter().all(is_there).then_some(entry.flake)
    }

    /// Keeps an entry. A reader sees all of it or nothing.
    pub(crate) fn save(&self, entry: &Entry) -> io::Result<()> {
        let text = serde_json::to_vec(entry)?;
        if text.len() as u64 > ENTRY_BYTES_MAX {
            return Ok(());
        }
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().prefix(".new").tempfile_in(folder)?;
        file.write_all(&text)?;
        file.persist(&self.file)?;
        prune(folder, ENTRIES_MAX)
    }
}

/// Removes what is too old and, of the rest, the oldest over `most`.
fn prune(folder: &Path, most: usize) -> io::Result<()> {
    let now = SystemTime::now();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let at =
            entry.metadata().and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        files.push((at, entry.path()));
    }
    files.sort();
    let over = files.len().saturating_sub(most);
    for (n, (at, file)) in files.into_iter().enumerate() {
        let is_old = now.duration_since(at).is_ok_and(|age| age > AGE_MAX);
        if n < over || is_old {
            let _ = fs::remove_file(file);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Tree;

    fn entry(path: &StorePath) -> Entry {
        let tree = Tree {
            path: path.clone(),
            nar_hash: "sha256-x".into(),
            subdir: String::new(),
            commit: None,
            last_modified: None,
        };
        let flake = LockedFlake {
            url: "u".into(),
            reference: "r".into(),
            tree,
            locks: "{}".into(),
            not_locked: Vec::new(),
            is_dirty: false,
            warnings: Vec::new(),
            submodules: Vec::new(),
            missing: Vec::new(),
        };
        Entry::new(flake, vec![path.clone()])
    }

    #[test]
    fn an_entry_counts_while_its_paths_are_there() {
        let home = tempfile::tempdir().expect("a folder");
        let store = tempfile::tempdir().expect("a folder");
        let path = StorePath::from_parts(&[7; 20], "source").expect("a path");
        let memo = Memo::of(home.path(), &("a", 1)).expect("a key");
        assert_eq!(memo.load(store.path()), None);
        memo.save(&entry(&path)).expect("saved");
        assert_eq!(memo.load(store.path()), None, "the path is not in the store");
        fs::create_dir(store.path().join(path.base_name())).expect("made");
        assert_eq!(memo.load(store.path()), Some(entry(&path).flake));
        let other = Memo::of(home.path(), &("a", 2)).expect("a key");
        assert_eq!(other.load(store.path()), None);
        fs::write(&memo.file, "{\"schema\": 1, \"fla").expect("damaged");
        assert_eq!(memo.load(store.path()), None);
        assert!(!memo.file.exists(), "what is damaged goes");
    }

    #[test]
    fn the_oldest_entries_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let age = |days: u64| SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
        for (name, days) in [("a", 3), ("b", 2), ("c", 1), ("old", 31)] {
            let file = fs::File::create(folder.path().join(name)).expect("made");
            file.set_modified(age(days)).expect("set");
        }
        prune(folder.path(), 3).expect("pruned");
        let there = |name: &str| folder.path().join(name).exists();
        assert!(!there("old") && there("a") && there("b") && there("c"));
        prune(folder.path(), 1).expect("pruned");
        assert!(!there("a") && !there("b") && there("c"));
    }
}
