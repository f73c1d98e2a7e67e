//! gradient-suite
