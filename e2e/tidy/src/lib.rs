//! gradient-tidy
