//! What Nix remembers of fetching, when it is broken. It is a cache: what is lost is fetched again.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// How the files of it begin, whatever the version.
const PREFIX: &str = "fetcher-cache-v";
/// What SQLite says of a file that is no database, or a broken one.
const DAMAGED: [&str; 3] =
    ["file is not a database", "database disk image is malformed", "no such table"];

/// How a database begins, and how much of it says how long it is, in bytes (SQLite, Database File Format).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;
/// The ends of files in which SQLite keeps what is not in the database yet.
const JOURNALS: [&str; 2] = ["-journal", "-wal"];

/// Removes what Nix remembers of fetching in this folder if it is no database or lacks its end, as after a
/// crash of the machine. For whoever starts a Nix that cannot be told to try again, such as an evaluator.
///
/// # Errors
/// If it is broken and cannot be removed.
pub fn remove_damaged_cache(cache_home: &Path) -> io::Result<()> {
    let files = std::fs::read_dir(cache_home).into_iter().flatten().flatten();
    let is_cache = |name: &str| name.starts_with(PREFIX) && name.ends_with(".sqlite");
    let mut caches = files.filter(|entry| is_cache(&entry.file_name().to_string_lossy()));
    match caches.any(|entry| is_cut_or_foreign(&entry.path()).unwrap_or(false)) {
        true => {
            tracing::warn!(folder = %cache_home.display(), "the cache of fetches is broken and made anew");
            remove(cache_home)
        }
        false => Ok(()),
    }
}

/// Whether a file is no database, or is shorter than it says of itself.
fn is_cut_or_foreign(file: &Path) -> io::Result<bool> {
    let mut header = [0; HEADER_BYTES];
    let mut open = File::open(file)?;
    let length = open.metadata()?.len();
    // An empty file is a database without tables.
    if length == 0 {
        return Ok(false);
    }
    if length < HEADER_BYTES as u64 {
        return Ok(true);
    }
    open.read_exact(&mut header)?;
    if !header.starts_with(MAGIC) {
        return Ok(true);
    }
    // Somebody may be writing to it, or SQLite makes it whole from there.
    let journal = |end: &str| PathBuf::from(format!("{}{end}", file.display()));
    let has_more = |end: &&str| journal(end).metadata().is_ok_and(|file| file.len() > 0);
    if JOURNALS.iter().any(has_more) {
        return Ok(false);
    }
    let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| header[at + n]));
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 1 << 16,
        bytes => u64::from(bytes),
    };
    // Of a database that an old program wrote last, the number of pages says nothing.
    let is_counted = number(24) == number(92);
    Ok(is_counted && length < page * u64::from(number(28)))
}

/// Whether an error of Nix is about a broken cache.
pub(crate) fn is_damaged(said: &str) -> bool {
    said.contains(PREFIX) && DAMAGED.iter().any(|words| said.contains(words))
}

/// Removes all of it, with what SQLite keeps beside it. A program that still has it open goes on with
/// its own.
pub(crate) fn remove(cache_home: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(cache_home)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            match std::fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_cache_of_fetches_is_one() {
        let file = "(in '/c/fetcher-cache-v3.sqlite')";
        for (said, expected) in [
            (format!("error: file is not a database {file}"), true),
            (format!("error: database disk image is malformed {file}"), true),
            (format!("error: no such table: Cache {file}"), true),
            (format!("error: SQLite database is busy {file}"), false),
            ("error: file is not a database (in '/nix/var/nix/db/db.sqlite')".to_owned(), false),
        ] {
            assert_eq!(is_damaged(&said), expected, "{said}");
        }
    }

    #[test]
    fn what_is_whole_stays_and_what_is_not_goes() {
        let mut whole = vec![0; 4 * 4096];
        whole[..16].copy_from_slice(MAGIC);
        whole[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        whole[24..28].copy_from_slice(&7_u32.to_be_bytes());
        whole[28..32].copy_from_slice(&4_u32.to_be_bytes());
        whole[92..96].copy_from_slice(&7_u32.to_be_bytes());
        let cut = whole[..3 * 4096].to_vec();
        let mut uncounted = cut.clone();
        uncounted[92] = 1;
        for (bytes, journal, stays) in [
            (whole, "", true),
            (Vec::new(), "", true),
            (cut.clone(), "", false),
            (cut, "more", true),
            (uncounted, "", true),
            (b"short".to_vec(), "", false),
            (b"no database at all".repeat(100), "more", false),
        ] {
            let home = tempfile::tempdir().expect("a folder");
            let file = home.path().join("fetcher-cache-v3.sqlite");
            std::fs::write(&file, &bytes).expect("written");
            std::fs::write(format!("{}-journal", file.display()), journal).expect("written");
            remove_damaged_cache(home.path()).expect("looked at");
            assert_eq!(file.exists(), stays, "{} bytes, {journal}", bytes.len());
        }
        remove_damaged_cache(Path::new("/does/not/exist")).expect("nothing is there");
    }

    #[test]
    fn nothing_else_is_removed() {
        let home = tempfile::tempdir().expect("a folder");
        let names =
            ["fetcher-cache-v3.sqlite", "fetcher-cache-v3.sqlite-wal", "eval-cache-v1", "locks"];
        for name in names {
            std::fs::write(home.path().join(name), "").expect("written");
        }
        remove(home.path()).expect("removed");
        let left = names.map(|name| home.path().join(name).exists());
        assert_eq!(left, [false, false, true, true]);
        assert!(remove(&home.path().join("nothing")).is_err());
    }
}
