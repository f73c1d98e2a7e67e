//! gradient-pool
