//! gradient-events
