//! What readers of the tables get to see: typed rows, also the JSON of the api.
//!
//! Times are milliseconds since the Unix epoch; ids are text; lists are pages with a cursor.

mod build;
mod evaluation;
mod job;
mod names;
mod status;
mod waiting;
mod worker;

pub use build::{Attempt, BuildDetail, BuildOutput, BuildSummary};
pub use evaluation::{BuildCounts, EntryPoint, EvaluationSummary, Message};
pub use job::{DispatchedJob, PendingJob};
pub use names::{AnomalyKind, BuildState, MessageLevel, Outcome, Presence, UnknownName};
pub use status::{Anomaly, Counts, Status};
pub use waiting::Waiting;
pub use worker::{RunningJob, Worker};

use serde::{Deserialize, Serialize};

/// Most items on a page.
pub const PAGE_MAX: u32 = 500;

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The items, at most 500.
    pub items: Vec<T>,
    /// What to pass as `after` for the next page; `null` on the last one.
    pub next: Option<String>,
}
