//! What the parent and the evaluator subprocesses say to each other, and everything about an
//! evaluation that can be decided without a process, a clock or Nix: frames, the walk over an
//! attribute tree, shards and batches, what to do after a crash, whom to reap when memory is short.
//!
//! Layer: pure. No processes, no Nix, no environment, no clock, no hash order.

pub mod codec;
pub mod discovery;
pub mod fingerprint;
pub mod marks;
pub mod memory;
pub mod message;
pub mod shard;
pub mod tree;
pub mod walker;
pub mod warnings;

pub use codec::{EVAL_IPC_VERSION, FRAME_LEN_MAX};
pub use message::{Request, Response};
