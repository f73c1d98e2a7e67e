//! A NAR on its way down: decompressed and verified while it is read, in bounded memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use futures_util::{Stream, TryStreamExt as _};
use gradient_daemon::NarInfo;
use gradient_daemon::nar::Digest;
use tokio::io::{AsyncRead, ReadBuf};
use zstd::stream::raw::{Decoder, Operation as _};

use super::error::CacheError;

/// The NAR is not the one that its narinfo describes. Inside of an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotThatNar(pub(crate) String);

fn not_that_nar(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, NotThatNar(reason.into()))
}

type Chunks = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send + Sync>>;

/// Reads the NAR. The end is only reached if size and hash are right; else reading fails.
pub struct NarReader {
    chunks: Chunks,
    chunk: Bytes,
    /// None if it is not compressed.
    decoder: Option<Decoder<'static>>,
    digest: Option<Digest>,
    nar_hash: [u8; 32],
    nar_size: u64,
}

impl NarReader {
    pub(super) fn new(
        chunks: impl Stream<Item = reqwest::Result<Bytes>> + Send + Sync + 'static,
        narinfo: &NarInfo,
    ) -> Result<Self, CacheError> {
        let decoder = match narinfo.compression.as_str() {
            "none" => None,
            _ => Some(Decoder::new().map_err(|source| CacheError::Interrupted {
                path: narinfo.path.clone(),
                source,
            })?),
        };
        Ok(NarReader {
            chunks: Box::pin(chunks.map_err(io::Error::other)),
            chunk: Bytes::new(),
            decoder,
            digest: Some(Digest::default()),
            nar_hash: narinfo.info.nar_hash,
            nar_size: narinfo.info.nar_size,
        })
    }

    /// Decompresses into `to`; bytes written.
    fn decompress(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(decoder) = &mut self.decoder else {
            let taken = self.chunk.len().min(to.len());
            self.chunk.copy_to_slice(&mut to[..taken]);
            return Ok(taken);
        };
        let status = decoder
            .run_on_buffers(&self.chunk, to)
            .map_err(|error| not_that_nar(format!("not compressed as it should be: {error}")))?;
        self.chunk.advance(status.bytes_read);
        Ok(status.bytes_written)
    }

    fn measure(&mut self, bytes: &[u8]) -> io::Result<()> {
        let digest = self.digest.get_or_insert_default();
        digest.update(bytes);
        match digest.size() > self.nar_size {
            true => Err(not_that_nar("it is larger than its narinfo says")),
            false => Ok(()),
        }
    }

    /// The last byte has come.
    fn verify(&mut self) -> io::Result<()> {
        let Some(digest) = self.digest.take() else {
            return Ok(()); // verified before
        };
        let (hash, size) = digest.finish();
        if size != self.nar_size {
            // Also when a proxy cut it short; the next attempt shows.
            let reason = format!("it has {size} bytes, not {}", self.nar_size);
            return Err(not_that_nar(reason));
        }
        match hash == self.nar_hash {
            true => Ok(()),
            false => Err(not_that_nar("its hash is not the one of its narinfo")),
        }
    }
}

impl AsyncRead for NarReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            let before = this.chunk.len();
            let space = buffer.initialize_unfilled();
            let written = this.decompress(space)?;
            if written > 0 {
                this.measure(&space[..written])?;
                buffer.advance(written);
                return Poll::Ready(Ok(()));
            }
            if !this.chunk.is_empty() && this.chunk.len() < before {
                continue;
            }
            match ready!(this.chunks.as_mut().poll_next(context)) {
                Some(Ok(chunk)) => this.chunk = chunk,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(this.verify()),
            }
        }
    }
}

impl std::fmt::Debug for NarReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NarReader").field("nar_size", &self.nar_size).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_util::stream;
    use gradient_daemon::PathInfo;
    use gradient_domain::StorePath;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn narinfo(contents: &[u8], compression: &str) -> NarInfo {
        let mut digest = Digest::default();
        digest.update(contents);
        let (nar_hash, nar_size) = digest.finish();
        NarInfo {
            path: StorePath::from_base_name("0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-a").expect("valid"),
            url: String::new(),
            compression: compression.into(),
            file_hash: [0; 32],
            file_size: 0,
            info: PathInfo {
                deriver: None,
                nar_hash,
                nar_size,
                references: BTreeSet::new(),
                signatures: BTreeSet::new(),
                content_address: String::new(),
                is_ultimate: false,
            },
        }
    }

    async fn read(bytes: &[u8], chunk: usize, narinfo: &NarInfo) -> Result<Vec<u8>, CacheError> {
        let chunks: Vec<_> = bytes.chunks(chunk).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let mut all = Vec::new();
        let mut reader = NarReader::new(stream::iter(chunks), narinfo)?;
        match reader.read_to_end(&mut all).await {
            Ok(_) => Ok(all),
            Err(error) => Err(CacheError::from_reading(&narinfo.path, error)),
        }
    }

    #[tokio::test]
    async fn what_is_read_to_its_end_is_verified() {
        let contents: Vec<u8> = (0..300_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let compressed = zstd::encode_all(contents.as_slice(), 3).expect("compresses");
        for chunk in [1 << 20, 1000, 13] {
            let info = narinfo(&contents, "zstd");
            let all = read(&compressed, chunk, &info).await.expect("verified");
            assert!(all == contents);
        }
        let all = read(&contents, 999, &narinfo(&contents, "none")).await;
        assert!(all.expect("verified") == contents);
    }

    #[tokio::test]
    async fn anything_else_is_corrupt() {
        let contents = vec![7; 100_000];
        let compress = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("compresses");
        let mut other = contents.clone();
        other[99] = 8;
        let whole = compress(&contents);
        let rows = [
            (compress(&other), "hash"),
            (compress(&contents[1..]), "bytes"),
            (compress(&[contents.as_slice(), b"x"].concat()), "larger"),
            (whole[..whole.len() - 3].to_vec(), "bytes"),
            (contents.clone(), "compressed"),
            (Vec::new(), "bytes"),
        ];
        for (bytes, words) in rows {
            match read(&bytes, 1000, &narinfo(&contents, "zstd")).await {
                Err(CacheError::Corrupt { reason, .. }) => {
                    assert!(reason.contains(words), "{reason} for {words}");
                }
                other => panic!("{other:?} for {words}"),
            }
        }
    }
}
