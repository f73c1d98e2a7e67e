//! From a flake reference to what can be evaluated without a network.
//!
//! [`Fetcher::fetch`] puts the source of a flake and all its locked inputs into the store, as far as they can
//! be had, completes the lock in memory, applies overrides, and names what pure evaluation takes: the source
//! itself, or a generated *wrapper* flake with a complete lock around it. The source stays as it is, byte
//! for byte.
//!
//! Layer: above `gradient-daemon`. Wall: no NATS, no SQL, no Nix libraries; it runs the `nix` program,
//! which alone sees a key for SSH (ADR 18).

mod asked;
mod error;
mod fetcher;
mod fetcher_cache;
mod hash;
mod inputs;
mod literals;
mod lock;
mod memo;
mod missing;
mod overrides;
mod process;
mod reference;
mod request;
mod session;
mod ssh;
mod submodules;
mod valid;
mod walk;
mod wrapper;

pub use error::{FetchError, Retry};
pub use fetcher::Fetcher;
pub use fetcher_cache::remove_damaged_cache;
pub use missing::Missing;
pub use request::{LockedFlake, Reach, Request, Source, Tree};
pub use ssh::remove_left_keys;
