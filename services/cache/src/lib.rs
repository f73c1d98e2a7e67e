//! gradient-cache
