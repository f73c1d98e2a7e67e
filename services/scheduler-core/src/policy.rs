//! Scoring policies: named rules whose integer points are summed (reference 4.1, 4.4; ADR 3).

use gradient_domain::Timestamp;
use gradient_events::score::{MilliPoints, Rule, RulePoints};

use crate::worker::WorkerScore;

/// Nothing below this total is handed out; exactly this is (reference 10, row 6).
pub const ASSIGNMENT_FLOOR: MilliPoints = MilliPoints(0);

const POINT: i64 = 1_000;
/// Most points for missing paths, and the count that gives none: twice the fallback mean of 20.
const MISSING_PATHS: (i64, i64) = (200 * POINT, 2 * 20);
/// Most points for missing bytes, and the size that gives none: twice the fallback mean of 1,024 MiB.
const MISSING_NAR_SIZE: (i64, i64) = (500 * POINT, 2 * 1024 * 1024 * 1024);
/// Points for the mean wait (fallback 60 s), and most points for any wait.
const WAIT_TIME: (i64, i64) = (60 * POINT, 4_000 * POINT);
/// The mean wait while nothing was measured, in seconds.
const WAIT_MEAN_SECS: i64 = 60;

/// What the rules look at for one candidate and one worker. Times are inputs, never a clock.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Since when it waits.
    pub ready_at: Timestamp,
    /// What the worker said of it; `None` if it said nothing yet.
    pub answer: Option<&'a WorkerScore>,
    /// The moment of the request.
    pub now: Timestamp,
}

/// A named list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Missing paths, missing bytes, waiting time.
    Simple,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 1] = [Policy::Simple];

    /// The name by which a person configures it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::Simple => "simple",
        }
    }

    /// The policy of a name; an unknown name falls back to `simple` (the shell warns).
    #[must_use]
    pub fn named(name: &str) -> Policy {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).unwrap_or(Policy::Simple)
    }

    /// The rules of the policy, in the order of their breakdown.
    #[must_use]
    pub fn rules(self) -> &'static [Rule] {
        match self {
            Policy::Simple => &[Rule::MissingPaths, Rule::MissingNarSize, Rule::WaitTime],
        }
    }

    /// Sum of the rules for one candidate.
    #[must_use]
    pub fn total(self, candidate: &Candidate<'_>) -> MilliPoints {
        MilliPoints(self.rules().iter().map(|rule| points(*rule, candidate).0).sum())
    }

    /// Each rule's part of the total.
    #[must_use]
    pub fn breakdown(self, candidate: &Candidate<'_>) -> Vec<RulePoints> {
        self.rules()
            .iter()
            .map(|rule| RulePoints { rule: *rule, points: points(*rule, candidate) })
            .collect()
    }

    /// The part of the total that depends on the worker's answer alone; 0 without an answer.
    #[must_use]
    pub fn worker_part(self, answer: &WorkerScore) -> MilliPoints {
        let parts = self.rules().iter().map(|rule| match rule {
            Rule::MissingPaths | Rule::MissingNarSize => answer_points(*rule, answer),
            Rule::WaitTime => 0,
        });
        MilliPoints(parts.sum())
    }

    /// The part of the total that is the same for every worker; it falls with a later `ready_at`.
    #[must_use]
    pub fn common_part(self, ready_at: Timestamp, now: Timestamp) -> MilliPoints {
        let parts = self.rules().iter().map(|rule| match rule {
            Rule::MissingPaths | Rule::MissingNarSize => 0,
            Rule::WaitTime => wait_points(ready_at, now),
        });
        MilliPoints(parts.sum())
    }
}

fn points(rule: Rule, candidate: &Candidate<'_>) -> MilliPoints {
    MilliPoints(match (rule, candidate.answer) {
        (Rule::MissingPaths | Rule::MissingNarSize, Some(answer)) => answer_points(rule, answer),
        (Rule::MissingPaths | Rule::MissingNarSize, None) => 0,
        (Rule::WaitTime, _) => wait_points(candidate.ready_at, candidate.now),
    })
}

fn answer_points(rule: Rule, answer: &WorkerScore) -> i64 {
    match rule {
        Rule::MissingPaths => falling(MISSING_PATHS, i64::from(answer.missing_count)),
        Rule::MissingNarSize => {
            falling(MISSING_NAR_SIZE, i64::try_from(answer.missing_nar_size).unwrap_or(i64::MAX))
        }
        Rule::WaitTime => 0,
    }
}

/// From `most` points at 0 down to none at `none_at` and beyond.
fn falling((most, none_at): (i64, i64), value: i64) -> i64 {
    let left = i128::from(none_at - value.clamp(0, none_at));
    i64::try_from(i128::from(most) * left / i128::from(none_at)).expect("at most `most`")
}

/// Counted in milliseconds, so that the order of waiting is the order of the points (ADR 17).
fn wait_points(ready_at: Timestamp, now: Timestamp) -> i64 {
    let (per_mean, most) = WAIT_TIME;
    let waited_ms = i64::try_from(now.since_ms(ready_at)).unwrap_or(i64::MAX);
    waited_ms.saturating_mul(per_mean / POINT / WAIT_MEAN_SECS).min(most)
}

#[cfg(test)]
mod tests {
    use gradient_events::score::OfferNumber;

    use super::*;

    fn total(missing_count: u32, missing_nar_size: u64, waited_ms: u64) -> i64 {
        let answer = WorkerScore {
            offer: OfferNumber(1),
            missing_count,
            missing_nar_size,
            outputs_present: false,
        };
        let candidate = Candidate {
            ready_at: Timestamp(1_000),
            answer: Some(&answer),
            now: Timestamp(1_000 + waited_ms),
        };
        let breakdown: i64 = Policy::Simple.breakdown(&candidate).iter().map(|r| r.points.0).sum();
        assert_eq!(Policy::Simple.total(&candidate).0, breakdown);
        let parts = Policy::Simple.worker_part(&answer).0
            + Policy::Simple.common_part(candidate.ready_at, candidate.now).0;
        assert_eq!(parts, breakdown, "the two parts are the whole");
        breakdown
    }

    #[test]
    fn simple_policy_table() {
        let rows = [
            (0, 0, 0, 700_000),
            (20, 0, 0, 600_000),
            (40, 2 << 30, 0, 0),
            (4_000, u64::MAX, 0, 0),
            (40, 1 << 30, 0, 250_000),
            (40, 2 << 30, 999, 999),
            (40, 2 << 30, 60_000, 60_000),
            (40, 2 << 30, 100_000_000, 4_000_000),
        ];
        for (count, size, waited_ms, right) in rows {
            assert_eq!(
                total(count, size, waited_ms),
                right,
                "{count} paths, {size} bytes, {waited_ms} ms"
            );
        }
    }

    #[test]
    fn an_unscored_candidate_has_its_waiting_only() {
        let candidate = Candidate { ready_at: Timestamp(0), answer: None, now: Timestamp(5_000) };
        assert_eq!(Policy::Simple.total(&candidate), MilliPoints(5_000));
    }
}
