//! gradient-ipc
