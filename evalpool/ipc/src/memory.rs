//! What memory decides: who is recycled after a call, who is killed in the middle of one, for its own
//! size or because the machine runs short, and whether another child may begin. All sizes are bytes,
//! all times milliseconds.

const MIB: u64 = 1024 * 1024;

/// Pause after a kill, in milliseconds: its memory needs time to come back.
pub const REAP_PAUSE_MS: u64 = 5_000;

/// What a child is expected to come to at least, in bytes: so much it takes to load Nix and open a
/// flake.
pub const START_SIZE: u64 = 128 * MIB;

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

/// Whether a child ends after its call instead of going back to the pool. Where a child may not have
/// more than `kill_rss` at any time, one that has half of it is replaced: the next call would be killed
/// for what the last ones left.
#[must_use]
pub fn must_recycle(rss: u64, max_rss: u64, kill_rss: Option<u64>) -> bool {
    rss > kill_rss.map_or(max_rss, |ceiling| max_rss.min(ceiling / 2))
}

/// Whether the limits of all children together are more than three quarters of the machine's memory.
/// That is allowed, since few of them grow so far at a time; but then fewer work when they do.
#[must_use]
pub fn is_overcommitted(children: usize, max_rss: u64, total: u64) -> bool {
    let children = u64::try_from(children).unwrap_or(u64::MAX);
    max_rss.saturating_mul(children) > total / 4 * 3
}

/// The children that are larger than one child may be. This bounds one child alone, however much
/// the machine has; `None` is no bound but the machine's.
#[must_use]
pub fn over_limit(children: &[(u64, u64)], limit: Option<u64>) -> Vec<u64> {
    let over = |rss: u64| limit.is_some_and(|limit| rss > limit);
    children.iter().filter(|(_, rss)| over(*rss)).map(|(id, _)| *id).collect()
}

/// What a child at work is expected to come to: as much as the largest did (`largest_seen`), since
/// the batches of one evaluation are of one kind. Never more than `max_rss`, beyond which a child is
/// replaced after its call: what grew further is a single attribute, which says nothing of the
/// others. And nobody is expected to need less than [`START_SIZE`] before anything was seen.
#[must_use]
pub fn expected_size(largest_seen: u64, max_rss: u64) -> u64 {
    largest_seen.max(START_SIZE).min(max_rss)
}

/// The children of a pool, as one more asks to work.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Resident memory of each child at work; 0 for one that is about to start.
    pub at_work: &'a [u64],
    /// Resident memory of the child that asks; 0 if it is yet to be started.
    pub next: u64,
    /// What each of them is expected to come to.
    pub expected: u64,
}

/// Whether one more child may begin to work: if the memory that is available holds what all those
/// at work and this one are still expected to take, and the margin. What they hold already is not
/// available any more. The only one may always, so that every evaluation comes to its end.
#[must_use]
pub fn admits(available: u64, margin: u64, load: Load<'_>) -> bool {
    if load.at_work.is_empty() {
        return true;
    }
    let children = load.at_work.iter().chain([&load.next]);
    let growth = children.map(|rss| load.expected.saturating_sub(*rss));
    let taken = growth.fold(margin, u64::saturating_add);
    taken <= available
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
    fn who_is_over_a_limit() {
        assert!(!must_recycle(100, 100, None));
        assert!(must_recycle(101, 100, None));
        assert!(!must_recycle(50, 100, Some(100)));
        assert!(must_recycle(51, 100, Some(100)));
        assert!(must_recycle(101, 100, Some(1_000)));
        let children = [(1, 100), (2, 101), (3, 5_000)];
        assert_eq!(over_limit(&children, Some(100)), [2, 3]);
        assert_eq!(over_limit(&children, None), Vec::<u64>::new());
    }

    #[test]
    fn limits_beyond_the_machine_are_noticed() {
        assert!(!is_overcommitted(6, 2048 * MIB, 16 * 1024 * MIB));
        assert!(is_overcommitted(7, 2048 * MIB, 16 * 1024 * MIB));
        assert!(is_overcommitted(usize::MAX, u64::MAX, u64::MAX));
    }

    #[test]
    fn what_a_child_is_expected_to_come_to() {
        let rows = [
            ("nothing was seen", 0, 2048 * MIB, START_SIZE),
            ("as large as the largest", 700 * MIB, 2048 * MIB, 700 * MIB),
            ("a bomb is one attribute's matter", 21_000 * MIB, 2048 * MIB, 2048 * MIB),
            ("a limit below the start", 0, MIB, MIB),
        ];
        for (what, largest, max_rss, expected) in rows {
            assert_eq!(expected_size(largest, max_rss), expected, "{what}");
        }
    }

    #[test]
    fn who_may_begin() {
        type Row = (&'static str, u64, &'static [u64], u64, bool);
        // Available, sizes of those at work, size of the one that asks; 500 are expected of each, 100
        // stay free.
        let rows: [Row; 12] = [
            ("the only one, whatever there is", 0, &[], 0, true),
            ("room for a second", 600, &[500], 0, true),
            ("no room for a second", 599, &[500], 0, false),
            ("the first has yet to grow", 1_099, &[0], 0, false),
            ("it may and there is room", 1_100, &[0], 0, true),
            ("a warm one takes less", 300, &[500], 300, true),
            ("but it takes something", 299, &[500], 300, false),
            ("one that is full grown takes nothing", 100, &[500], 500, true),
            ("not even that under pressure", 99, &[500], 500, false),
            ("larger than expected counts as grown", 600, &[9_000], 0, true),
            ("many that just begin", 2_099, &[0, 0, 0], 0, false),
            ("all of them fit", 2_100, &[0, 0, 0], 0, true),
        ];
        for (what, available, at_work, next, expected) in rows {
            let load = Load { at_work, next, expected: 500 };
            assert_eq!(admits(available, 100, load), expected, "{what}");
        }
        let many = [0; 3];
        let load = Load { at_work: &many, next: 0, expected: u64::MAX };
        assert!(!admits(u64::MAX - 1, 100, load), "sums do not overflow");
    }
}
