//! The guard of memory: samples the machine, reaps the child that explains a shortage and the one
//! that is larger than it may be, and lets a child begin only where it fits. The decisions are
//! `gradient_ipc::memory`'s.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradient_ipc::memory::{self, Load, Reading};
use tokio::time::{Instant, MissedTickBehavior};

use crate::process::KillSwitch;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two looks while a child waits for room.
const ADMISSION_INTERVAL: Duration = Duration::from_millis(200);
const MIB: u64 = 1024 * 1024;

/// Where the numbers come from; `/proc` outside tests.
pub trait MemoryProbe: Send + Sync + 'static {
    /// The memory of the machine, if known.
    fn machine(&self) -> Option<Reading>;
    /// Resident memory of a process in bytes, if it is there.
    fn rss_bytes(&self, pid: u32) -> Option<u64>;
}

/// The real machine.
pub(crate) struct Procfs;

impl MemoryProbe for Procfs {
    fn machine(&self) -> Option<Reading> {
        use procfs::Current;
        let info = procfs::Meminfo::current().ok()?;
        Some(Reading { total: info.mem_total, available: info.mem_available? })
    }

    fn rss_bytes(&self, pid: u32) -> Option<u64> {
        let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
        process.statm().ok()?.resident.checked_mul(procfs::page_size())
    }
}

/// What a pool may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Memory of the machine, in bytes, that stays free; 0 for the usual margin.
    pub(crate) min_free: u64,
    /// Resident memory, in bytes, that no child keeps after a call.
    pub(crate) max_rss: u64,
    /// Resident memory, in bytes, that no child has at any time, if there is such a bound.
    pub(crate) kill_rss: Option<u64>,
}

struct LiveChild {
    pid: u32,
    switch: Arc<KillSwitch>,
    is_at_work: bool,
}

#[derive(Default)]
struct Children {
    live: BTreeMap<u64, LiveChild>,
    /// The most that one of those had that are gone; 0 again when all are.
    largest_gone: u64,
}

/// All live children of a pool, and what the machine has left for them.
pub(crate) struct Guard {
    probe: Box<dyn MemoryProbe>,
    limits: Limits,
    children: Mutex<Children>,
    /// Children that were admitted. Some of them may not have started yet.
    working: Mutex<usize>,
}

impl Guard {
    pub(crate) fn new(probe: Box<dyn MemoryProbe>, limits: Limits) -> Arc<Guard> {
        Arc::new(Guard { probe, limits, children: Mutex::default(), working: Mutex::new(0) })
    }

    pub(crate) fn register(self: &Arc<Self>, id: u64, pid: u32, switch: Arc<KillSwitch>) -> Listed {
        self.children().live.insert(id, LiveChild { pid, switch, is_at_work: false });
        Listed { guard: self.clone(), id }
    }

    pub(crate) fn rss_bytes(&self, pid: u32) -> Option<u64> {
        self.probe.rss_bytes(pid)
    }

