//! Live figures of the machine for the heartbeat (spec, Metrics and Liveness).

use gradient_events::worker::WorkerMetrics;
use procfs::{Current, CurrentSI};

/// Samples the machine; processor use is measured between two samples.
#[derive(Debug, Default)]
pub struct Sampler {
    before: Option<(u64, u64)>,
}

impl Sampler {
    /// The figures now. What cannot be read stays 0 or absent.
    pub fn sample(&mut self) -> WorkerMetrics {
        let now = cpu_ticks();
        let cpu_usage_pct = match (self.before, now) {
            (Some(before), Some(now)) => usage(before, now),
            _ => 0,
        };
        self.before = now;
        let memory = procfs::Meminfo::current().ok();
        let ram_free_mb =
            memory.and_then(|memory| memory.mem_available).map_or(0, |bytes| bytes >> 20);
        WorkerMetrics { cpu_usage_pct, ram_free_mb, ..WorkerMetrics::default() }
    }
}

/// Busy and total ticks of all processors since boot.
fn cpu_ticks() -> Option<(u64, u64)> {
    let total = procfs::KernelStats::current().ok()?.total;
    let idle = total.idle + total.iowait.unwrap_or(0);
    let busy = total.user
        + total.nice
        + total.system
        + total.irq.unwrap_or(0)
        + total.softirq.unwrap_or(0)
        + total.steal.unwrap_or(0);
    Some((busy, busy + idle))
}

fn usage((busy_before, total_before): (u64, u64), (busy, total): (u64, u64)) -> u32 {
    let total = total.saturating_sub(total_before);
    let busy = busy.saturating_sub(busy_before).min(total);
    (busy * 100).checked_div(total).map_or(0, |pct| u32::try_from(pct).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_a_share_of_the_time_between() {
        assert_eq!(usage((10, 100), (60, 200)), 50);
        assert_eq!(usage((10, 100), (10, 100)), 0);
        assert_eq!(usage((10, 100), (5, 90)), 0, "counters that went back are no news");
    }

    #[test]
    fn this_machine_can_be_sampled() {
        let mut sampler = Sampler::default();
        sampler.sample();
        assert!(sampler.sample().ram_free_mb > 0);
    }
}
