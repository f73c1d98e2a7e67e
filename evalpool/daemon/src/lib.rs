//! gradient-daemon
