//! The words of the product as types: ids, systems and features, requirements and capabilities,
//! store paths, attribute paths, derivations, timestamps.
//!
//! Layer: the bottom. This crate has no IO, no async, no clock and no randomness; whatever comes
//! from outside is parsed here once and then carried as proof (`docs/architecture.md`).

pub mod attr_path;
pub mod capability;
pub mod derivation;
pub mod flake;
pub mod id;
pub mod nix_base32;
pub mod pattern;
pub mod percent;
pub mod ssh_key;
pub mod store_path;
pub mod text;
pub mod time;
pub mod way;

pub use attr_path::AttrPath;
pub use capability::{Capabilities, Feature, Kind, Requirement, System};
pub use derivation::Derivation;
pub use id::{AssignmentId, BuildId, EvaluationId, JobId, SessionId, WorkerId};
pub use pattern::Pattern;
pub use ssh_key::SshKey;
pub use store_path::StorePath;
pub use time::Timestamp;
pub use way::is_trusted_way;
