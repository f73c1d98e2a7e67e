//! NARs in and out of a store.

use std::collections::BTreeSet;
use std::io;

use bytes::Bytes;
use gradient_domain::{Derivation, StorePath, nix_base32};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connection::{Connection, until_reply};
use crate::error::{Error, during};
use crate::nar::{Ignore, Parser, pack_text};
use crate::path_info::PathInfo;
use crate::store_path_of;
use crate::wire::{Encoder, WireError};

const NAR_FROM_PATH: u64 = 38;
const ADD_TO_STORE_NAR: u64 = 39;

/// Bytes of one frame of an upload.
const FRAME_BYTES: usize = 64 << 10;

/// Why feeding a framed stream ended early.
enum FeedError {
    Source(io::Error),
    Wire(io::Error),
}

/// Sends all of `source` in frames and the empty frame that ends them.
async fn send_frames(
    mut source: impl AsyncRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<(), FeedError> {
    let mut frame = vec![0; 8 + FRAME_BYTES];
    loop {
        let mut filled = 0;
        while filled < FRAME_BYTES {
            match source.read(&mut frame[8 + filled..]).await {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) => return Err(FeedError::Source(error)),
            }
        }
        frame[..8].copy_from_slice(&(filled as u64).to_le_bytes());
        to.write_all(&frame[..8 + filled]).await.map_err(FeedError::Wire)?;
        if filled == 0 {
            return to.flush().await.map_err(FeedError::Wire);
        }
    }
}

impl Connection {
    /// Adds a path to the store from its NAR. Everything it refers to must be valid, and the
    /// daemon must trust a signature, the content address or us.
    ///
    /// The source is read to its end; when it fails there, nothing is registered. Errors leave the
    /// connection interrupted.
    ///
    /// # Errors
    /// If the source fails, the daemon refuses (wrong hash, missing reference, no trusted
    /// signature) or the connection breaks.
    pub async fn add_to_store_nar(
        &mut self,
        path: &StorePath,
        info: &PathInfo,
        source: impl AsyncRead + Unpin,
    ) -> Result<(), Error> {
        const OPERATION: &str = "add to store";
        let lost = during(OPERATION);
        self.interrupt(OPERATION)?;
        let request = info
            .encode(Encoder::operation(ADD_TO_STORE_NAR).path(path))
            .flag(false) // repair
            .flag(false); // do not check signatures
        self.send(&request.finish()).await.map_err(&lost)?;
        match self.feed(OPERATION, source).await? {
            Some(message) => Err(Error::Refused { operation: OPERATION, message }),
            None => {
                self.end();
                Ok(())
            }
        }
    }

    /// Writes a derivation to the store; its path.
    ///
    /// # Errors
    /// If something that it refers to is not valid, its name is not one that Nix allows, the daemon
    /// refuses or the connection breaks.
    pub async fn add_derivation(
        &mut self,
        name: &str,
        derivation: &Derivation,
    ) -> Result<StorePath, Error> {
        const OPERATION: &str = "add derivation";
        let text = derivation.to_bytes();
        let hash: [u8; 32] = Sha256::digest(&text).into();
        let inputs = derivation.input_drvs.keys();
        let references = derivation.input_srcs.iter().chain(inputs).cloned().collect();
        let path = store_path_of::text(&hash, &references, &format!("{name}.drv"))
            .map_err(|error| during(OPERATION)(WireError::invalid("name", error.to_string())))?;
        if self.is_valid_path(&path).await? {
            return Ok(path);
        }
        let mut archive = Vec::new();
        let source = |source| Error::Source { operation: OPERATION, source };
        pack_text(&text, &mut archive).map_err(source)?;
        let info = PathInfo {
            deriver: None,
            nar_hash: Sha256::digest(&archive).into(),
            nar_size: archive.len() as u64,
            references,
            signatures: BTreeSet::new(),
            content_address: format!("text:sha256:{}", nix_base32::encode(&hash)),
            is_ultimate: false,
        };
        self.add_to_store_nar(&path, &info, archive.as_slice()).await?;
        Ok(path)
    }

    /// Sends the source in frames while it listens for the answer: the text of a refusal or none.
    /// The daemon may refuse before it has read everything; it is not fed on then.
    async fn feed(
        &mut self,
        operation: &'static str,
        source: impl AsyncRead + Unpin,
    ) -> Result<Option<String>, Error> {
        let lost = during(operation);
        let mut ignore = |_| {};
        let feed = send_frames(source, &mut self.to);
        let answer = until_reply(&mut self.from, &mut ignore);
        tokio::pin!(feed, answer);
        let fed = tokio::select! {
            biased;
            answer = &mut answer => {
                let early = || WireError::invalid("reply", "it came before the end of the archive");
                return answer.map_err(&lost)?.map(Some).ok_or_else(|| lost(early()));
            }
            fed = &mut feed => fed,
        };
        match fed {
            Ok(()) => answer.await.map_err(lost),
            Err(FeedError::Source(source)) => Err(Error::Source { operation, source }),
            Err(FeedError::Wire(error)) => Err(lost(error.into())),
        }
    }

    /// Starts to read the NAR of a path that is known to be valid. The daemon starts before it
    /// looks, so a path that is not there only shows as an archive that cannot be read.
    ///
    /// # Errors
    /// If the daemon refuses or the connection breaks.
    pub async fn nar_from_path(&mut self, path: &StorePath) -> Result<NarStream<'_>, Error> {
        let request = Encoder::operation(NAR_FROM_PATH).path(path);
        self.begin(NarStream::OPERATION, request, &mut |_| {}).await?;
        Ok(NarStream { connection: self, parser: Parser::default() })
    }
}

/// A NAR that comes over a connection. It ends where the archive ends, which only a parser knows.
/// Dropped before its end it leaves the connection interrupted.
#[derive(Debug)]
pub struct NarStream<'a> {
    connection: &'a mut Connection,
    parser: Parser,
}

impl NarStream<'_> {
    const OPERATION: &'static str = "nar from path";

    /// The next bytes, at most 64 KiB; `None` after the last.
    ///
    /// # Errors
    /// If the connection breaks or what comes is no NAR.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        use tokio::io::AsyncBufReadExt as _;
        let lost = during(Self::OPERATION);
        if self.parser.is_done() {
            return Ok(None);
        }
        let from = &mut self.connection.from.0;
        let buffer = from.fill_buf().await.map_err(|e| lost(e.into()))?;
        if buffer.is_empty() {
            return Err(lost(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
        }
        let consumed = self
            .parser
            .feed(buffer, &mut Ignore)
            .map_err(|fault| lost(WireError::invalid("archive", fault.to_string())))?;
        let chunk = Bytes::copy_from_slice(&buffer[..consumed]);
        from.consume(consumed);
        if self.parser.is_done() {
            self.connection.end();
        }
        Ok(Some(chunk))
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// As [`NarStream::next`], or if it is larger than `limit` bytes.
    pub async fn read_all(mut self, limit: u64) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        while let Some(chunk) = self.next().await? {
            all.extend_from_slice(&chunk);
            if all.len() as u64 > limit {
                return Err(during(Self::OPERATION)(WireError::TooLong {
                    what: "archive",
                    length: all.len() as u64,
                    limit,
                }));
            }
        }
        Ok(all)
    }
}
