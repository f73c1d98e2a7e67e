//! The free-RAM guard: samples the machine, reaps the child that explains a shortage, and lets only
//! one child work while memory is short. The decisions are `gradient_ipc::memory`'s.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradient_ipc::memory::{self, Reading};
use tokio::time::{Instant, MissedTickBehavior};

use crate::process::KillSwitch;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two looks while a child waits for pressure to end.
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

struct LiveChild {
    pid: u32,
    switch: Arc<KillSwitch>,
}

/// All live children of a pool, and the pressure on the machine.
pub(crate) struct Guard {
    probe: Box<dyn MemoryProbe>,
    min_free: u64,
    children: Mutex<BTreeMap<u64, LiveChild>>,
    under_pressure: AtomicBool,
    working: Mutex<usize>,
}

impl Guard {
    pub(crate) fn new(probe: Box<dyn MemoryProbe>, min_free: u64) -> Arc<Guard> {
        Arc::new(Guard {
            probe,
            min_free,
            children: Mutex::default(),
            under_pressure: AtomicBool::new(false),
            working: Mutex::new(0),
        })
    }

    pub(crate) fn register(self: &Arc<Self>, id: u64, pid: u32, switch: Arc<KillSwitch>) -> Listed {
        self.children().insert(id, LiveChild { pid, switch });
        Listed { guard: self.clone(), id }
    }

    pub(crate) fn rss_bytes(&self, pid: u32) -> Option<u64> {
        self.probe.rss_bytes(pid)
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<u64, LiveChild>> {
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
        let Some(reading) = self.probe.machine() else {
            return;
        };
        let margin = memory::margin(self.min_free, reading.total);
        let shortfall = memory::shortfall(reading, margin);
        self.under_pressure.store(shortfall > 0, Ordering::Relaxed);
        let children = self.children();
        let sizes: Vec<_> = children
            .iter()
            .map(|(id, child)| {
                let rss = self.probe.rss_bytes(child.pid).unwrap_or(0);
                child.switch.note_rss(rss);
                (*id, rss)
            })
            .collect();
        let Some(victim) = reaper.decide(now_ms, shortfall, &sizes) else {
            return;
        };
        let rss = sizes.iter().find(|(id, _)| *id == victim).map_or(0, |(_, rss)| *rss);
        if let Some(child) = children.get(&victim) {
            let reason = format!(
                "killed to keep {} MiB of memory free: {} MiB were left and it held {} MiB",
                margin / MIB,
                reading.available / MIB,
                rss / MIB
            );
            tracing::warn!(pid = child.pid, %reason, "evaluator reaped");
            child.switch.kill(reason);
        }
    }

    /// Waits until one more child may work.
    pub(crate) async fn admit(self: &Arc<Self>) -> Turn {
        loop {
            {
                let mut working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
                if memory::admits(*working, self.under_pressure.load(Ordering::Relaxed)) {
                    *working += 1;
                    return Turn { guard: self.clone() };
                }
            }
            tokio::time::sleep(ADMISSION_INTERVAL).await;
        }
    }
}

/// A child that the guard watches, until this is dropped.
pub(crate) struct Listed {
    guard: Arc<Guard>,
    id: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.guard.children().remove(&self.id);
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

    #[tokio::test(start_paused = true)]
    async fn under_pressure_one_works_and_the_next_waits_for_it() {
        let short = Reading { total: 1000 * MIB, available: 10 * MIB };
        let guard = Guard::new(Box::new(Fixed(short)), 50 * MIB);
        guard.sample(&mut memory::Reaper::default(), 0);
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

    #[test]
    fn the_child_that_explains_the_shortage_is_killed() {
        let short = Reading { total: 1000 * MIB, available: 10 * MIB };
        let guard = Guard::new(Box::new(Fixed(short)), 50 * MIB);
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
