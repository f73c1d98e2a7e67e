//! Time as an input: the core never reads a clock, it is told.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, as the scheduler's shell read them.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Whole milliseconds from `earlier` to `self`; 0 if `earlier` is later.
    #[must_use]
    pub fn since_ms(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment and `ms` milliseconds more.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }
}
