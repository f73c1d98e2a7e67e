//! How much one decision may put into the log. An entry is one message of at most 512 KiB with its
//! input; what is over a limit is left to the next tick, which finds it in the state.

/// Most builds in one event (4 bytes each).
pub(crate) const BUILDS_PER_EVENT_MAX: usize = 16_384;
/// Most hand-outs, retries or finds that one tick, silence or sweep deals with.
pub(super) const JOBS_PER_DECISION_MAX: usize = 1_000;
/// Most evaluations that are parked or resumed at a time.
pub(super) const PARKED_PER_DECISION_MAX: usize = 500;
/// Most workers that hear of new offers at a time; the others hear with their next message.
pub(super) const OFFERS_PER_DECISION_MAX: usize = 2_000;
/// Most requirements that a waiting reason names.
pub(super) const UNMET_NAMED_MAX: usize = 16;
