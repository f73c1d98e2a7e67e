//! From a NAR to files.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::parse::{Fault, Parser, Sink};

/// Most that an archive may unpack to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub bytes_max: u64,
    /// Files, directories and symlinks together.
    pub nodes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes_max: 8 << 30, nodes_max: 2_000_000 }
    }
}

/// A sink that writes files below a root which must not exist yet.
///
/// Nothing can get outside the root: names are checked by the parser, and everything on the way to
/// an entry was created here as a directory, exclusively, so that it cannot be a symlink.
#[derive(Debug)]
pub struct Unpacker {
    path: PathBuf,
    file: Option<fs::File>,
    left: Limits,
}

impl Unpacker {
    /// Unpacks to `root`; its parent must exist.
    #[must_use]
    pub fn new(root: &Path, limits: Limits) -> Self {
        Unpacker { path: root.to_owned(), file: None, left: limits }
    }

    fn count(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.left.nodes_max.checked_sub(1);
        let bytes = self.left.bytes_max.checked_sub(bytes);
        match (left, bytes) {
            (Some(nodes_max), Some(bytes_max)) => {
                self.left = Limits { bytes_max, nodes_max };
                Ok(())
            }
            (None, _) => Err(io::Error::other("the archive holds too many files")),
            (_, None) => Err(io::Error::other("the archive holds too many bytes")),
        }
    }
}

impl Sink for Unpacker {
    fn directory(&mut self) -> io::Result<()> {
        self.count(0)?;
        fs::create_dir(&self.path)?;
        Ok(())
    }

    fn entry(&mut self, name: &[u8]) -> io::Result<()> {
        self.path.push(OsStr::from_bytes(name));
        Ok(())
    }

    fn regular(&mut self, is_executable: bool, size: u64) -> io::Result<()> {
        self.count(size)?;
        let mode = if is_executable { 0o755 } else { 0o644 };
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create_new(true).mode(mode);
        self.file = Some(options.open(&self.path)?);
        Ok(())
    }

    fn contents(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Err(io::Error::other("contents without a file")),
        }
    }

    fn symlink(&mut self, target: &[u8]) -> io::Result<()> {
        self.count(0)?;
        symlink(OsStr::from_bytes(target), &self.path)
    }

    fn end_node(&mut self) -> io::Result<()> {
        self.file = None;
        self.path.pop();
        Ok(())
    }
}

/// Reads one archive from `from` and unpacks it to `root`, which must not exist yet. Reads not
/// beyond the archive's end by more than a buffer. What was unpacked before an error stays.
///
/// # Errors
/// If it is no canonical archive, is over a limit, ends early, or files cannot be written.
pub fn unpack(mut from: impl Read, root: &Path, limits: Limits) -> Result<(), Fault> {
    let (mut parser, mut unpacker) = (Parser::default(), Unpacker::new(root, limits));
    let mut buffer = vec![0; 64 << 10];
    while !parser.is_done() {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        parser.feed(&buffer[..read], &mut unpacker)?;
    }
    Ok(())
}

/// A sink for an archive that must be a single regular file, kept in memory.
#[derive(Clone, Debug, Default)]
pub struct SingleFile {
    /// Its contents.
    pub contents: Vec<u8>,
    limit: u64,
}

impl SingleFile {
    /// Accepts a file of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        SingleFile { contents: Vec::new(), limit }
    }

    /// The contents of the file that `nar` holds.
    ///
    /// # Errors
    /// If it is no canonical archive of one regular file of at most `limit` bytes.
    pub fn from_nar(nar: &[u8], limit: u64) -> Result<Vec<u8>, Fault> {
        let (mut parser, mut file) = (Parser::default(), SingleFile::new(limit));
        parser.feed(nar, &mut file)?;
        if !parser.is_done() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(file.contents)
    }
}

impl Sink for SingleFile {
    fn directory(&mut self) -> io::Result<()> {
        Err(io::Error::other("a directory where a file was expected"))
    }

    fn symlink(&mut self, _: &[u8]) -> io::Result<()> {
        Err(io::Error::other("a symlink where a file was expected"))
    }

    fn regular(&mut self, _: bool, size: u64) -> io::Result<()> {
        match size <= self.limit {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "a file of {size} bytes, at most {} allowed",
                self.limit
            ))),
        }
    }

    fn contents(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.contents.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::{Digest, pack};
    use super::*;

    fn tree(root: &Path) {
        fs::create_dir_all(root.join("b/empty")).expect("create");
        fs::write(root.join("b/x"), b"x".repeat(200_000)).expect("write");
        fs::write(root.join("B"), b"").expect("write");
        symlink("../../etc", root.join("a link")).expect("link");
        let mut options = fs::OpenOptions::new();
        let run = options.write(true).create_new(true).mode(0o755);
        run.open(root.join("run")).expect("open");
    }

    #[test]
    fn a_tree_survives_packing_and_unpacking() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let root = dir.path().join("tree");
        tree(&root);
        let mut nar = Vec::new();
        pack(&root, &|_| true, &mut nar).expect("packs");
        let copy = dir.path().join("copy");
        unpack(nar.as_slice(), &copy, Limits::default()).expect("unpacks");
        let mut again = Vec::new();
        pack(&copy, &|_| true, &mut again).expect("packs");
        assert!(nar == again);
        let mut filtered = Digest::default();
        pack(&root, &|p| !p.ends_with("b"), &mut filtered).expect("packs");
        assert!(filtered.size() < 2_000);
    }

    #[test]
    fn limits_ends_and_existing_files_stop_it() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let root = dir.path().join("tree");
        tree(&root);
        let mut nar = Vec::new();
        pack(&root, &|_| true, &mut nar).expect("packs");
        let try_with = |name: &str, bytes: &[u8], limits| {
            unpack(bytes, &dir.path().join(name), limits).expect_err(name).to_string()
        };
        let few = |bytes_max, nodes_max| Limits { bytes_max, nodes_max };
        assert!(try_with("bytes", &nar, few(199_999, 100)).contains("too many bytes"));
        assert!(try_with("nodes", &nar, few(1 << 20, 5)).contains("too many files"));
        try_with("end", &nar[..nar.len() - 8], Limits::default());
        try_with("tree", &nar, Limits::default());
    }

    #[test]
    fn single_files_come_in_memory() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = dir.path().join("f");
        fs::write(&file, b"hello").expect("write");
        let mut nar = Vec::new();
        pack(&file, &|_| true, &mut nar).expect("packs");
        assert_eq!(SingleFile::from_nar(&nar, 5).expect("file"), b"hello");
        assert!(SingleFile::from_nar(&nar, 4).is_err());
        assert!(SingleFile::from_nar(&nar[..40], 5).is_err());
        let mut directory = Vec::new();
        pack(dir.path(), &|_| true, &mut directory).expect("packs");
        assert!(SingleFile::from_nar(&directory, 5).is_err());
    }
}
