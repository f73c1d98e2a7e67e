//! The programs that the tests start. One that is missing fails the test; nothing is skipped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the set-up installs, unless `GRADIENT_NIX_PREFIX` says otherwise.
const PREFIX: &str = "/opt/gradient-nix";

/// A program of the product, from the build that the test itself belongs to.
///
/// # Panics
/// If it is not there, with what to do.
#[must_use]
pub fn own(name: &str) -> PathBuf {
    let named = std::env::var_os("GRADIENT_SUITE_BIN_DIR").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| {
        // <target>/<profile>/deps/<test>-<hash>, or beside it for a program
        let test = std::env::current_exe().expect("the test knows its own program");
        let folder = test.parent().expect("a program lies in a folder");
        let is_test = folder.ends_with("deps");
        folder.parent().filter(|_| is_test).unwrap_or(folder).to_owned()
    });
    let program = folder.join(name);
    assert!(
        program.is_file(),
        "{} is missing: run `cargo build -p gradient-cli -p gradient-server -p gradient-worker` first",
        program.display()
    );
    program
}

/// The folder of the set-up.
#[must_use]
pub fn prefix() -> PathBuf {
    std::env::var_os("GRADIENT_NIX_PREFIX").map_or_else(|| PREFIX.into(), PathBuf::from)
}

/// The search path with the set-up's programs in front.
#[must_use]
pub fn search_path() -> OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(prefix().join("bin")).chain(std::env::split_paths(&rest));
    std::env::join_paths(folders).expect("folders without a colon")
}

/// A program of the set-up or the search path.
///
/// # Panics
/// If it is not there, with what to do.
#[must_use]
pub fn installed(name: &str) -> PathBuf {
    let found =
        std::env::split_paths(&search_path()).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: run `make setup`"))
}

/// PostgreSQL's `psql`, of Debian's newest version or of the search path.
///
/// # Panics
/// If it is not there, with what to do.
#[must_use]
pub fn psql() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| version(path));
    let debian = newest.map(|path| path.join("bin/psql")).filter(|path| path.is_file());
    debian.unwrap_or_else(|| installed("psql"))
}

/// A flake of the repository's `examples/`.
#[must_use]
pub fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    format!("path:{}", std::fs::canonicalize(folder).expect("the example is there").display())
}
