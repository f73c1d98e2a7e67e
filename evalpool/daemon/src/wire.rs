//! The primitives of the protocol: numbers of 64 bits, little endian, and byte strings padded with
//! zeros to 8. Encoding is pure; decoding reads from any source and limits every length.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use gradient_domain::StorePath;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest path or name, in bytes.
pub const PATH_LEN_MAX: u64 = 4 << 10;
/// Longest text of a message, an error or a log line, in bytes.
pub const TEXT_LEN_MAX: u64 = 16 << 20;
/// Most items of a set, a list or a map.
pub const ITEMS_MAX: u64 = 4 << 20;

/// What came over the wire cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream failed or ended.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A length is over its limit.
    #[error("{what} of length {length} is over the limit of {limit}")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// Its length in bytes or items.
        length: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// A value has no meaning here.
    #[error("{what}: {reason}")]
    Invalid {
        /// What it is.
        what: &'static str,
        /// Why it is refused.
        reason: String,
    },
}

impl WireError {
    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        WireError::Invalid { what, reason: reason.into() }
    }
}

/// Bytes of padding after `length` bytes.
#[must_use]
pub const fn padding(length: u64) -> u64 {
    length.wrapping_neg() % 8
}

/// Builds one request.
#[derive(Clone, Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// A request that starts with the number of its operation.
    #[must_use]
    pub fn operation(operation: u64) -> Self {
        Encoder::default().number(operation)
    }

    /// Adds a number.
    #[must_use]
    pub fn number(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Adds a yes or no.
    #[must_use]
    pub fn flag(self, flag: bool) -> Self {
        self.number(u64::from(flag))
    }

    /// Adds a byte string.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let length = bytes.len() as u64;
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(&[0; 8][..padding(length) as usize]);
        self
    }

    /// Adds a store path, in full.
    #[must_use]
    pub fn path(self, path: &StorePath) -> Self {
        self.bytes(path.to_string().as_bytes())
    }

    /// Adds a store path, or the empty string for none.
    #[must_use]
    pub fn optional_path(self, path: Option<&StorePath>) -> Self {
        match path {
            Some(path) => self.path(path),
            None => self.bytes(b""),
        }
    }

    /// Adds a list of byte strings.
    #[must_use]
    pub fn list<T: AsRef<[u8]>>(
        self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    ) -> Self {
        let items = items.into_iter();
        let encoder = self.number(items.len() as u64);
        items.fold(encoder, |encoder, item| encoder.bytes(item.as_ref()))
    }

    /// Adds a set of store paths.
    #[must_use]
    pub fn paths<'a>(
        self,
        paths: impl IntoIterator<Item = &'a StorePath, IntoIter: ExactSizeIterator>,
    ) -> Self {
        let paths = paths.into_iter();
        let encoder = self.number(paths.len() as u64);
        paths.fold(encoder, Encoder::path)
    }

    /// The request's bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads replies.
#[derive(Debug)]
pub struct Decoder<R>(pub R);

impl<R: AsyncRead + Unpin> Decoder<R> {
    /// Reads a number.
    ///
    /// # Errors
    /// If the stream ends or fails.
    pub async fn number(&mut self) -> Result<u64, WireError> {
        Ok(self.0.read_u64_le().await?)
    }

    /// Reads a yes or no.
    ///
    /// # Errors
    /// If the stream ends or fails.
    pub async fn flag(&mut self) -> Result<bool, WireError> {
        Ok(self.number().await? != 0)
    }

    /// Reads a length of at most `limit`.
    ///
    /// # Errors
    /// If it is larger, or the stream ends or fails.
    pub async fn length(&mut self, what: &'static str, limit: u64) -> Result<u64, WireError> {
        let length = self.number().await?;
        if length > limit {
            return Err(WireError::TooLong { what, length, limit });
        }
        Ok(length)
    }

    /// Reads a byte string of at most `limit` bytes.
    ///
    /// # Errors
    /// If it is longer or wrongly padded, or the stream ends or fails.
    pub async fn bytes(&mut self, what: &'static str, limit: u64) -> Result<Vec<u8>, WireError> {
        let length = self.length(what, limit).await?;
        let mut bytes = Vec::new();
        (&mut self.0).take(length).read_to_end(&mut bytes).await?;
        if bytes.len() as u64 != length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut zeros = [0; 8];
        let zeros = &mut zeros[..padding(length) as usize];
        self.0.read_exact(zeros).await?;
        if zeros.iter().any(|zero| *zero != 0) {
            return Err(WireError::invalid(what, "the padding is not zero"));
        }
        Ok(bytes)
    }

