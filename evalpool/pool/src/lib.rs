//! The parent's side of the evaluator: a pool of subprocesses, one evaluation spread over them, and
//! the guards that keep a bad attribute or a small machine from costing more than that attribute.
//!
//! Layer: tokio and processes; no NATS, no Nix (that is behind the pipe).

mod cache;
mod call;
pub mod driver;
pub mod eval_stats;
pub mod evaluation;
pub mod memory;
pub mod pool;
mod process;
mod resolver;
pub mod settings;
mod stderr;
pub mod transport;
mod unmatched;

pub use cache::{EvaluationCache, Known, KnownPaths, ShareError, snapshot};
pub use evaluation::{DiscoverError, DiscoverySummary, Evaluation, Found};
pub use gradient_evalcache::Folder;
pub use gradient_ipc::message::{Expression, Extras, Source, TextExpression};
pub use gradient_ipc::shard::Recursion;
pub use gradient_ipc::tree::Extra;
pub use memory::MemoryProbe;
pub use pool::Pool;
pub use settings::PoolSettings;
pub use transport::SpawnError;
