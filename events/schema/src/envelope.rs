//! The envelope: NATS headers that any tool can read without decoding the body, and the checks that
//! a reader makes before it believes a body (protocol page, Envelope).

use std::str::FromStr;

use uuid::Uuid;

/// Header: what the body is, such as `worker` or `entries`.
pub const TYPE: &str = "Gradient-Type";
/// Header: version of the body's form.
pub const SCHEMA: &str = "Gradient-Schema";
/// Header: UUIDv7 of this message.
pub const ID: &str = "Gradient-Id";
/// Header: crc32c of the body, 8 hexadecimal digits.
pub const CRC: &str = "Gradient-Crc";
/// Header: W3C trace context; optional.
pub const TRACEPARENT: &str = "traceparent";

/// The parsed headers of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// What the body is.
    pub type_name: String,
    /// Version of the body's form.
    pub schema: u16,
    /// Identity of the message; the same on every retry.
    pub id: Uuid,
    /// crc32c of the body.
    pub crc: u32,
    /// W3C trace context, if the sender had one.
    pub traceparent: Option<String>,
}

/// Why a message cannot be believed. The reader stops; nothing is skipped silently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A header is absent or not what it should be.
    #[error("header {header} is missing or malformed")]
    Header {
        /// Its name.
        header: &'static str,
    },
    /// The checksum of the body does not match its header.
    #[error("checksum of the body is {actual:08x}, the header says {expected:08x}")]
    Checksum {
        /// What the header says.
        expected: u32,
        /// What the body has.
        actual: u32,
    },
    /// A type or schema that this build does not know; a newer build wrote it.
    #[error(
        "message type '{type_name}' with schema {schema} is unknown to this build (it reads '{expected}' up to {newest}); update it"
    )]
    Unknown {
        /// Type found.
        type_name: String,
        /// Schema found.
        schema: u16,
        /// Type wanted.
        expected: &'static str,
        /// Newest schema known.
        newest: u16,
    },
    /// The body is not a valid value of its type.
    #[error("body of '{type_name}' is not valid: {reason}")]
    Body {
        /// Type found.
        type_name: &'static str,
        /// What validation said.
        reason: String,
    },
}

impl Envelope {
    /// The envelope of a body of type `W`.
    #[must_use]
    pub fn of<W: Wire>(id: Uuid, body: &[u8], traceparent: Option<String>) -> Self {
        Self {
            type_name: W::TYPE.to_owned(),
            schema: W::SCHEMA,
            id,
            crc: crc32c::crc32c(body),
            traceparent,
        }
    }

    /// Header names and values, in a fixed order.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            (TYPE, self.type_name.clone()),
            (SCHEMA, self.schema.to_string()),
            (ID, self.id.to_string()),
            (CRC, format!("{:08x}", self.crc)),
        ];
        headers.extend(self.traceparent.clone().map(|value| (TRACEPARENT, value)));
        headers
    }

    /// Reads the headers through `get`.
    ///
    /// # Errors
    /// [`DecodeError::Header`] names the first header that is missing or malformed.
    pub fn parse<'a>(get: impl Fn(&'static str) -> Option<&'a str>) -> Result<Self, DecodeError> {
        fn field<T: FromStr>(text: Option<&str>, header: &'static str) -> Result<T, DecodeError> {
            text.and_then(|t| t.parse().ok()).ok_or(DecodeError::Header { header })
        }
        let crc = get(CRC)
            .and_then(|t| u32::from_str_radix(t, 16).ok())
            .ok_or(DecodeError::Header { header: CRC })?;
        Ok(Self {
            type_name: field(get(TYPE), TYPE)?,
            schema: field(get(SCHEMA), SCHEMA)?,
            id: field(get(ID), ID)?,
            crc,
            traceparent: get(TRACEPARENT).map(str::to_owned),
        })
    }

    /// Checks the body against the envelope and decodes it.
    ///
    /// # Errors
    /// A wrong checksum, a type or schema this build does not know, or an invalid body.
    pub fn decode<W: Wire>(&self, body: &[u8]) -> Result<W, DecodeError> {
        let actual = crc32c::crc32c(body);
        if actual != self.crc {
            return Err(DecodeError::Checksum { expected: self.crc, actual });
        }
        if self.type_name != W::TYPE || self.schema == 0 || self.schema > W::SCHEMA {
            return Err(DecodeError::Unknown {
                type_name: self.type_name.clone(),
                schema: self.schema,
                expected: W::TYPE,
                newest: W::SCHEMA,
            });
        }
        W::from_body(self.schema, body)
    }
}

/// A body that travels: its type, its newest schema, and how to read every schema up to it.
pub trait Wire: Sized {
    /// The value of `Gradient-Type`.
    const TYPE: &'static str;
    /// The newest schema; what is written.
    const SCHEMA: u16;

    /// Bytes of this value in the newest schema.
    fn to_body(&self) -> Vec<u8>;

    /// Reads a body of `schema`, 1 to [`Wire::SCHEMA`], lifting older forms (upcasters).
    ///
    /// # Errors
    /// [`DecodeError::Body`] if the bytes are not a valid value.
    fn from_body(schema: u16, body: &[u8]) -> Result<Self, DecodeError>;
}

/// Implements [`Wire`] by rkyv for a type whose only schema is 1. A second schema replaces the call
/// by an implementation that matches on the number.
macro_rules! wire_v1 {
    ($type:ty, $name:literal) => {
        impl $crate::envelope::Wire for $type {
            const TYPE: &'static str = $name;
            const SCHEMA: u16 = 1;

            fn to_body(&self) -> Vec<u8> {
                rkyv::to_bytes::<rkyv::rancor::Error>(self)
                    .expect("writing to memory does not fail")
                    .into_vec()
            }

            fn from_body(_schema: u16, body: &[u8]) -> Result<Self, $crate::envelope::DecodeError> {
                rkyv::from_bytes::<Self, rkyv::rancor::Error>(body).map_err(|error| {
                    $crate::envelope::DecodeError::Body {
                        type_name: $name,
                        reason: error.to_string(),
                    }
                })
            }
        }
    };
}
pub(crate) use wire_v1;
