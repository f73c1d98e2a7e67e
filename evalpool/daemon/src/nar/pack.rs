//! The writer: a file tree as a NAR, the same bytes for the same tree.

use std::fs;
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWrite;
use tokio_util::io::SyncIoBridge;

use super::parse::DEPTH_MAX;
use crate::wire::padding;

/// Bytes of a file that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Writes the tree at `root` as a NAR. Of every directory only the entries that `keep` accepts are
/// taken (it is given their full paths); the root is always taken. Symlinks are not followed.
///
/// Blocks; see [`pack_async`].
///
/// # Errors
/// If the tree cannot be read, holds something other than files, directories and symlinks, changes
/// its size meanwhile, is more than 1024 directories deep, or the writer fails.
pub fn pack(root: &Path, keep: &dyn Fn(&Path) -> bool, to: &mut impl Write) -> io::Result<()> {
    string(to, b"nix-archive-1")?;
    node(root, keep, to, 0)
}

/// [`pack`] on the pool of blocking threads, into an asynchronous writer, which is shut down at the
/// end. Bounded memory: the writer sets the pace.
///
/// # Errors
/// As [`pack`].
pub async fn pack_async(
    root: PathBuf,
    keep: impl Fn(&Path) -> bool + Send + 'static,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> io::Result<()> {
    let mut to = io::BufWriter::with_capacity(CHUNK_BYTES, SyncIoBridge::new(to));
    let task = tokio::task::spawn_blocking(move || {
        pack(&root, &keep, &mut to)?;
        to.into_inner().map_err(io::IntoInnerError::into_error)?.shutdown()
    });
    task.await.map_err(io::Error::other)?
}

/// The NAR of one plain file.
///
/// # Errors
/// If the writer fails.
pub fn pack_text(text: &[u8], to: &mut impl Write) -> io::Result<()> {
    string(to, b"nix-archive-1")?;
    strings(to, &[b"(", b"type", b"regular", b"contents", text, b")"])
}

fn string(to: &mut impl Write, text: &[u8]) -> io::Result<()> {
    let length = text.len() as u64;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(text)?;
    to.write_all(&[0; 8][..padding(length) as usize])
}

fn strings(to: &mut impl Write, texts: &[&[u8]]) -> io::Result<()> {
    texts.iter().try_for_each(|text| string(to, text))
}

fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn node(
    path: &Path,
    keep: &dyn Fn(&Path) -> bool,
    to: &mut impl Write,
    depth: usize,
) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path).map_err(at(path))?;
    strings(to, &[b"(", b"type"])?;
    if metadata.is_symlink() {
        let target = fs::read_link(path).map_err(at(path))?;
        strings(to, &[b"symlink", b"target", target.as_os_str().as_bytes()])?;
    } else if metadata.is_dir() {
        if depth == DEPTH_MAX {
            return Err(at(path)(io::Error::other("too many directories deep")));
        }
        string(to, b"directory")?;
        directory(path, keep, to, depth)?;
    } else if metadata.is_file() {
        string(to, b"regular")?;
        if metadata.permissions().mode() & 0o100 != 0 {
            strings(to, &[b"executable", b""])?;
        }
        string(to, b"contents")?;
        contents(path, metadata.len(), to)?;
    } else {
        return Err(at(path)(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither file, directory nor symlink",
        )));
    }
    string(to, b")")
}

fn directory(
    path: &Path,
    keep: &dyn Fn(&Path) -> bool,
    to: &mut impl Write,
    depth: usize,
) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(at(path))? {
        let entry = entry.map_err(at(path))?;
        if keep(&entry.path()) {
            names.push(entry.file_name().into_vec());
        }
    }
    names.sort_unstable();
    for name in names {
        strings(to, &[b"entry", b"(", b"name", &name, b"node"])?;
        let child = path.join(std::ffi::OsString::from_vec(name));
        node(&child, keep, to, depth + 1)?;
        string(to, b")")?;
    }
    Ok(())
}

fn contents(path: &Path, size: u64, to: &mut impl Write) -> io::Result<()> {
    let mut file = fs::File::open(path).map_err(at(path))?;
    to.write_all(&size.to_le_bytes())?;
    let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES))];
    let mut left = size;
    while left > 0 {
        let wanted = usize::try_from(left).map_or(chunk.len(), |l| l.min(chunk.len()));
        let read = file.read(&mut chunk[..wanted]).map_err(at(path))?;
        if read == 0 {
            let shrank =
                io::Error::new(io::ErrorKind::UnexpectedEof, "it shrank while it was read");
            return Err(at(path)(shrank));
        }
        to.write_all(&chunk[..read])?;
        left -= read as u64;
    }
    to.write_all(&[0; 8][..padding(size) as usize])
}

/// A writer that only measures: SHA-256 and size of what passes.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    hash: Sha256,
    size: u64,
}

impl Digest {
    /// Takes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
    }

    /// Bytes so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// SHA-256 and size of all that passed.
    #[must_use]
    pub fn finish(self) -> ([u8; 32], u64) {
        (self.hash.finalize().into(), self.size)
    }
}

impl Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
