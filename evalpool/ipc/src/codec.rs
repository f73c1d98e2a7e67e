//! Frames: a little-endian `u32` length, then that many bytes of validated rkyv. The very first byte
//! that a subprocess writes is the version, so that a binary swapped in the middle of an evaluation
//! is noticed before anything is decoded.

use std::io::{self, Read, Write};

use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};

use crate::message::{Request, Response};

/// Version of the frames; the first raw byte of a subprocess.
pub const EVAL_IPC_VERSION: u8 = 3;

/// Bytes of the length in front of a frame.
pub const HEADER_LEN: usize = 4;

/// Longest payload, in bytes.
pub const FRAME_LEN_MAX: usize = 64 * 1024 * 1024;

/// Why bytes are no frame, or a value cannot become one.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length, announced or made, is over the limit.
    #[error("frame length {len} exceeds {FRAME_LEN_MAX}")]
    TooLong {
        /// The length in bytes.
        len: usize,
    },
    /// The stream ended within a frame.
    #[error("stream ended inside a frame")]
    Torn,
    /// The payload is not a valid message.
    #[error("frame holds no valid message")]
    Malformed(#[source] rancor::Error),
    /// The message could not be written down.
    #[error("message cannot be encoded")]
    Encode(#[source] rancor::Error),
    /// The pipe failed.
    #[error("pipe failed")]
    Io(#[from] io::Error),
}

/// A message that travels in a frame.
pub trait Message: Sized + sealed::Sealed {
    /// The whole frame, length included.
    ///
    /// # Errors
    /// If the payload is over [`FRAME_LEN_MAX`].
    fn to_frame(&self) -> Result<Vec<u8>, FrameError>;

    /// Reads a payload (without its length).
    ///
    /// # Errors
    /// If the payload does not validate.
    fn from_payload(payload: &[u8]) -> Result<Self, FrameError>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::message::Request {}
    impl Sealed for crate::message::Response {}
}

impl Message for Request {
    fn to_frame(&self) -> Result<Vec<u8>, FrameError> {
        encode(self)
    }

    fn from_payload(payload: &[u8]) -> Result<Self, FrameError> {
        decode(payload)
    }
}

impl Message for Response {
    fn to_frame(&self) -> Result<Vec<u8>, FrameError> {
        encode(self)
    }

    fn from_payload(payload: &[u8]) -> Result<Self, FrameError> {
        decode(payload)
    }
}

fn encode<T>(message: &T) -> Result<Vec<u8>, FrameError>
where
    T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    let payload = rkyv::to_bytes::<rancor::Error>(message).map_err(FrameError::Encode)?;
    let len = payload.len();
    let header = match u32::try_from(len) {
        Ok(header) if len <= FRAME_LEN_MAX => header,
        Ok(_) | Err(_) => return Err(FrameError::TooLong { len }),
    };
    let mut frame = Vec::with_capacity(HEADER_LEN + len);
    frame.extend_from_slice(&header.to_le_bytes());
    frame.extend_from_slice(&payload);
    Ok(frame)
}

fn decode<T>(payload: &[u8]) -> Result<T, FrameError>
where
    T: Archive,
    T::Archived: for<'a> CheckBytes<HighValidator<'a, rancor::Error>>
        + Deserialize<T, HighDeserializer<rancor::Error>>,
{
    rkyv::from_bytes::<T, rancor::Error>(payload).map_err(FrameError::Malformed)
}

/// The payload length that a header announces.
///
/// # Errors
/// If it is over [`FRAME_LEN_MAX`].
pub fn payload_len(header: [u8; HEADER_LEN]) -> Result<usize, FrameError> {
    let len = u32::from_le_bytes(header) as usize;
    if len > FRAME_LEN_MAX {
        return Err(FrameError::TooLong { len });
    }
    Ok(len)
}

/// Reads the next payload; `None` if the stream ended between frames.
///
/// # Errors
/// If the stream ends within a frame, the frame is too long or the pipe fails.
pub fn read_payload(stream: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let mut header = [0; HEADER_LEN];
    let mut filled = 0;
    while filled < HEADER_LEN {
        match stream.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(FrameError::Torn),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let len = payload_len(header)?;
    // Grown while it arrives: an announced length alone costs nothing.
    let mut payload = Vec::new();
    stream.take(len as u64).read_to_end(&mut payload)?;
    if payload.len() < len {
        return Err(FrameError::Torn);
    }
    Ok(Some(payload))
}

/// Writes one message as a frame and flushes.
///
/// # Errors
/// If the message is too long or the pipe fails.
pub fn write_message(stream: &mut impl Write, message: &impl Message) -> Result<(), FrameError> {
    stream.write_all(&message.to_frame()?)?;
    stream.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Item, ListOk, Request, Response};
    use crate::tree::AttrError;

    fn list_ok() -> Response {
        let attr = ["packages", "tool-1.2", "line\nbreak"].into_iter().collect();
        let message = "not a derivation (a function)".to_owned();
        Response::ListOk(ListOk {
            items: vec![Item { attr, result: Err(message) }],
            errors: vec![AttrError { attr: ["x"].into_iter().collect(), message: String::new() }],
            ..ListOk::default()
        })
    }

    #[test]
    fn a_frame_reads_back() {
        let mut stream = Vec::new();
        write_message(&mut stream, &list_ok()).expect("valid");
        write_message(&mut stream, &Response::Pong).expect("valid");
        let mut reader = stream.as_slice();
        let first = read_payload(&mut reader).expect("valid").expect("valid");
        assert_eq!(Response::from_payload(&first).expect("valid"), list_ok());
        let second = read_payload(&mut reader).expect("valid").expect("valid");
        assert_eq!(Response::from_payload(&second).expect("valid"), Response::Pong);
        assert!(read_payload(&mut reader).expect("valid").is_none());
    }

    #[test]
    fn every_cut_of_a_frame_is_torn() {
        let frame = list_ok().to_frame().expect("valid");
        for end in 1..frame.len() {
            let result = read_payload(&mut &frame[..end]);
            assert!(matches!(result, Err(FrameError::Torn)), "cut at {end}");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_read() {
        let header = u32::MAX.to_le_bytes();
        let error = read_payload(&mut header.as_slice()).expect_err("too long");
        assert_eq!(error.to_string(), "frame length 4294967295 exceeds 67108864");
    }

    #[test]
    fn junk_is_malformed_and_never_a_panic() {
        let frame = list_ok().to_frame().expect("valid");
        for at in HEADER_LEN..frame.len() {
            let mut payload = frame[HEADER_LEN..].to_vec();
            payload[at - HEADER_LEN] ^= 0xff;
            let _ = Response::from_payload(&payload);
            let _ = Request::from_payload(&payload);
        }
        assert!(matches!(Request::from_payload(&[]), Err(FrameError::Malformed(_))));
    }
}
