//! The api: JSON over HTTP under `/api/v1`. It reads the tables and writes commands, nothing else.
//!
//! Layer: service. It must see neither NATS nor the scheduler. Without the feature `server` it is
//! [`types`] alone, for clients.

pub mod types;

#[cfg(feature = "server")]
mod auth;
#[cfg(feature = "server")]
mod builds;
#[cfg(feature = "server")]
mod error;
#[cfg(feature = "server")]
mod evaluations;
#[cfg(feature = "server")]
mod fleet;
#[cfg(feature = "server")]
mod keys;
#[cfg(feature = "server")]
mod live;
#[cfg(feature = "server")]
mod openapi;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod submit;

#[cfg(feature = "server")]
pub use keys::sweep_keys;
#[cfg(feature = "server")]
pub use openapi::document as openapi_document;
#[cfg(feature = "server")]
pub use server::{ApiSettings, ApiState, AssignmentOf, router};
