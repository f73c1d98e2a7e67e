//! Queries.
