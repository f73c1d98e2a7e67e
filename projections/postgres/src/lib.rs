//! The read models in PostgreSQL: migrations, the projector that fills them from the log, and the
//! queries that the api asks.
//!
//! Layer: adapter. It must not see NATS. With the feature `local` alone it is [`local`], a private
//! server as a child process, and knows no SQL.

#[cfg(feature = "local")]
pub mod local;

#[cfg(feature = "database")]
mod apply;
#[cfg(feature = "database")]
mod batch;
#[cfg(feature = "database")]
mod checkpoint;
#[cfg(feature = "database")]
pub mod database;
#[cfg(feature = "database")]
pub mod digest;
#[cfg(feature = "database")]
mod metrics;
#[cfg(feature = "database")]
mod plan;
#[cfg(feature = "database")]
pub mod projector;
#[cfg(feature = "database")]
pub mod queries;
#[cfg(feature = "database")]
pub mod rebuild;

#[cfg(feature = "database")]
pub use database::{Database, DatabaseError};
#[cfg(feature = "database")]
pub use digest::{Digest, digest};
#[cfg(feature = "database")]
pub use projector::{Projector, ProjectorError, ProjectorSettings, follow};
#[cfg(feature = "database")]
pub use rebuild::{RebuildError, RebuildProgress, rebuild};
