//! Nix, embedded through its C API, and the evaluator subprocess around it.
//!
//! The libraries are opened at run time, so nothing here needs Nix to build, one binary works with
//! Nix 2.26 to 2.36, and a machine without Nix gets an error instead of a program that does not
//! start. This is the only crate with `unsafe` code.

mod bytes;
pub mod error;
pub mod evaluator;
mod ffi;
#[cfg(test)]
mod headers;
mod helpers;
pub mod library;
mod process;
mod stats;
pub mod subprocess;
mod teller;
mod tree;
pub mod value;
mod wire;

pub use error::EvalError;
pub use evaluator::Evaluator;
pub use library::{LoadError, Nix};
pub use process::keep_heaps_small;
pub use value::Value;
