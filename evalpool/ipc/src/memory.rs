//! What memory decides: who is recycled after a call, who is reaped when the machine runs short,
//! and whether another evaluation may begin. All sizes are bytes, all times milliseconds.

const MIB: u64 = 1024 * 1024;

/// Pause after a kill, in milliseconds: its memory needs time to come back.
pub const REAP_PAUSE_MS: u64 = 5_000;

/// What the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Physical memory.
    pub total: u64,
    /// Memory that can be had without swapping.
    pub available: u64,
}

/// The memory that stays free: as configured, or for 0 a tenth of all, between 128 MiB and 1 GiB.
#[must_use]
pub fn margin(min_free: u64, total: u64) -> u64 {
    match min_free {
        0 => (total / 10).clamp(128 * MIB, 1024 * MIB),
        configured => configured,
    }
}

/// How much is missing to the margin; 0 means no pressure.
#[must_use]
pub fn shortfall(reading: Reading, margin: u64) -> u64 {
    margin.saturating_sub(reading.available)
}

/// The child to kill: the largest, if its memory covers the whole shortfall. Otherwise the pressure
/// comes from elsewhere, and killing would only lose work. Between equals the lowest id.
#[must_use]
pub fn victim(children: &[(u64, u64)], shortfall: u64) -> Option<u64> {
    if shortfall == 0 {
        return None;
    }
    let largest = children.iter().max_by_key(|(id, rss)| (*rss, std::cmp::Reverse(*id)))?;
    (largest.1 >= shortfall).then_some(largest.0)
}

/// Whether a child ends after its call instead of going back to the pool.
#[must_use]
pub fn must_recycle(rss: u64, max_rss: u64) -> bool {
    rss > max_rss
}

/// Whether another child may begin to work: always without pressure, and the only one always.
#[must_use]
pub fn admits(running: usize, under_pressure: bool) -> bool {
    running == 0 || !under_pressure
}

/// Decides at every sample; keeps killing suppressed for [`REAP_PAUSE_MS`] after a kill.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reaper {
    last_kill_ms: Option<u64>,
}

impl Reaper {
    /// The child to kill now, if any. `children` are pairs of id and resident memory.
    pub fn decide(&mut self, now_ms: u64, shortfall: u64, children: &[(u64, u64)]) -> Option<u64> {
        let paused = |last: u64| now_ms.saturating_sub(last) < REAP_PAUSE_MS;
        if self.last_kill_ms.is_some_and(paused) {
            return None;
        }
        let chosen = victim(children, shortfall)?;
        self.last_kill_ms = Some(now_ms);
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_a_clamped_tenth_or_as_configured() {
        let rows = [
            (0, 512 * MIB, 128 * MIB),
            (0, 2048 * MIB, 2048 * MIB / 10),
            (0, 64 * 1024 * MIB, 1024 * MIB),
            (77, 64 * 1024 * MIB, 77),
        ];
        for (min_free, total, expected) in rows {
            assert_eq!(margin(min_free, total), expected);
        }
    }

    #[test]
    fn who_is_reaped() {
        type Row = (&'static str, &'static [(u64, u64)], u64, Option<u64>);
        let rows: [Row; 7] = [
            ("no pressure", &[(1, 900)], 0, None),
            ("no children", &[], 10, None),
            ("largest covers", &[(1, 100), (2, 300), (3, 200)], 300, Some(2)),
            ("largest does not cover", &[(1, 100), (2, 299)], 300, None),
            ("all together would, one does not", &[(1, 200), (2, 200)], 300, None),
            ("a smaller one would do, the largest goes", &[(1, 10), (2, 500)], 5, Some(2)),
            ("equals: the older", &[(7, 50), (3, 50)], 50, Some(3)),
        ];
        for (what, children, shortfall, expected) in rows {
            assert_eq!(victim(children, shortfall), expected, "{what}");
        }
    }

    #[test]
    fn after_a_kill_the_reaper_waits() {
        let mut reaper = Reaper::default();
        let children = [(1, 100)];
        let decided: Vec<_> =
            [0, 500, 4_999, 5_000, 5_500].map(|now| reaper.decide(now, 50, &children)).into();
        assert_eq!(decided, [Some(1), None, None, Some(1), None]);
    }

    #[test]
    fn a_wait_starts_only_with_a_kill() {
        let mut reaper = Reaper::default();
        assert_eq!(reaper.decide(0, 500, &[(1, 100)]), None);
        assert_eq!(reaper.decide(500, 50, &[(1, 100)]), Some(1));
    }

    #[test]
    fn recycling_and_admission() {
        assert!(!must_recycle(100, 100));
        assert!(must_recycle(101, 100));
        assert!(admits(0, true));
        assert!(!admits(1, true));
        assert!(admits(5, false));
    }
}
