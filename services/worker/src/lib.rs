//! The worker: the conversation with the scheduler, evaluations through a pool of subprocesses, builds
//! through a Nix daemon, and the exchange of store paths with the cache service.
//!
//! Layer: service. It must not see SQL.

pub mod agent;
pub mod build;
pub mod cache_client;
pub mod config;
pub mod daemon_process;
pub mod detect;
pub mod evaluate;
pub mod execute;
pub mod identity;
pub mod job;
pub mod metrics;
pub mod outbox;
pub mod store;
pub mod voice;
