//! Scores: what a worker says of a candidate, and what the policy makes of it.

use gradient_domain::JobId;
use serde::{Deserialize, Serialize};

/// Position of a job in the order of offers; a requeued job takes the next one (ADR 8).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(transparent)]
pub struct OfferNumber(pub u64);

/// A worker's answer to one candidate (spec, Offers).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct CandidateScore {
    /// The candidate.
    pub job: JobId,
    /// Required paths that the local store lacks.
    pub missing_count: u32,
    /// Their known NAR sizes together, in bytes.
    pub missing_nar_size: u64,
    /// Whether every output is in the local store already.
    pub outputs_present: bool,
}

/// Points in thousandths. The core knows no floats (ADR 3).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(transparent)]
pub struct MilliPoints(pub i64);

/// A rule of a scoring policy (reference 4.4, 4.5).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Fewer missing paths are better.
    MissingPaths,
    /// Fewer missing bytes are better.
    MissingNarSize,
    /// Who waited longer comes first.
    WaitTime,
}

impl Rule {
    /// The name shown to people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rule::MissingPaths => "missing_paths",
            Rule::MissingNarSize => "missing_nar_size",
            Rule::WaitTime => "wait_time",
        }
    }
}

/// What one rule gave.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct RulePoints {
    /// The rule.
    pub rule: Rule,
    /// Its points.
    pub points: MilliPoints,
}

/// Another candidate that lost, with its total.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct RunnerUp {
    /// The job that was not taken.
    pub job: JobId,
    /// Its total.
    pub total: MilliPoints,
}
