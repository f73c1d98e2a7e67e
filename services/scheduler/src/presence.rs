//! Who is there: the newest message of any kind counts. This memory is the shell's; after a restart
//! every worker gets a full timeout of grace (protocol page, HEARTBEATS).

use std::collections::BTreeMap;
use std::time::Duration;

use gradient_domain::WorkerId;
use gradient_events::worker::WorkerMetrics;
use gradient_scheduler_core::State;
use tokio::time::Instant;

/// Figures older than this are recorded again though they hardly changed.
const METRICS_REFRESH: Duration = Duration::from_secs(60);
/// A change of this many percent is material.
const MATERIAL_PCT: u64 = 5;

/// When each worker was last heard, and which of its figures are in the log.
#[derive(Debug)]
pub(crate) struct Presence {
    timeout: Duration,
    seen: BTreeMap<WorkerId, Instant>,
    recorded: BTreeMap<WorkerId, (Instant, WorkerMetrics)>,
}

impl Presence {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, seen: BTreeMap::new(), recorded: BTreeMap::new() }
    }

    pub(crate) fn heard(&mut self, worker: WorkerId) {
        self.seen.insert(worker, Instant::now());
    }

    /// Workers that are here by the log and were silent for the timeout.
    pub(crate) fn silent(&mut self, state: &State) -> Vec<WorkerId> {
        if self.timeout.is_zero() {
            return Vec::new();
        }
        let now = Instant::now();
        let here = state.workers().iter().filter(|(_, worker)| worker.presence.is_here());
        here.map(|(id, _)| *id)
            .filter(|id| now.duration_since(*self.seen.entry(*id).or_insert(now)) >= self.timeout)
            .collect()
    }

    /// Whether figures are worth an entry; if so they count as recorded.
    pub(crate) fn is_material(&mut self, worker: WorkerId, metrics: &WorkerMetrics) -> bool {
        let now = Instant::now();
        let is_news = self.recorded.get(&worker).is_none_or(|(at, known)| {
            let overdue = now.duration_since(*at) >= METRICS_REFRESH && known != metrics;
            overdue || changed(known, metrics)
        });
        if is_news {
            self.recorded.insert(worker, (now, metrics.clone()));
        }
        is_news
    }
}

fn changed(known: &WorkerMetrics, metrics: &WorkerMetrics) -> bool {
    let points = u64::from(known.cpu_usage_pct.abs_diff(metrics.cpu_usage_pct));
    let relative =
        |a: u64, b: u64| a.abs_diff(b).saturating_mul(100) >= MATERIAL_PCT.saturating_mul(a.max(1));
    points >= MATERIAL_PCT || relative(known.ram_free_mb, metrics.ram_free_mb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_are_no_news() {
        let metrics = |cpu, ram| WorkerMetrics {
            cpu_usage_pct: cpu,
            ram_free_mb: ram,
            ..WorkerMetrics::default()
        };
        let mut presence = Presence::new(Duration::ZERO);
        let worker = WorkerId([1; 16]);
        assert!(presence.is_material(worker, &metrics(10, 1000)), "the first figures");
        assert!(!presence.is_material(worker, &metrics(12, 990)));
        assert!(presence.is_material(worker, &metrics(15, 1000)), "five points of processor");
        assert!(presence.is_material(worker, &metrics(15, 1050)), "five percent of memory");
    }
}
