//! gradient-api
