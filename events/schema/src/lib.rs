//! What is said and what is logged: worker messages, server messages, commands, log entries, and the
//! envelope around them.
//!
//! Layer: above `gradient-domain`, below everything that talks. No IO, no async. Bodies are rkyv
//! (ADR 9), validated before use; serde is for JSON shown to people only. Every (type, schema) pair
//! has golden bytes under `golden/`; a change of meaning is a new schema number and an upcaster.

#![expect(
    missing_docs,
    reason = "the rkyv derives make undocumented items; every item of ours has its comment"
)]

pub mod command;
pub mod entry;
pub mod envelope;
pub mod event;
pub mod job;
pub mod query;
pub mod score;
pub mod server;
pub mod subject;
pub mod worker;

pub use command::Command;
pub use entry::{Cause, Entry, EntryBatch, Input, Settings};
pub use envelope::{DecodeError, Envelope, Wire};
pub use event::Event;
pub use job::{BuildJob, EvaluateJob, FailureKind, FlakeSource, Job};
pub use server::ServerMessage;
pub use worker::{FromWorker, WorkerMessage};

/// Upper bound of any NATS message of ours, headers included, in bytes (protocol page).
pub const MESSAGE_BYTES_MAX: usize = 512 * 1024;

/// Upper bound of one page of candidates, scores or derivations, in bytes (protocol page).
pub const PAGE_BYTES_MAX: usize = 256 * 1024;

/// Most candidates, scores or derivations on one page (spec, Offers).
pub const PAGE_ITEMS_MAX: usize = 1_000;

/// The versions of the worker protocol that this build speaks, oldest and newest.
pub const PROTOCOL_VERSIONS: (u16, u16) = (1, 1);
