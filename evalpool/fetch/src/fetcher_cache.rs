//! What Nix remembers of fetching, when it is broken. It is a cache: what is lost is fetched again.

use std::io;
use std::path::Path;

/// How the files of it begin, whatever the version.
const PREFIX: &str = "fetcher-cache-v";
/// What SQLite says of a file that is no database, or a broken one.
const DAMAGED: [&str; 3] =
    ["file is not a database", "database disk image is malformed", "no such table"];

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
