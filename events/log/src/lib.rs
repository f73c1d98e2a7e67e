//! gradient-log
