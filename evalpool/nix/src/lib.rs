//! gradient-nix
