//! The log loop in front of every reply: messages until the reply itself or an error.

use tokio::io::AsyncRead;

use crate::error::strip_colours;
use crate::wire::{Decoder, ITEMS_MAX, TEXT_LEN_MAX, WireError};

const NEXT: u64 = 0x6f6c_6d67;
const LAST: u64 = 0x616c_7473;
const ERROR: u64 = 0x6378_7470;
const START_ACTIVITY: u64 = 0x5354_5254;
const STOP_ACTIVITY: u64 = 0x5354_4f50;
const RESULT: u64 = 0x5253_4c54;

/// Result type of one line of a builder's log.
const BUILD_LOG_LINE: u64 = 101;
/// Result type of a phase that a builder entered.
const SET_PHASE: u64 = 104;
/// Most fields of an activity or a result.
const FIELDS_MAX: u64 = 64;

/// Something the daemon said while it worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// One line of a builder's log, without its line feed.
    Line(Vec<u8>),
    /// The builder entered this phase.
    Phase(String),
    /// A message of the daemon itself.
    Message(String),
}

/// One message of the log loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The reply follows.
    Last,
    /// The request failed; text without colours.
    Error(String),
    /// Something for the log.
    Log(LogEvent),
    /// Progress that nobody here needs.
    Ignored,
}

enum Field {
    Number,
    Text(Vec<u8>),
}

async fn fields<R: AsyncRead + Unpin>(from: &mut Decoder<R>) -> Result<Vec<Field>, WireError> {
    let mut fields = Vec::new();
    for _ in 0..from.length("fields of a message", FIELDS_MAX).await? {
        fields.push(match from.number().await? {
            0 => {
                from.number().await?;
                Field::Number
            }
            1 => Field::Text(from.bytes("field of a message", TEXT_LEN_MAX).await?),
            other => return Err(WireError::invalid("field type", other.to_string())),
        });
    }
    Ok(fields)
}

/// Reads one message.
pub(crate) async fn read<R: AsyncRead + Unpin>(
    from: &mut Decoder<R>,
) -> Result<Message, WireError> {
    match from.number().await? {
        LAST => Ok(Message::Last),
        NEXT => {
            let text = from.text("message", TEXT_LEN_MAX).await?;
            Ok(Message::Log(LogEvent::Message(strip_colours(&text).trim_end().to_owned())))
        }
        ERROR => read_error(from).await,
        START_ACTIVITY => {
            for _ in 0..3 {
                from.number().await?; // id, level, type
            }
            from.bytes("activity", TEXT_LEN_MAX).await?;
            fields(from).await?;
            from.number().await?; // parent
            Ok(Message::Ignored)
        }
        STOP_ACTIVITY => {
            from.number().await?;
            Ok(Message::Ignored)
        }
        RESULT => {
            from.number().await?; // activity
            let kind = from.number().await?;
            let first = fields(from).await?.into_iter().next();
            Ok(match (kind, first) {
                (BUILD_LOG_LINE, Some(Field::Text(line))) => Message::Log(LogEvent::Line(line)),
                (SET_PHASE, Some(Field::Text(phase))) => {
                    Message::Log(LogEvent::Phase(String::from_utf8_lossy(&phase).into_owned()))
                }
                (_, Some(Field::Number | Field::Text(_)) | None) => Message::Ignored,
            })
        }
        other => Err(WireError::invalid("message type", format!("{other:#x}"))),
    }
}

async fn read_error<R: AsyncRead + Unpin>(from: &mut Decoder<R>) -> Result<Message, WireError> {
    from.bytes("error type", TEXT_LEN_MAX).await?;
    from.number().await?; // level
    from.bytes("error name", TEXT_LEN_MAX).await?;
    let text = from.text("error", TEXT_LEN_MAX).await?;
    from.number().await?; // position
    for _ in 0..from.length("error trace", ITEMS_MAX).await? {
        from.number().await?;
        from.bytes("error trace", TEXT_LEN_MAX).await?;
    }
    let text = strip_colours(&text);
    let text = text.trim();
    Ok(Message::Error(text.strip_prefix("error:").unwrap_or(text).trim_start().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Encoder;

    async fn one(bytes: Vec<u8>) -> Message {
        let mut from = Decoder(bytes.as_slice());
        let message = read(&mut from).await.expect("reads");
        assert!(from.0.is_empty(), "all is consumed");
        message
    }

    #[tokio::test]
    async fn every_kind_is_consumed_whole() {
        let line = Encoder::operation(RESULT)
            .number(7)
            .number(BUILD_LOG_LINE)
            .number(1)
            .number(1)
            .bytes(b"hello \xff");
        let progress = Encoder::operation(RESULT)
            .number(7)
            .number(105)
            .number(2)
            .number(0)
            .number(1)
            .number(0)
            .number(2);
        let start = Encoder::operation(START_ACTIVITY)
            .number(1)
            .number(3)
            .number(105)
            .bytes(b"building")
            .number(1)
            .number(1)
            .bytes(b"/nix/store/x")
            .number(0);
        let error = Encoder::operation(ERROR)
            .bytes(b"Error")
            .number(0)
            .bytes(b"Error")
            .bytes(b"\x1b[31merror:\x1b[0m it broke")
            .number(0)
            .number(1)
            .number(0)
            .bytes(b"while trying");
        let rows = [
            (Encoder::operation(LAST), Message::Last),
            (
                Encoder::operation(NEXT).bytes(b"copying\n"),
                Message::Log(LogEvent::Message("copying".into())),
            ),
            (line, Message::Log(LogEvent::Line(b"hello \xff".to_vec()))),
            (progress, Message::Ignored),
            (start, Message::Ignored),
            (Encoder::operation(STOP_ACTIVITY).number(1), Message::Ignored),
            (error, Message::Error("it broke".into())),
        ];
        for (encoded, expected) in rows {
            assert_eq!(one(encoded.finish()).await, expected);
        }
    }
}
