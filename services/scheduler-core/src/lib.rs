//! The scheduler as pure functions: what comes in, what is decided, what is owed.
//!
//! [`decide`] takes one input and answers with events; [`evolve`] folds an entry; [`outstanding`]
//! derives from the state what every worker is owed. None of them knows a clock, randomness, the
//! environment, IO or hash order (ADR 3), so a replay of the log decides alike on every machine.
//!
//! Layer: above `gradient-events`; the scheduler's shell, the simulator and the command line sit on
//! top of it.

pub mod assignment;
pub mod decide;
pub mod evaluation;
pub mod evolve;
pub mod explain;
pub mod graph;
pub mod outstanding;
pub mod policy;
pub mod queue;
pub mod replay;
pub mod state;
pub mod worker;

pub use decide::decide;
pub use evolve::evolve;
pub use outstanding::{Effect, outstanding, outstanding_for};
pub use state::State;
