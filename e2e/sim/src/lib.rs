//! A deterministic world around the scheduler's core: seeded faults, invariants after every step.
//!
//! The core is the real one; network, workers, clock and log are simulated, with no threads and no
//! async, so that a seed repeats a run exactly. `cargo run -p gradient-sim -- --seed N --trace`
//! shows one.

pub mod blame;
pub mod invariant;
pub mod plan;
pub mod rng;
pub mod scheduler;
pub mod tally;
pub mod worker;
pub mod world;

pub use tally::Tally;
pub use world::{Options, run};
