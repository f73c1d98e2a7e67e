//! What the end-to-end tests share: a cluster as a child, its commands, its log, its processes, and
//! models of what the examples come to.
//!
//! Layer: test, outside of the product. It uses no crate of it: commands, HTTP and JSON are what
//! people and scripts see, so they are what is tested. Everything here fails by panicking, with what
//! to do where a program is missing.

pub mod check;
pub mod cluster;
pub mod eval_case;
pub mod flake;
pub mod http;
pub mod local;
pub mod lock_case;
pub mod log;
pub mod model;
pub mod process;
pub mod programs;
pub mod run;
pub mod tarball;
pub mod wait;

pub use cluster::Cluster;
pub use flake::Flake;
pub use run::Said;
