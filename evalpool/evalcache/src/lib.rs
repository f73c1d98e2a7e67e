//! The evaluation cache: what an evaluation of a locked flake found, for every later one.
//!
//! One SQLite file per fingerprint holds Nix's own table of attributes and side tables of ours
//! (reference: embedding, section 5). [`CachedTree`] stands in front of an attribute tree and
//! forces only what the file does not know; [`replay`] walks the file alone, so that a repeat of a
//! complete evaluation starts no evaluator at all.
//!
//! Layer: files and SQLite; no processes, no Nix, no async.

mod cursor;
mod export;
mod file;
mod folder;
mod no_tree;
mod replay;
mod rows;
mod tree;
mod writer;

pub use export::{ExportError, export, snapshot};
pub use file::{CacheError, EvalCache, remove};
pub use folder::{Finding, Folder, Kept, inspect};
pub use no_tree::NoTree;
pub use replay::{Evaluated, Replay, Request, Warned, replay};
pub use tree::CachedTree;
