//! gradient-scheduler
