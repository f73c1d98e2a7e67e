//! Waiting for a condition with a limit.

use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// How long anything of a cluster may take, generous for a busy machine with two cores. A test that
/// passes never waits for it.
pub const LIMIT: Duration = Duration::from_secs(90);

/// Looks until there is something to see.
///
/// # Panics
/// After `limit`, with what was waited for.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < limit, "waited {} s in vain: {what}", limit.as_secs());
        std::thread::sleep(PAUSE);
    }
}

/// Looks until `holds`.
///
/// # Panics
/// After `limit`, with what was waited for.
#[track_caller]
pub fn until_true(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    until(what, limit, || holds().then_some(()));
}
