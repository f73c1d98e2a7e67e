//! `gradient submit`.
mod source;
