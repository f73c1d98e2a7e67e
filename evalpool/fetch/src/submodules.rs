//! Git submodules that a source names but does not hold.

use std::path::Path;

/// Most folders that are remembered.
const FOLDERS_MAX: usize = 256;
/// Largest `.gitmodules` that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The folders that `.gitmodules` of a tree names and that hold nothing.
pub(crate) fn missing_in(tree: &Path) -> Vec<String> {
    let file = tree.join(".gitmodules");
    let is_small =
        file.symlink_metadata().is_ok_and(|file| file.is_file() && file.len() <= FILE_BYTES_MAX);
    if !is_small {
        return Vec::new();
    }
    let text = std::fs::read(&file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let folders = text.lines().filter_map(|line| {
        let (name, folder) = line.split_once('=')?;
        let is_folder = name.trim() == "path" && !folder.trim().is_empty();
        is_folder.then(|| folder.trim().trim_matches('"').trim_matches('/').to_owned())
    });
    let is_plain = |folder: &String| !folder.split('/').any(|part| part == "..");
    let is_empty = |folder: &String| {
        std::fs::read_dir(tree.join(folder)).map_or(true, |mut entries| entries.next().is_none())
    };
    folders.filter(is_plain).filter(is_empty).take(FOLDERS_MAX).collect()
}

pub(crate) fn hint_on(submodules: &[String], error: &str) -> Option<String> {
    let is_missing = error.contains("does not exist") || error.contains("No such file");
    let named = |folder: &&String| {
        let below = error.match_indices(folder.as_str()).any(|(at, _)| {
            error[..at].ends_with('/') && error[at + folder.len()..].starts_with(['/', '\'', '"'])
        });
        is_missing && below
    };
    submodules.iter().find(named).map(|folder| {
        format!(
            "'{folder}' is a git submodule, and submodules are not fetched unless the reference \
             asks for them: add submodules=1 to a git+https:, git+ssh: or git+file: reference"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_a_submodule_get_the_hint() {
        let tree = tempfile::tempdir().expect("a folder");
        let modules = "[submodule \"x\"]\n\tpath = vendor/sub\n\turl = ../x\n[submodule \"y\"]\n\tpath = there\n";
        std::fs::write(tree.path().join(".gitmodules"), modules).expect("written");
        std::fs::create_dir_all(tree.path().join("vendor/sub")).expect("made");
        std::fs::create_dir_all(tree.path().join("there/x")).expect("made");
        let missing = missing_in(tree.path());
        assert_eq!(missing, ["vendor/sub"]);
        let hint = |error: &str| hint_on(&missing, error);
        let error = "error: path '/nix/store/x-source/vendor/sub/file.txt' does not exist";
        assert!(hint(error).expect("a hint").contains("submodules=1"));
        for other in [
            "error: path '/nix/store/x-source/vendor/subject' does not exist",
            "error: path '/nix/store/x-source/untracked.txt' does not exist",
            "error: vendor/sub is odd",
        ] {
            assert_eq!(hint(other), None, "{other}");
        }
        assert!(missing_in(Path::new("/does/not/exist")).is_empty());
    }
}
