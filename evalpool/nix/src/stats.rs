//! What one request used.

use std::time::Instant;

use gradient_ipc::message::Stats;

use crate::library::Nix;
use crate::process::{self, ThreadClock};

/// The counters at the begin of a request. Other threads may read on: the counters of the collector
/// are single words, and the clock is named by its thread.
pub(crate) struct Meter {
    nix: Option<&'static Nix>,
    begin: Instant,
    clock: ThreadClock,
    cpu_us: u64,
    alloc_bytes: Option<u64>,
    gc_ms: Option<u64>,
}

impl Meter {
    /// Begins to count, on the thread that is to be counted.
    pub(crate) fn start(nix: Option<&'static Nix>) -> Meter {
        let clock = ThreadClock::of_this_thread();
        Meter {
            nix,
            begin: Instant::now(),
            cpu_us: clock.read_us(),
            clock,
            alloc_bytes: total_alloc_bytes(nix),
            gc_ms: total_gc_ms(nix),
        }
    }

    /// What was used since the begin. The heap and the peak are of the whole process.
    pub(crate) fn read(&self) -> Stats {
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Stats {
            wall_us: u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX),
            cpu_us: self.clock.read_us().saturating_sub(self.cpu_us),
            alloc_bytes: since(total_alloc_bytes(self.nix), self.alloc_bytes),
            heap_bytes: heap_bytes(self.nix),
            gc_ms: since(total_gc_ms(self.nix), self.gc_ms),
            rss_peak_bytes: process::rss_peak_bytes(),
        }
    }
}

fn total_alloc_bytes(nix: Option<&Nix>) -> Option<u64> {
    // SAFETY: reads a counter of the collector.
    nix?.api.GC_get_total_bytes.map(|read| unsafe { read() } as u64)
}

fn heap_bytes(nix: Option<&Nix>) -> Option<u64> {
    // SAFETY: as above.
    nix?.api.GC_get_heap_size.map(|read| unsafe { read() } as u64)
}

fn total_gc_ms(nix: Option<&Nix>) -> Option<u64> {
    // SAFETY: as above.
    nix?.api.GC_get_full_gc_total_time.map(|read| unsafe { read() } as u64)
}
