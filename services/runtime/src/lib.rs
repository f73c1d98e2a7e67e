//! What every process of ours needs and no domain: logging and traces, metrics, health, shutdown,
//! an HTTP listener. Nothing else reads the environment.
//!
//! Layer: beside the domain; it must not see it.

mod causes;
pub mod health;
pub mod http;
pub mod metrics;
pub mod shutdown;
pub mod telemetry;

pub use causes::causes;
