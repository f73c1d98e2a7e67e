//! The source of a flake on this machine as a store path, made without Nix (ADR 15).

use std::collections::BTreeSet;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use gradient_daemon::{nar, store_path_of};
use gradient_domain::flake::{HINT, check_reference};
use gradient_domain::{StorePath, nix_base32};
use sha2::{Digest, Sha256};

use crate::exit::Failure;

/// Largest source tree, in bytes of its NAR.
const NAR_BYTES_MAX: u64 = 1 << 30;
/// Level of compression: sources are small and sent once.
const ZSTD_LEVEL: i32 = 6;
/// The name that Nix gives to sources.
const NAME: &str = "source";

/// What the user asked for, as far as it is here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A reference that workers fetch.
    Remote(String),
    /// A folder on this machine.
    Local(Tree),
    /// A commit of a repository on this machine: `git+file:...`.
    Repository(String),
}

/// A folder that is packed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    root: PathBuf,
    /// Folder of the flake below the root, empty for the root itself.
    pub(crate) subdir: String,
    /// Only these files, relative to the root; `None` takes everything.
    files: Option<BTreeSet<PathBuf>>,
}

/// A packed tree.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) path: StorePath,
    /// SHA-256 of the NAR as Nix writes it in references, `sha256-<base 64>`.
    pub(crate) nar_hash_sri: String,
    /// The same, `sha256:<base 32>`.
    pub(crate) nar_hash: String,
    pub(crate) nar_size: u64,
    /// The compressed NAR, at its start.
    pub(crate) file: std::fs::File,
    pub(crate) file_size: u64,
}

/// Tells a folder of this machine from a reference that workers fetch.
///
/// `path:DIR` takes the whole folder. A bare `DIR` inside a git checkout takes the files that git
/// tracks, as Nix does.
pub(crate) fn target(flake: &str) -> Result<Target, Failure> {
    if let Some(folder) = flake.strip_prefix("path:") {
        let folder = existing(folder.split('?').next().unwrap_or(folder))?;
        check_flake(&folder)?;
        return Ok(Target::Local(Tree { root: folder, subdir: String::new(), files: None }));
    }
    if flake.starts_with("git+file:") {
        return Ok(Target::Repository(flake.to_owned()));
    }
    let is_folder = flake.starts_with('.') || flake.starts_with('/') || flake.starts_with('~');
    if !is_folder {
        check_reference(flake).map_err(|error| Failure::usage(error).hint(HINT))?;
        return Ok(Target::Remote(flake.to_owned()));
    }
    let folder = existing(flake)?;
    check_flake(&folder)?;
    let top = folder.ancestors().find(|ancestor| ancestor.join(".git").exists());
    match top {
        None => Ok(Target::Local(Tree { root: folder, subdir: String::new(), files: None })),
        Some(top) => {
            let subdir =
                folder.strip_prefix(top).unwrap_or(Path::new("")).to_string_lossy().into_owned();
            let files = Some(tracked(top)?);
            Ok(Target::Local(Tree { root: top.to_owned(), subdir, files }))
        }
    }
}

fn existing(folder: &str) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(folder).map_err(|error| {
        Failure::usage(format!("there is no flake at '{folder}': {error}"))
            .hint("name a folder that holds a flake.nix")
    })
}

fn check_flake(folder: &Path) -> Result<(), Failure> {
    if folder.join("flake.nix").is_file() {
        return Ok(());
    }
    let error = format!("there is no flake.nix in '{}'", folder.display());
    Err(Failure::usage(error).hint("name a folder that holds a flake.nix"))
}

fn tracked(top: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let output =
        Command::new("git").arg("-C").arg(top).args(["ls-files", "-z", "--cached"]).output();
    let output =
        output.context("git cannot be started; use path:DIR to take the folder as it is")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::usage(format!(
            "git does not list the files of '{}': {said}",
            top.display()
        ))
        .hint("use path:DIR to take the folder as it is"));
    }
    use std::os::unix::ffi::OsStrExt;
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let files = names.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
    Ok(files.filter(|file| top.join(file).symlink_metadata().is_ok()).collect())
}

impl Tree {
    /// All of a folder, with the flake in a folder below it.
    pub(crate) fn whole(root: PathBuf, subdir: String) -> Self {
        Self { root, subdir, files: None }
    }

