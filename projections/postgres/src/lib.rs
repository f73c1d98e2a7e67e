//! gradient-postgres
