//! Why something waits.

use gradient_domain::{BuildId, Timestamp};
use gradient_events::event::UnmetRequirement;
use serde::{Deserialize, Serialize};

/// What an evaluation or a build waits for (reference 3.11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Waiting {
    /// No connected worker can evaluate.
    EvalWorkers {
        /// How many are connected at all.
        connected_workers: u32,
    },
    /// No connected worker fits any build that is left.
    Workers {
        /// What nobody offers.
        #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
        unmet: Vec<UnmetRequirement>,
        /// How many are connected.
        connected_workers: u32,
    },
    /// The last try failed; another one follows.
    Retry {
        /// What happened.
        error: String,
    },
    /// In the queue for a free slot.
    Slot {
        /// Place in the order of offers.
        offer: u64,
        /// Since when.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        since: Timestamp,
    },
    /// Handed out; the worker has not begun.
    Worker {
        /// Since when.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        since: Timestamp,
    },
    /// Inputs are not there yet.
    Dependencies {
        /// How many direct ones.
        missing: u64,
        /// Some of them.
        #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
        builds: Vec<BuildId>,
    },
    /// The derivation was mentioned, but its record has not come.
    NotRecorded,
    /// No live evaluation wants it.
    Unwanted,
    /// A failure that another try may mend.
    Backoff {
        /// When it comes back.
        #[cfg_attr(feature = "openapi", schema(value_type = u64))]
        until: Timestamp,
    },
}
