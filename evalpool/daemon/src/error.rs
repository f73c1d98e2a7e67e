//! What can go wrong between us and a daemon.

use std::io;
use std::path::PathBuf;

use crate::wire::WireError;

/// What a caller may do after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request fails again.
    Never,
    /// The daemon is not there or not well; ask again later.
    Backoff,
    /// This connection is lost; ask again on a fresh one.
    Reconnect,
}

/// Failure of an operation on a daemon connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens on the socket, or it may not be opened.
    #[error("no connection to the Nix daemon at {socket}")]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Whoever answers is no Nix daemon.
    #[error("what answers at the socket is no Nix daemon (it began with {magic:#x})")]
    NotADaemon {
        /// Its first number.
        magic: u64,
    },
    /// The daemon is older than Nix 2.15.
    #[error("the Nix daemon speaks protocol {}.{}; 1.35 (Nix 2.15) is needed", version >> 8, version & 0xff)]
    TooOld {
        /// Its version, `major << 8 | minor`.
        version: u64,
    },
    /// The connection broke, or what came over it cannot be read.
    #[error("{operation}: the connection to the Nix daemon is lost")]
    Broken {
        /// What was being done.
        operation: &'static str,
        /// Why.
        #[source]
        source: WireError,
    },
    /// The daemon refused the request.
    #[error("{operation}: {message}")]
    Refused {
        /// What was being done.
        operation: &'static str,
        /// The daemon's words, without colours.
        message: String,
    },
    /// The archive handed in could not be read to its end.
    #[error("{operation}: the archive cannot be read")]
    Source {
        /// What was being done.
        operation: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What a caller may do about it.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::Connect { .. } => Retry::Backoff,
            Error::Broken { .. } => Retry::Reconnect,
            Error::NotADaemon { .. }
            | Error::TooOld { .. }
            | Error::Refused { .. }
            | Error::Source { .. } => Retry::Never,
        }
    }
}

/// Makes the wire errors of one operation into [`Error::Broken`].
pub(crate) fn during(operation: &'static str) -> impl Fn(WireError) -> Error {
    move |source| Error::Broken { operation, source }
}

/// The text without terminal escape sequences and other control characters but line feed and tab.
#[must_use]
pub fn strip_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => {
                if chars.next() == Some('[') {
                    chars.by_ref().find(|c| matches!(c, '\u{40}'..='\u{7e}'));
                }
            }
            '\n' | '\t' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_stripped() {
        let rows = [
            ("\x1b[31;1merror:\x1b[0m no\n\tway", "error: no\n\tway"),
            ("plain ü", "plain ü"),
            ("cut \x1b[3", "cut "),
            ("\x1b", ""),
            ("bell\x07", "bell"),
        ];
        for (text, plain) in rows {
            assert_eq!(strip_colours(text), plain);
        }
    }
}
