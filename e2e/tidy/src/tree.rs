//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// A text file with its path below the root, written with `/`.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Such as `events/log/src/lib.rs`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The root of the repository.
///
/// # Panics
/// If this crate is not two folders below it.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("e2e/tidy is two folders below the root").to_owned()
}

/// Paths of all files below the root, sorted. Hidden folders but `.ci`, `.cargo` and `.config` are
/// left out, and so is what cargo makes.
#[must_use]
pub fn paths() -> Vec<String> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        // A folder may vanish while others work beside us.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let is_hidden =
                name.starts_with('.') && ![".ci", ".cargo", ".config"].contains(&name.as_ref());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && (is_hidden || SKIPPED.contains(&name.as_ref())) => {}
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => found.push(below(&root, &path)),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// All text files: those that are UTF-8.
#[must_use]
pub fn texts() -> Vec<TextFile> {
    let read = |path: String| {
        let text = fs::read_to_string(root().join(&path)).ok()?;
        Some(TextFile { path, text })
    };
    paths().into_iter().filter_map(read).collect()
}

/// All Rust files.
#[must_use]
pub fn rust_files() -> Vec<TextFile> {
    texts().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

/// The text of one file.
///
/// # Panics
/// If it is not there.
#[must_use]
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{path} cannot be read: {error}"))
}

fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}
