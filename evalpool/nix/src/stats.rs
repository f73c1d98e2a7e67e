//! What one request used.

use std::time::Instant;

use gradient_ipc::message::Stats;

use crate::library::Nix;
use crate::process;

/// The counters at the begin of a request.
pub(crate) struct Meter {
    begin: Instant,
    cpu_us: u64,
    alloc_bytes: Option<u64>,
    gc_ms: Option<u64>,
}

impl Meter {
    /// Begins to count.
    pub(crate) fn start(nix: Option<&Nix>) -> Meter {
        Meter {
            begin: Instant::now(),
            cpu_us: process::thread_cpu_us(),
            alloc_bytes: total_alloc_bytes(nix),
            gc_ms: total_gc_ms(nix),
        }
    }

    /// What was used since the begin. The heap and the peak are of the whole process.
    pub(crate) fn read(&self, nix: Option<&Nix>) -> Stats {
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Stats {
            wall_us: u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX),
            cpu_us: process::thread_cpu_us().saturating_sub(self.cpu_us),
            alloc_bytes: since(total_alloc_bytes(nix), self.alloc_bytes),
            heap_bytes: heap_bytes(nix),
            gc_ms: since(total_gc_ms(nix), self.gc_ms),
            rss_peak_bytes: process::rss_peak_bytes(),
        }
    }
}

fn total_alloc_bytes(nix: Option<&Nix>) -> Option<u64> {
    // SAFETY: reads a counter of the collector, from the thread that it knows.
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