    /// Reads a text; bytes that are not UTF-8 are replaced, as they only occur in messages.
    ///
    /// # Errors
    /// As [`Decoder::bytes`].
    pub async fn text(&mut self, what: &'static str, limit: u64) -> Result<String, WireError> {
        let bytes = self.bytes(what, limit).await?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Reads a store path, or none for the empty string.
    ///
    /// # Errors
    /// As [`Decoder::bytes`], or if the text is no store path.
    pub async fn optional_path(&mut self) -> Result<Option<StorePath>, WireError> {
        let text = self.text("store path", PATH_LEN_MAX).await?;
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse() {
            Ok(path) => Ok(Some(path)),
            Err(error) => Err(WireError::invalid("store path", format!("{error}"))),
        }
    }

    /// Reads a store path.
    ///
    /// # Errors
    /// As [`Decoder::optional_path`], or if it is empty.
    pub async fn path(&mut self) -> Result<StorePath, WireError> {
        match self.optional_path().await? {
            Some(path) => Ok(path),
            None => Err(WireError::invalid("store path", "it is empty")),
        }
    }

    /// Reads a set of store paths.
    ///
    /// # Errors
    /// As [`Decoder::path`], or if there are more than [`ITEMS_MAX`].
    pub async fn paths(&mut self) -> Result<BTreeSet<StorePath>, WireError> {
        let mut paths = BTreeSet::new();
        for _ in 0..self.length("set of paths", ITEMS_MAX).await? {
            paths.insert(self.path().await?);
        }
        Ok(paths)
    }

    /// Reads a list of short texts.
    ///
    /// # Errors
    /// As [`Decoder::text`], or if there are more than [`ITEMS_MAX`].
    pub async fn texts(&mut self, what: &'static str) -> Result<Vec<String>, WireError> {
        let mut texts = Vec::new();
        for _ in 0..self.length(what, ITEMS_MAX).await? {
            texts.push(self.text(what, PATH_LEN_MAX).await?);
        }
        Ok(texts)
    }

    /// Reads a map from texts to texts.
    ///
    /// # Errors
    /// As [`Decoder::texts`].
    pub async fn map(&mut self, what: &'static str) -> Result<BTreeMap<String, String>, WireError> {
        let mut map = BTreeMap::new();
        for _ in 0..self.length(what, ITEMS_MAX).await? {
            let key = self.text(what, PATH_LEN_MAX).await?;
            map.insert(key, self.text(what, TEXT_LEN_MAX).await?);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0mdqa9w1p6cmli6976v4wi0sw9r4p5pr";

    #[tokio::test]
    async fn what_is_encoded_is_decoded() {
        let path = StorePath::from_base_name(&format!("{HASH}-a")).expect("valid");
        let request = Encoder::operation(26)
            .flag(true)
            .bytes(b"12345678")
            .bytes(b"123")
            .path(&path)
            .optional_path(None)
            .paths(&BTreeSet::from([path.clone()]))
            .list([b"x".as_slice(), b""])
            .finish();
        assert_eq!(request.len() % 8, 0);
        let mut decoder = Decoder(request.as_slice());
        assert_eq!(decoder.number().await.expect("number"), 26);
        assert!(decoder.flag().await.expect("flag"));
        assert_eq!(decoder.bytes("b", 8).await.expect("bytes"), b"12345678");
        assert_eq!(decoder.text("t", 8).await.expect("text"), "123");
        assert_eq!(decoder.path().await.expect("path"), path);
        assert_eq!(decoder.optional_path().await.expect("none"), None);
        assert_eq!(decoder.paths().await.expect("paths"), BTreeSet::from([path]));
        assert_eq!(decoder.texts("l").await.expect("texts"), ["x", ""]);
        assert!(decoder.0.is_empty());
    }

    #[tokio::test]
    async fn lengths_padding_and_ends_are_checked() {
        let huge = u64::MAX.to_le_bytes();
        let error = Decoder(&huge[..]).bytes("b", 10).await;
        assert!(matches!(error, Err(WireError::TooLong { length: u64::MAX, limit: 10, .. })));
        let mut padded = Encoder::default().bytes(b"abc").finish();
        padded[15] = 1;
        let error = Decoder(padded.as_slice()).bytes("b", 10).await;
        assert!(matches!(error, Err(WireError::Invalid { .. })));
        let whole = Encoder::default().bytes(b"abc").finish();
        for end in 0..whole.len() {
            let error = Decoder(&whole[..end]).bytes("b", 10).await;
            assert!(matches!(error, Err(WireError::Io(_))), "{end}");
        }
    }
}
