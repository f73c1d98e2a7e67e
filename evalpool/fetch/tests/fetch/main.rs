//! The fetch step against the real `nix`, in private stores.

mod git;
mod host;
mod inputs;
mod locks;
