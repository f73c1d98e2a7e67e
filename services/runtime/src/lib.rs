//! gradient-runtime
