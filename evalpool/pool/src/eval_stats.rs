//! What an evaluation used, summed over its calls, as a whole and by entry point.

use gradient_domain::AttrPath;
use gradient_domain::pattern::{Pattern, Segment};
use gradient_ipc::message::Stats;
use gradient_ipc::shard::Shard;

/// Sums and peaks. A number that no call reported is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Calls to subprocesses.
    pub calls: u64,
    /// Wall time of the calls, in microseconds. Calls at the same time each count.
    pub wall_us: u64,
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
        self.calls += 1;
        self.wall_us = self.wall_us.saturating_add(stats.wall_us);
        self.cpu_us = self.cpu_us.saturating_add(stats.cpu_us);
        self.alloc_bytes = sum(self.alloc_bytes, stats.alloc_bytes);
        self.gc_ms = sum(self.gc_ms, stats.gc_ms);
        self.heap_peak_bytes = self.heap_peak_bytes.max(stats.heap_bytes);
        self.rss_peak_bytes = self.rss_peak_bytes.max(stats.rss_peak_bytes);
    }
}

/// What each entry point used. An entry point is a pattern of the evaluation as it was written; what
/// a call used goes to one of them as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPoints {
    used: Vec<(Pattern, Usage)>,
}

impl EntryPoints {
    /// No entry point has used anything yet.
    #[must_use]
    pub fn new(includes: &[Pattern]) -> EntryPoints {
        let unused = |include: &Pattern| (include.clone(), Usage::default());
        EntryPoints { used: includes.iter().map(unused).collect() }
    }

    /// Adds the numbers of the call that listed a shard: to the most exact pattern that leads there.
    pub fn add(&mut self, shard: &Shard, stats: &Stats) {
        let first = shard.only.as_deref().and_then(<[String]>::first);
        let path = match first {
            Some(name) => shard.prefix().child(name),
            None => shard.prefix(),
        };
        let leads =
            |pattern: &Pattern, path: &AttrPath| pattern.reaches(path) || pattern.passes(path);
        let literals = |pattern: &Pattern| {
            pattern.segments.iter().filter(|segment| matches!(segment, Segment::Name(_))).count()
        };
        let chosen = self
            .used
            .iter_mut()
            .filter(|(pattern, _)| leads(pattern, &path))
            .max_by_key(|(pattern, _)| (pattern.segments.len(), literals(pattern)));
        if let Some((_, usage)) = chosen {
            usage.add(stats);
        }
    }

    /// The patterns and what they used, in the order of the evaluation.
    pub fn iter(&self) -> impl Iterator<Item = &(Pattern, Usage)> {
        self.used.iter()
    }
}

#[cfg(test)]
mod tests {
    use gradient_domain::pattern::PatternSet;
    use gradient_ipc::shard::Recursion;

    use super::*;

    #[test]
    fn what_a_call_used_goes_to_the_most_exact_pattern() {
        let set: PatternSet =
            "packages.*,packages.x.*,packages.x.hello,checks.#.#".parse().expect("patterns");
        let mut points = EntryPoints::new(&set.includes);
        let path = |text: &str| -> AttrPath {
            text.parse::<Pattern>().expect("a path").exact_path().expect("a path")
        };
        let batch = |set: &str, name: &str| {
            Shard::of_set(&path(set), vec![name.into()], Recursion::Pattern)
        };
        let whole = |text: &str| {
            Shard::whole(text.parse::<Pattern>().expect("a pattern").segments, Recursion::Pattern)
        };
        let stats = |cpu_us| Stats { cpu_us, ..Stats::default() };
        points.add(&batch("packages.y", "a"), &stats(1));
        points.add(&batch("packages.x", "a"), &stats(2));
        points.add(&whole("packages.x.hello"), &stats(4));
        points.add(&batch("checks.x", "a"), &stats(8));
        points.add(&batch("elsewhere.x", "a"), &stats(16));
        let used: Vec<_> = points.iter().map(|(_, usage)| usage.cpu_us).collect();
        assert_eq!(used, [1, 2, 4, 8]);
    }

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
