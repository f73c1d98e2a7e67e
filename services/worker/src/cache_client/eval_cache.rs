//! Evaluation caches, down and up as whole files.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use futures_util::StreamExt as _;
use reqwest::{Body, StatusCode, header};
use serde::Deserialize;

use super::error::CacheError;
use super::{CacheClient, retry, send, transport};

/// Largest evaluation cache that is fetched or given, in bytes.
pub const EVAL_CACHE_BYTES_MAX: u64 = 512 << 20;
/// Level of compression: an evaluation waits for it.
const ZSTD_LEVEL: i32 = 3;
/// Largest window of a compressed cache, as a power of two: 8 MiB of memory.
const WINDOW_LOG_MAX: u32 = 23;

#[derive(Deserialize)]
struct Answer {
    is_new: bool,
}

impl CacheClient {
    /// Fetches the evaluation cache of a fingerprint into a file, decompressed, not looked at; the
    /// size in bytes, `None` if the service has none.
    ///
    /// # Errors
    /// If the service cannot be reached after 4 attempts, what it sends is over
    /// [`EVAL_CACHE_BYTES_MAX`] or not compressed, or the file cannot be written.
    pub async fn fetch_eval_cache(
        &self,
        fingerprint: &str,
        to: &Path,
    ) -> Result<Option<u64>, CacheError> {
        let url = self.url(&format!("eval-cache/{fingerprint}"));
        retry(|| async {
            let answer = match send(&url, self.http().get(&url)).await {
                Ok(answer) => answer,
                Err(CacheError::Refused { status: StatusCode::NOT_FOUND, .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let failed = |error: &io::Error| malformed(&url, error);
            let mut sink = Sink::create(to).map_err(|error| failed(&error))?;
            let mut chunks = answer.bytes_stream();
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk.map_err(|source| transport(&url, source))?;
                sink = blocking(move || sink.take(&chunk)).await.map_err(|error| failed(&error))?;
            }
            let bytes = blocking(move || sink.finish()).await.map_err(|error| failed(&error))?;
            Ok(Some(bytes))
        })
        .await
    }

    /// Gives an evaluation cache that [`compress_eval_cache`] made; whether the service took it,
    /// because it answers more than the one that is there.
    ///
    /// # Errors
    /// If the file cannot be read, or the service refuses it or cannot be reached after 4 attempts.
    pub async fn give_eval_cache(
        &self,
        fingerprint: &str,
        compressed: &Path,
        token: &str,
    ) -> Result<bool, CacheError> {
        let url = self.url(&format!("eval-cache/{fingerprint}"));
        retry(|| async {
            let opened = async {
                let file = tokio::fs::File::open(compressed).await?;
                let length = file.metadata().await?.len();
                Ok((file, length))
            };
            let (file, length) = opened.await.map_err(|error| malformed(&url, &error))?;
            let request = self.shared.http_up.put(&url).bearer_auth(token);
            let request = request.header(header::CONTENT_LENGTH, length).body(Body::from(file));
            let answer = send(&url, request).await?;
            let answer: Answer = answer.json().await.map_err(|source| transport(&url, source))?;
            Ok(answer.is_new)
        })
        .await
    }
}

/// Compresses an evaluation cache for [`CacheClient::give_eval_cache`]. Blocks.
///
/// # Errors
/// If a file cannot be read or written, or has more than [`EVAL_CACHE_BYTES_MAX`].
pub fn compress_eval_cache(file: &Path, compressed: &Path) -> io::Result<()> {
    let mut from = File::open(file)?;
    let size = from.metadata()?.len();
    if size > EVAL_CACHE_BYTES_MAX {
        return Err(too_large());
    }
    let mut encoder = zstd::stream::write::Encoder::new(File::create(compressed)?, ZSTD_LEVEL)?;
    io::copy(&mut from, &mut encoder)?;
    encoder.finish().map(drop)
}

fn too_large() -> io::Error {
    io::Error::other(format!("over the limit of {EVAL_CACHE_BYTES_MAX} bytes"))
}

/// The service sent, or this machine has, something else than it should.
fn malformed(url: &str, error: &io::Error) -> CacheError {
    CacheError::Malformed { what: url.to_owned(), reason: error.to_string() }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
}

/// A file that is written decompressed.
struct Sink {
    decoder: zstd::stream::write::Decoder<'static, Bounded>,
}

struct Bounded {
    file: File,
    written: u64,
}

impl Sink {
    fn create(to: &Path) -> io::Result<Self> {
        let bounded = Bounded { file: File::create(to)?, written: 0 };
        let mut decoder = zstd::stream::write::Decoder::new(bounded)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        Ok(Sink { decoder })
    }

    fn take(mut self, bytes: &[u8]) -> io::Result<Self> {
        self.decoder.write_all(bytes)?;
        Ok(self)
    }

    fn finish(mut self) -> io::Result<u64> {
        self.decoder.flush()?;
        Ok(self.decoder.into_inner().written)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written + bytes.len() as u64 > EVAL_CACHE_BYTES_MAX {
            return Err(too_large());
        }
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_is_bounded() {
        let file = tempfile::tempfile().expect("a file");
        let mut bounded = Bounded { file, written: EVAL_CACHE_BYTES_MAX - 4 };
        bounded.write_all(b"1234").expect("fits");
        let refused = bounded.write_all(b"5").expect_err("too large");
        assert!(refused.to_string().contains("over the limit"), "{refused}");
    }
}
