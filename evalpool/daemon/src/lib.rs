//! The worker protocol of the Nix daemon, spoken from Rust: codec, client, a small pool of
//! connections; NAR archives, narinfo files and their signatures; store paths of content-addressed
//! objects.
//!
//! Layer: below the worker and the evaluator pool. Wall: nothing here knows NATS or the C API of
//! Nix. Protocol version 1.37, so that no feature can ever be negotiated and the layout of every
//! request is frozen.

pub mod build;
pub mod connection;
pub mod derivation_hash;
pub mod error;
pub mod message;
pub mod nar;
pub mod narinfo;
pub mod options;
pub mod path_info;
pub mod pool;
pub mod queries;
pub mod signature;
pub mod store_path_of;
pub mod transfer;
pub mod wire;

pub use build::{BuildResult, BuildStatus};
pub use connection::{Connection, Trust};
pub use error::{Error, Retry};
pub use message::LogEvent;
pub use narinfo::NarInfo;
pub use options::ClientOptions;
pub use path_info::PathInfo;
pub use pool::{Pool, PooledConnection};
pub use signature::{PublicKey, SecretKey};
