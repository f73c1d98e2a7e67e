//! What an evaluation used, for `--stats`: one line of JSON on standard error, after everything else.

use anyhow::Context as _;
use gradient_domain::pattern::Pattern;
use gradient_pool::DiscoverySummary;
use gradient_pool::eval_stats::Usage;
use serde::Serialize;

/// The line. A number that nobody measured is absent, never zero.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    attributes: u64,
    errors: u64,
    warnings: u64,
    /// Whether the evaluation cache had the whole answer, so that no evaluator was asked.
    is_cached: bool,
    /// Calls that an evaluator did not survive.
    crashes: u64,
    /// From begin to end, the evaluation alone.
    wall_us: u64,
    total: Used,
    entry_points: Vec<EntryPoint>,
}

/// What one pattern used. What planning used belongs to none of them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryPoint {
    pattern: String,
    #[serde(flatten)]
    used: Used,
}

/// Sums over calls, but for peaks. Calls at the same time each count.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alloc_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gc_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heap_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss_peak_bytes: Option<u64>,
}

impl From<&Usage> for Used {
    fn from(usage: &Usage) -> Used {
        let measured = usage.calls > 0;
        Used {
            calls: usage.calls,
            wall_us: measured.then_some(usage.wall_us),
            cpu_us: measured.then_some(usage.cpu_us),
            alloc_bytes: usage.alloc_bytes,
            gc_ms: usage.gc_ms,
            heap_peak_bytes: usage.heap_peak_bytes,
            rss_peak_bytes: usage.rss_peak_bytes,
        }
    }
}

/// The text of the line.
pub(super) fn line(summary: &DiscoverySummary) -> anyhow::Result<String> {
    let entry_point = |(pattern, usage): &(Pattern, Usage)| EntryPoint {
        pattern: pattern.to_string(),
        used: usage.into(),
    };
    let stats = Stats {
        attributes: summary.attributes,
        errors: summary.errors,
        warnings: summary.warnings,
        is_cached: summary.is_cached,
        crashes: summary.crashes,
        wall_us: u64::try_from(summary.wall.as_micros()).unwrap_or(u64::MAX),
        total: (&summary.usage).into(),
        entry_points: summary.entry_points.iter().map(entry_point).collect(),
    };
    serde_json::to_string(&stats).context("the statistics are no JSON")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gradient_domain::pattern::PatternSet;
    use gradient_pool::eval_stats::EntryPoints;

    use super::*;

    #[test]
    fn what_nobody_measured_is_absent() {
        let set: PatternSet = "packages.*,checks.x.#".parse().expect("patterns");
        let usage = Usage {
            calls: 2,
            wall_us: 30,
            cpu_us: 20,
            alloc_bytes: Some(7),
            rss_peak_bytes: Some(9),
            ..Usage::default()
        };
        let summary = DiscoverySummary {
            attributes: 3,
            wall: Duration::from_millis(5),
            usage,
            entry_points: EntryPoints::new(&set.includes),
            ..DiscoverySummary::default()
        };
        let expected = concat!(
            r#"{"attributes":3,"errors":0,"warnings":0,"isCached":false,"crashes":0,"wallUs":5000,"#,
            r#""total":{"calls":2,"wallUs":30,"cpuUs":20,"allocBytes":7,"rssPeakBytes":9},"#,
            r#""entryPoints":[{"pattern":"packages.*","calls":0},{"pattern":"checks.x.#","calls":0}]}"#,
        );
        assert_eq!(line(&summary).expect("a line"), expected);
    }
}
