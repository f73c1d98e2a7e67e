//! NAR archives: the one serialisation of a file tree that Nix hashes.
//!
//! [`Parser`] is the only reader: fed with bytes as they come, it finds the end of an archive,
//! checks that it is canonical and tells a [`Sink`] what it holds. [`pack`] is the only writer.

mod pack;
mod parse;
mod unpack;

pub use pack::{Digest, pack, pack_async, pack_text};
pub use parse::{DEPTH_MAX, Fault, Ignore, Parser, Sink};
pub use unpack::{Limits, SingleFile, Unpacker, unpack};