    /// Memory of the machine in bytes, if known.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.probe.machine().map(|reading| reading.total)
    }

    fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Samples until the pool is gone.
    pub(crate) async fn watch(self: Arc<Self>) {
        let begin = Instant::now();
        let mut reaper = memory::Reaper::default();
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.sample(&mut reaper, now_ms);
        }
    }

    /// One look: notes every child's memory as a peak, then decides.
    fn sample(&self, reaper: &mut memory::Reaper, now_ms: u64) {
        let children = self.children();
        let sizes: Vec<_> =
            children.live.iter().map(|(id, child)| (*id, self.measure(child))).collect();
        if self.kill_over_limit(&children, &sizes) {
            // Its memory comes back, which the machine's numbers do not show yet.
            return;
        }
        let Some(reading) = self.probe.machine() else {
            return;
        };
        let margin = memory::margin(self.limits.min_free, reading.total);
        let shortfall = memory::shortfall(reading, margin);
        let Some(victim) = reaper.decide(now_ms, shortfall, &sizes) else {
            return;
        };
        let rss = sizes.iter().find(|(id, _)| *id == victim).map_or(0, |(_, rss)| *rss);
        if let Some(child) = children.live.get(&victim) {
            child.kill(format!(
                "killed to keep {} MiB of memory free: {} MiB were left and it held {} MiB",
                margin / MIB,
                reading.available / MIB,
                rss / MIB
            ));
        }
    }

    /// Kills whoever has more than one child may have; whether there was somebody.
    fn kill_over_limit(&self, children: &Children, sizes: &[(u64, u64)]) -> bool {
        let mut killed = false;
        for id in memory::over_limit(sizes, self.limits.kill_rss) {
            // Who is dying already is not killed again.
            let alive = |child: &&LiveChild| child.switch.reason().is_none();
            if let Some(child) = children.live.get(&id).filter(alive) {
                let (rss, limit) = (self.measure(child), self.limits.kill_rss.unwrap_or(0));
                child.kill(format!(
                    "killed for its memory: it held {} MiB, and one evaluator may have {} MiB",
                    rss / MIB,
                    limit / MIB
                ));
                killed = true;
            }
        }
        killed
    }

    /// Resident memory of a child now, noted as a peak.
    fn measure(&self, child: &LiveChild) -> u64 {
        let rss = self.probe.rss_bytes(child.pid).unwrap_or(0);
        child.switch.note_rss(rss);
        rss
    }

    /// Waits until one more child may work.
    pub(crate) async fn admit(self: &Arc<Self>) -> Turn {
        loop {
            {
                let mut working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
                if *working == 0 || self.has_room(*working) {
                    *working += 1;
                    return Turn { guard: self.clone() };
                }
            }
            tokio::time::sleep(ADMISSION_INTERVAL).await;
        }
    }

    /// Whether one more child fits beside so many. Where the machine's memory is not known, it does.
    fn has_room(&self, working: usize) -> bool {
        let Some(reading) = self.probe.machine() else {
            return true;
        };
        let margin = memory::margin(self.limits.min_free, reading.total);
        let children = self.children();
        let (mut at_work, mut idle) = (Vec::new(), Vec::new());
        let mut largest = children.largest_gone;
        for child in children.live.values() {
            let rss = self.measure(child);
            largest = largest.max(child.switch.note_rss(rss));
            if child.is_at_work { at_work.push(rss) } else { idle.push(rss) }
        }
        // The rest are about to start, or to take an idle child.
        at_work.resize(working.max(at_work.len()), 0);
        let expected = memory::expected_size(largest, self.limits.max_rss);
        let next = idle.into_iter().min().unwrap_or(0);
        memory::admits(reading.available, margin, Load { at_work: &at_work, next, expected })
    }
}

impl LiveChild {
    fn kill(&self, reason: String) {
        tracing::warn!(pid = self.pid, %reason, "evaluator reaped");
        self.switch.kill(reason);
    }
}

/// A child that the guard watches, until this is dropped.
pub(crate) struct Listed {
    guard: Arc<Guard>,
    id: u64,
}

impl Listed {
    /// The child was handed out, or came back.
    pub(crate) fn set_at_work(&self, is_at_work: bool) {
        if let Some(child) = self.guard.children().live.get_mut(&self.id) {
            child.is_at_work = is_at_work;
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut children = self.guard.children();
        let peak = children.live.remove(&self.id).map_or(0, |child| child.switch.note_rss(0));
        children.largest_gone = match children.live.is_empty() {
            true => 0,
            false => children.largest_gone.max(peak),
        };
    }
}

/// The right to work, until this is dropped.
pub(crate) struct Turn {
    guard: Arc<Guard>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut working = self.guard.working.lock().unwrap_or_else(PoisonError::into_inner);
        *working = working.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Reading);

    impl MemoryProbe for Fixed {
        fn machine(&self) -> Option<Reading> {
            Some(self.0)
        }

