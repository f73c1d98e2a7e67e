//! The read models as pure folds: an entry of the log in, typed changes of tables out.
//!
//! [`project()`] holds no state. Whatever needs an old value is a change that names the row and what
//! becomes of it; the adapter (`gradient-postgres`) turns each kind of change into one bulk
//! statement. [`view`] holds what a reader of the tables gets to see.
//!
//! Layer: above `gradient-events`; it must see neither SQL nor async code, no clock and no hash order.

pub mod change;
mod project;
pub mod view;

mod anomaly;
mod build;
mod dispatched_job;
mod entry_index;
mod entry_point;
mod evaluation;
mod message;
mod pending_job;
mod worker;

pub use change::{Change, Key};
pub use project::project;

use gradient_events::Entry;

/// Where an entry stands in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Sequence of its message.
    pub sequence: u64,
    /// Its index in the message.
    pub index: u32,
}

/// An entry under projection, and the changes found so far.
struct Projection<'a> {
    entry: &'a Entry,
    position: Position,
    changes: Vec<Change>,
}

impl Projection<'_> {
    fn push(&mut self, change: Change) {
        self.changes.push(change);
    }
}
