//! Ids. Each is its own type; none crosses a crate as a bare string or number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A text that is not an id of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct ParseIdError {
    /// What was given (at most 80 characters of it).
    pub text: String,
    /// What would have been right.
    pub expected: &'static str,
}

impl ParseIdError {
    fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.chars().take(80).collect(), expected }
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
            rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
        )]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// The id as a UUID.
            #[must_use]
            pub fn uuid(self) -> Uuid {
                Uuid::from_bytes(self.0)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid.into_bytes())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.uuid().as_hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self::from).map_err(|_| ParseIdError::new(text, $expected))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

uuid_id!(
    /// A worker. Stored by the worker in its base directory; also the last token of its subjects.
    WorkerId,
    "a worker id (a UUID)"
);
uuid_id!(
    /// One run of a worker process. Whatever an older session sends is stale.
    SessionId,
    "a session id (a UUID)"
);
uuid_id!(
    /// One evaluation: one run of patterns over a flake. Made by whoever submits it.
    EvaluationId,
    "an evaluation id (a UUID)"
);

/// A shared build: the one global build of a derivation, in order of first mention in the log.
///
/// Shown as 8 hexadecimal digits so that the order of the text is the order of the numbers.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct BuildId(pub u32);

impl BuildId {
    /// Position in the scheduler's table of derivations.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for BuildId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("build:").unwrap_or(text);
        let well_formed =
            (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        if !well_formed {
            return Err(ParseIdError::new(text, "a build id (8 hexadecimal digits)"));
        }
        u32::from_str_radix(digits, 16)
            .map(BuildId)
            .map_err(|_| ParseIdError::new(text, "a build id (8 hexadecimal digits)"))
    }
}

/// One hand-out of a job to a worker: the only truth about who runs it (ADR 5).
///
/// Counted by the log itself, so no two appended hand-outs share one.
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
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub struct AssignmentId(pub u64);

impl fmt::Display for AssignmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a{}", self.0)
    }
}

impl FromStr for AssignmentId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix('a').unwrap_or(text);
        digits
            .parse()
            .map(AssignmentId)
            .map_err(|_| ParseIdError::new(text, "an assignment id (a followed by a number)"))
    }
}

/// A job: the unit of scheduling. On the wire `build:<build id>` or `eval:<evaluation id>`.
///
/// The order is the byte order of that text; ties in scores go to the smaller one (spec, Assignment).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub enum JobId {
    /// Build one derivation.
    Build(BuildId),
    /// Run one evaluation.
    Evaluate(EvaluationId),
}

impl JobId {
    /// Which kind of slot the job takes.
    #[must_use]
    pub fn kind(self) -> crate::Kind {
        match self {
            JobId::Build(_) => crate::Kind::Build,
            JobId::Evaluate(_) => crate::Kind::Evaluate,
        }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobId::Build(build) => write!(f, "build:{build}"),
            JobId::Evaluate(evaluation) => write!(f, "eval:{evaluation}"),
        }
    }
}

impl FromStr for JobId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(evaluation) = text.strip_prefix("eval:") {
            return evaluation.parse().map(JobId::Evaluate);
        }
        if text.starts_with("build:") {
            return text.parse().map(JobId::Build);
        }
        Err(ParseIdError::new(text, "a job id (build:<build id> or eval:<evaluation id>)"))
    }
}

macro_rules! serde_as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

serde_as_text!(BuildId, AssignmentId, JobId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_job_ids_is_the_byte_order_of_their_text() {
        let jobs = [9, 10, 255, 256, 0x0fff_ffff].map(|n| JobId::Build(BuildId(n)));
        let mut texts: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        texts.sort();
        assert_eq!(texts, jobs.iter().map(ToString::to_string).collect::<Vec<_>>());
        let evaluation = JobId::Evaluate(EvaluationId([0; 16]));
        assert!(jobs[4] < evaluation && jobs[4].to_string() < evaluation.to_string());
    }

    #[test]
    fn ids_survive_their_text() {
        for job in [JobId::Build(BuildId(0x7b)), JobId::Evaluate(EvaluationId([7; 16]))] {
            assert_eq!(job.to_string().parse(), Ok(job));
        }
        assert_eq!("7b".parse(), Ok(BuildId(0x7b)));
        assert_eq!("a12".parse(), Ok(AssignmentId(12)));
    }

    #[test]
    fn junk_is_refused() {
        for junk in ["", "build:", "build:xyz", "build:123456789", "+1", "eval:1", "job:1"] {
            assert!(junk.parse::<JobId>().is_err(), "{junk}");
        }
        assert!("+7b".parse::<BuildId>().is_err());
    }
}
