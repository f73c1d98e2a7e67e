//! gradient-sim