    /// Refuses a tree without a flake.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check_flake(&self.root.join(&self.subdir))
    }

    /// Packs the tree; blocks.
    pub(crate) fn pack(&self) -> Result<Packed, Failure> {
        let file = tempfile::tempfile().context("no temporary file can be made")?;
        let encoder =
            zstd::stream::write::Encoder::new(file, ZSTD_LEVEL).context("cannot compress")?;
        let mut sink = Sink { digest: Sha256::new(), size: 0, encoder };
        let kept = self.files.as_ref().map(with_folders);
        let keep = |path: &Path| match &kept {
            None => true,
            Some(kept) => path.strip_prefix(&self.root).is_ok_and(|below| kept.contains(below)),
        };
        nar::pack(&self.root, &keep, &mut sink).map_err(|error| {
            Failure::usage(format!("'{}' cannot be packed: {error}", self.root.display()))
        })?;
        let mut file = sink.encoder.finish().context("cannot compress")?;
        let file_size = file.stream_position().context("cannot write a temporary file")?;
        file.rewind().context("cannot read a temporary file")?;
        let hash: [u8; 32] = sink.digest.finalize().into();
        let path = store_path_of::source(&hash, &BTreeSet::new(), NAME);
        Ok(Packed {
            path: path.context("the source has no store path")?,
            nar_hash_sri: format!("sha256-{}", base64(&hash)),
            nar_hash: format!("sha256:{}", nix_base32::encode(&hash)),
            nar_size: sink.size,
            file,
            file_size,
        })
    }
}

/// The files and every folder above them.
fn with_folders(files: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    files.iter().flat_map(|file| file.ancestors().map(Path::to_owned)).collect()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Hashes, counts and compresses what is written.
struct Sink {
    digest: Sha256,
    size: u64,
    encoder: zstd::stream::write::Encoder<'static, std::fs::File>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.size += bytes.len() as u64;
        if self.size > NAR_BYTES_MAX {
            return Err(std::io::Error::other(format!(
                "the tree is larger than {} MiB; is a build folder in it?",
                NAR_BYTES_MAX >> 20
            )));
        }
        self.digest.update(bytes);
        self.encoder.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.encoder.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flake_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("flake.nix"), "{ outputs = _: { }; }").expect("written");
        dir
    }

    #[test]
    fn a_tree_has_one_store_path_wherever_it_lies() {
        let (one, two) = (flake_dir(), flake_dir());
        let pack = |dir: &tempfile::TempDir| {
            let Ok(Target::Local(tree)) = target(&format!("path:{}", dir.path().display())) else {
                panic!("a folder of this machine")
            };
            tree.pack().expect("packed")
        };
        let (packed, again) = (pack(&one), pack(&two));
        assert_eq!(packed.path, again.path);
        assert_eq!(packed.path.name(), "source");
        std::fs::write(two.path().join("more"), "").expect("written");
        assert_ne!(pack(&two).path, packed.path);
    }

    #[test]
    fn a_git_checkout_gives_its_tracked_files_only() {
        let dir = flake_dir();
        let git = |arguments: &[&str]| {
            let done = Command::new("git")
                .arg("-C")
                .arg(dir.path())
                .args(arguments)
                .output()
                .expect("git");
            assert!(done.status.success(), "{done:?}");
        };
        git(&["init", "-q"]);
        std::fs::create_dir(dir.path().join("sub")).expect("made");
        std::fs::write(dir.path().join("sub/flake.nix"), "{ outputs = _: { }; }").expect("written");
        std::fs::write(dir.path().join("untracked"), "x").expect("written");
        git(&["add", "flake.nix", "sub/flake.nix"]);
        let Ok(Target::Local(tree)) = target(&dir.path().join("sub").to_string_lossy()) else {
            panic!("a folder of this machine")
        };
        assert_eq!(tree.subdir, "sub");
        let before = tree.pack().expect("packed").path;
        std::fs::remove_file(dir.path().join("untracked")).expect("removed");
        assert_eq!(tree.pack().expect("packed").path, before, "an untracked file is not taken");
    }

    #[test]
    fn references_and_mistakes_are_told_apart() {
        let remote = "github:owner/name";
        assert_eq!(target(remote).ok(), Some(Target::Remote(remote.into())));
        let repository = "git+file:///x?rev=y";
        assert_eq!(target(repository).ok(), Some(Target::Repository(repository.into())));
        for (flake, text) in [
            ("path:/does/not/exist", "no flake at"),
            ("./does-not-exist", "no flake at"),
            ("path:/tmp", "no flake.nix"),
            ("nixpkgs", "no flake reference"),
            ("git+ext::sh", "no flake reference"),
            ("file:///tmp/x.tar", "no flake reference"),
        ] {
            let refused = target(flake).expect_err(flake).to_string();
            assert!(refused.contains(text), "{flake}: {refused}");
        }
    }
}