        fn rss_bytes(&self, pid: u32) -> Option<u64> {
            Some(u64::from(pid) * MIB)
        }
    }

    fn limits(min_free_mib: u64) -> Limits {
        Limits { min_free: min_free_mib * MIB, max_rss: 2048 * MIB, kill_rss: None }
    }

    #[tokio::test(start_paused = true)]
    async fn under_pressure_one_works_and_the_next_waits_for_it() {
        let short = Reading { total: 1000 * MIB, available: 10 * MIB };
        let guard = Guard::new(Box::new(Fixed(short)), limits(50));
        let first = guard.admit().await;
        let waiting = tokio::spawn({
            let guard = guard.clone();
            async move { guard.admit().await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.expect("admitted");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_waits_until_what_it_may_take_fits_beside_the_others() {
        let room = Reading { total: 8000 * MIB, available: 1299 * MIB };
        let guard = Guard::new(Box::new(Fixed(room)), limits(100));
        let grown = guard.register(1, 600, KillSwitch::new());
        let first = guard.admit().await;
        grown.set_at_work(true);
        // 600 MiB for this one and the 100 that stay free: that fits into 1299, another 600 do not.
        let _second = guard.admit().await;
        let waiting = tokio::spawn({
            let guard = guard.clone();
            async move { guard.admit().await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        // It stays idle, and the next one takes it.
        grown.set_at_work(false);
        drop(first);
        waiting.await.expect("admitted");
    }

    #[test]
    fn what_was_seen_is_forgotten_when_all_children_are_gone() {
        let room = Reading { total: 8000 * MIB, available: 700 * MIB };
        let guard = Guard::new(Box::new(Fixed(room)), limits(100));
        let small = guard.register(1, 10, KillSwitch::new());
        small.set_at_work(true);
        assert!(guard.has_room(1), "118 and 128 MiB are expected");
        let large = guard.register(2, 500, KillSwitch::new());
        guard.sample(&mut memory::Reaper::default(), 0);
        drop(large);
        assert!(!guard.has_room(1), "490 and 500 MiB are expected");
        drop(small);
        assert!(guard.has_room(1));
    }

    #[test]
    fn a_child_over_its_own_limit_is_killed_whatever_the_machine_has() {
        let plenty = Reading { total: 8000 * MIB, available: 7000 * MIB };
        let limits = Limits { kill_rss: Some(60 * MIB), ..limits(50) };
        let guard = Guard::new(Box::new(Fixed(plenty)), limits);
        let (fits, large) = (KillSwitch::new(), KillSwitch::new());
        let _fits = guard.register(1, 60, fits.clone());
        let _large = guard.register(2, 61, large.clone());
        guard.sample(&mut memory::Reaper::default(), 0);
        assert_eq!(fits.reason(), None);
        assert_eq!(
            large.reason().as_deref(),
            Some("killed for its memory: it held 61 MiB, and one evaluator may have 60 MiB")
        );
    }

    #[test]
    fn the_child_that_explains_the_shortage_is_killed() {
        let short = Reading { total: 1000 * MIB, available: 10 * MIB };
        let guard = Guard::new(Box::new(Fixed(short)), limits(50));
        let (small, large) = (KillSwitch::new(), KillSwitch::new());
        let _small = guard.register(1, 30, small.clone());
        let _large = guard.register(2, 60, large.clone());
        guard.sample(&mut memory::Reaper::default(), 0);
        assert_eq!(small.reason(), None);
        assert_eq!(
            large.reason().as_deref(),
            Some("killed to keep 50 MiB of memory free: 10 MiB were left and it held 60 MiB")
        );
    }

    #[test]
    fn the_real_machine_has_numbers() {
        let reading = Procfs.machine().expect("/proc/meminfo");
        assert!(reading.total > reading.available && reading.available > 0);
        assert!(Procfs.rss_bytes(std::process::id()).expect("own process") > MIB);
    }
}
