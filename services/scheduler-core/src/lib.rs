//! gradient-scheduler-core
