//! What comes in an upload: decompressed and checked while it comes, never held.

use std::io::{self, Write};

use bytes::Bytes;
use gradient_daemon::nar::{Digest, Fault, Parser, Sink};
use sha2::{Digest as _, Sha256, Sha512};
use zstd::stream::write::Decoder;

use crate::error::Error;
use crate::objects::FileHash;

/// Largest window of a compressed NAR, as a power of two: 32 MiB of memory per upload.
const WINDOW_LOG_MAX: u32 = 25;

/// What an upload turned out to be.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) file_hash: FileHash,
    pub(crate) file_size: u64,
    pub(crate) nar_hash: [u8; 32],
    pub(crate) nar_size: u64,
    /// SHA-256 and SHA-512 of the contents, if it is one plain file.
    pub(crate) file: Option<([u8; 32], [u8; 64])>,
}

/// Receives one compressed NAR.
pub(crate) struct Receiver {
    file: Digest,
    decoder: Decoder<'static, Checker>,
}

impl Receiver {
    /// Expects a NAR of exactly `nar_size` bytes.
    pub(crate) fn new(nar_size: u64) -> Result<Self, Error> {
        let checker = Checker {
            nar: Digest::default(),
            nar_size,
            parser: Parser::default(),
            file: PlainFile::default(),
        };
        let decoder = Decoder::new(checker).and_then(|mut decoder| {
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            Ok(decoder)
        });
        match decoder {
            Ok(decoder) => Ok(Receiver { file: Digest::default(), decoder }),
            Err(error) => Err(Error::storage(&error)),
        }
    }

    /// Bytes received so far, compressed.
    pub(crate) fn file_size(&self) -> u64 {
        self.file.size()
    }

    /// Takes the next bytes, on the pool of blocking threads: few bytes may hold many.
    pub(crate) async fn take(mut self, bytes: Bytes) -> Result<Self, Error> {
        let task = tokio::task::spawn_blocking(move || {
            self.file.update(&bytes);
            match self.decoder.write_all(&bytes) {
                Ok(()) => Ok(self),
                Err(error) => Err(Error::Unverified(format!("not a compressed NAR: {error}"))),
            }
        });
        task.await.unwrap_or_else(|error| Err(Error::Storage(error.to_string())))
    }

    /// All bytes have come.
    pub(crate) fn finish(mut self) -> Result<Received, Error> {
        let flushed = self.decoder.flush();
        flushed.map_err(|error| Error::Unverified(format!("not a compressed NAR: {error}")))?;
        let (file_hash, file_size) = self.file.finish();
        let checker = self.decoder.into_inner();
        let (nar_hash, nar_size) = checker.nar.finish();
        if nar_size != checker.nar_size {
            return Err(Error::Unverified(format!(
                "the NAR ends after {nar_size} bytes; {} were announced",
                checker.nar_size
            )));
        }
        if !checker.parser.is_done() {
            return Err(Error::Unverified("the NAR is not complete".into()));
        }
        Ok(Received {
            file_hash: FileHash(file_hash),
            file_size,
            nar_hash,
            nar_size,
            file: checker.file.finish(),
        })
    }
}

/// Takes the decompressed bytes.
struct Checker {
    nar: Digest,
    nar_size: u64,
    parser: Parser,
    file: PlainFile,
}

impl Write for Checker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.nar.size() + bytes.len() as u64 > self.nar_size {
            return Err(io::Error::other("it is larger than announced"));
        }
        self.nar.update(bytes);
        match self.parser.feed(bytes, &mut self.file) {
            Ok(consumed) if consumed == bytes.len() => Ok(consumed),
            Ok(_) => Err(io::Error::other("something follows its end")),
            Err(Fault::Sink(error)) => Err(error),
            Err(fault @ Fault::Syntax { .. }) => Err(io::Error::other(fault.to_string())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hashes the contents as long as the NAR may be one file that is not executable.
#[derive(Default)]
struct PlainFile {
    hashes: Option<(Sha256, Sha512)>,
    is_other: bool,
}

impl PlainFile {
    fn finish(self) -> Option<([u8; 32], [u8; 64])> {
        let (sha256, sha512) = self.hashes.filter(|_| !self.is_other)?;
        Some((sha256.finalize().into(), sha512.finalize().into()))
    }
}

impl Sink for PlainFile {
    fn directory(&mut self) -> io::Result<()> {
        self.is_other = true;
        Ok(())
    }

    fn symlink(&mut self, _: &[u8]) -> io::Result<()> {
        self.is_other = true;
        Ok(())
    }

    fn regular(&mut self, is_executable: bool, _: u64) -> io::Result<()> {
        self.is_other |= is_executable;
        self.hashes = (!self.is_other).then(Default::default);
        Ok(())
    }

    fn contents(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some((sha256, sha512)) = &mut self.hashes {
            sha256.update(bytes);
            sha512.update(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gradient_daemon::nar::pack;

    use super::*;

    fn nar(contents: &[u8]) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = dir.path().join("f");
        std::fs::write(&file, contents).expect("writes");
        let mut nar = Vec::new();
        pack(&file, &|_| true, &mut nar).expect("packs");
        nar
    }

    async fn receive(nar_size: u64, compressed: Vec<u8>) -> Result<Received, Error> {
        let mut receiver = Receiver::new(nar_size)?;
        for chunk in compressed.chunks(7) {
            receiver = receiver.take(Bytes::copy_from_slice(chunk)).await?;
        }
        receiver.finish()
    }

    fn compress(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 3).expect("compresses")
    }

    #[tokio::test]
    async fn a_whole_nar_is_measured() {
        let nar = nar(b"hello");
        let received = receive(nar.len() as u64, compress(&nar)).await.expect("fine");
        assert_eq!(received.nar_hash, *Sha256::digest(&nar));
        assert_eq!(received.file_size, compress(&nar).len() as u64);
        let (sha256, sha512) = received.file.expect("a plain file");
        assert_eq!(sha256, *Sha256::digest(b"hello"));
        assert_eq!(sha512, *Sha512::digest(b"hello"));
    }

    #[tokio::test]
    async fn bombs_stumps_and_junk_are_refused() {
        let bomb = nar(&vec![0; 50 << 20]);
        let small = nar(b"hello");
        let size = small.len() as u64;
        let longer = [small.as_slice(), b"more"].concat();
        let rows = [
            (size, compress(&bomb), "larger than announced"),
            (size + 4, compress(&longer), "follows its end"),
            (size, compress(&small[..size as usize - 8]), "ends after"),
            (size + 8, compress(&small), "ends after"),
            (size, small.clone(), "not a compressed NAR"),
            (size, Vec::new(), "ends after 0"),
            (5, compress(b"hello"), "not complete"),
            (16, compress(&[b'x'; 16]), "not a compressed NAR"),
        ];
        for (size, compressed, words) in rows {
            let error = receive(size, compressed).await.expect_err(words).to_string();
            assert!(error.contains(words), "{error} for {words}");
        }
    }
}
