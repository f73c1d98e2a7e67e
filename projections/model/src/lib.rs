//! gradient-projections
