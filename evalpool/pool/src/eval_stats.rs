//! What an evaluation used, summed over its calls.

use gradient_ipc::message::Stats;

/// Sums and peaks. A number that no call reported is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all evaluator threads, in microseconds.
    pub cpu_us: u64,
    /// Bytes allocated.
    pub alloc_bytes: Option<u64>,
    /// Time spent collecting garbage, in milliseconds.
    pub gc_ms: Option<u64>,
    /// Largest garbage-collected heap of one subprocess, in bytes.
    pub heap_peak_bytes: Option<u64>,
    /// Largest resident memory of one subprocess, in bytes.
    pub rss_peak_bytes: Option<u64>,
}

impl Usage {
    /// Adds the final numbers of one call.
    pub fn add(&mut self, stats: &Stats) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.cpu_us = self.cpu_us.saturating_add(stats.cpu_us);
        self.alloc_bytes = sum(self.alloc_bytes, stats.alloc_bytes);
        self.gc_ms = sum(self.gc_ms, stats.gc_ms);
        self.heap_peak_bytes = self.heap_peak_bytes.max(stats.heap_bytes);
        self.rss_peak_bytes = self.rss_peak_bytes.max(stats.rss_peak_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_summed_peaks_are_peaks_and_absent_stays_absent() {
        let mut usage = Usage::default();
        let one =
            Stats { cpu_us: 2, alloc_bytes: Some(5), rss_peak_bytes: Some(9), ..Stats::default() };
        usage.add(&one);
        usage.add(&Stats { cpu_us: 3, alloc_bytes: Some(1), rss_peak_bytes: Some(4), ..one });
        usage.add(&Stats::default());
        assert_eq!((usage.cpu_us, usage.alloc_bytes), (5, Some(6)));
        assert_eq!((usage.rss_peak_bytes, usage.heap_peak_bytes), (Some(9), None));
    }
}
