//! Include and exclude patterns of an evaluation, parsed once into typed values.
//!
//! Grammar: patterns are separated by commas (a space after a comma is dropped, a comma inside
//! quotes separates nothing); a pattern is a list of segments separated by dots; a segment that is
//! exactly `*` or `#` is a wildcard, everything else is the name of an attribute. A `!` in front
//! makes an exclusion, which has no wildcards. Names that are no plain words stand in double quotes
//! with the escapes of a printed [`AttrPath`]; a name that *is* `*`, `#` or `!` is written with an
//! escape (`"\u{2a}"`), because a quoted special character is refused as a likely mistake.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::attr_path::{AttrPath, DEPTH_MAX};

mod parse;

/// The outputs of a flake that hold jobs; a bare `*` means all of them.
pub const ROOTS: [&str; 7] = [
    "checks",
    "packages",
    "formatter",
    "legacyPackages",
    "nixosConfigurations",
    "devShells",
    "hydraJobs",
];

/// Most patterns in one set.
pub const PATTERNS_MAX: usize = 256;

/// Longest text of a set, in bytes.
pub const TEXT_LEN_MAX: usize = 64 * 1024;

/// One step of a pattern.
#[derive(
    Clone,
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
pub enum Segment {
    /// The attribute of this name.
    Name(String),
    /// Every attribute that is not opaque; as the last segment one level more.
    Star,
    /// Every attribute, exactly one level.
    Hash,
}

impl Segment {
    /// Whether the segment stands for more than one name.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        !matches!(self, Segment::Name(_))
    }
}

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    /// Whether the pattern takes away what it matches.
    pub exclude: bool,
    /// The steps from the flake's outputs; never empty, no two `*` in a row.
    pub segments: Vec<Segment>,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePatternError {
    /// White space around the text or inside a pattern (outside quotes).
    #[error("Evaluation wildcard cannot have whitespace")]
    Whitespace,
    /// Two commas in a row.
    #[error("Evaluation wildcard cannot have consecutive commas")]
    ConsecutiveCommas,
    /// No text between or after commas.
    #[error("Evaluation wildcard cannot be empty")]
    Empty,
    /// The first character is a dot.
    #[error("Evaluation wildcard cannot start with a period")]
    LeadingPeriod,
    /// Two dots in a row, or a dot at the end.
    #[error("Evaluation wildcard cannot have an empty segment")]
    EmptySegment,
    /// A special character where a name should be.
    #[error("Evaluation wildcard pattern cannot be a bare special character (`!`, `*`, or `#`)")]
    BareSpecial,
    /// A wildcard in an exclusion.
    #[error("Exclusion patterns cannot contain wildcard segments (`*` or `#`)")]
    WildcardInExclusion,
    /// Only exclusions.
    #[error("Evaluation wildcard must have a pattern that is not an exclusion")]
    NothingIncluded,
    /// A quote without its end.
    #[error("Evaluation wildcard has an unterminated quote")]
    UnterminatedQuote,
    /// An escape inside quotes that does not exist.
    #[error("Evaluation wildcard has an unknown escape")]
    UnknownEscape,
    /// More than [`PATTERNS_MAX`] patterns, [`DEPTH_MAX`] segments or [`TEXT_LEN_MAX`] bytes.
    #[error("Evaluation wildcard is too long")]
    TooLong,
}

impl Pattern {
    /// The path that a pattern without wildcards names.
    #[must_use]
    pub fn exact_path(&self) -> Option<AttrPath> {
        let name = |segment: &Segment| match segment {
            Segment::Name(name) => Some(name.clone()),
            Segment::Star | Segment::Hash => None,
        };
        self.segments.iter().map(name).collect::<Option<_>>().map(AttrPath)
    }

    /// Whether a walk along this pattern can come to this path, judged by names alone.
    #[must_use]
    pub fn reaches(&self, path: &AttrPath) -> bool {
        let extra = usize::from(self.segments.last() == Some(&Segment::Star));
        let wanted = self.segments.len()..=self.segments.len() + extra;
        wanted.contains(&path.0.len()) && self.agrees(path)
    }

    /// Whether a walk along this pattern comes through this path on its way.
    #[must_use]
    pub fn passes(&self, path: &AttrPath) -> bool {
        path.0.len() < self.segments.len() && self.agrees(path)
    }

    /// Whether segments and names agree as far as both go.
    fn agrees(&self, path: &AttrPath) -> bool {
        self.segments.iter().zip(&path.0).all(|(segment, name)| match segment {
            Segment::Name(wanted) => wanted == name,
            Segment::Star | Segment::Hash => true,
        })
    }

    /// Whether the first segment is one of the documented outputs ([`ROOTS`]).
    #[must_use]
    pub fn has_known_root(&self) -> bool {
        match self.segments.first() {
            Some(Segment::Name(root)) => ROOTS.contains(&root.as_str()),
            Some(Segment::Star | Segment::Hash) | None => false,
        }
    }
}

impl FromStr for Pattern {
    type Err = ParsePatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (exclude, body) = match text.strip_prefix('!') {
            Some("") => return Err(ParsePatternError::BareSpecial),
            Some(body) => (true, body),
            None => (false, text),
        };
        let mut segments = parse::parse_segments(body)?;
        segments.dedup_by(|a, b| *a == Segment::Star && *b == Segment::Star);
        if segments.len() > DEPTH_MAX {
            return Err(ParsePatternError::TooLong);
        }
        if exclude && segments.iter().any(Segment::is_wildcard) {
            return Err(ParsePatternError::WildcardInExclusion);
        }
        if segments == [Segment::Hash] {
            return Err(ParsePatternError::BareSpecial);
        }
        Ok(Pattern { exclude, segments })
    }
}

impl TryFrom<String> for Pattern {
    type Error = ParsePatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Segment::Star => f.write_str("*"),
            Segment::Hash => f.write_str("#"),
            Segment::Name(name) => AttrPath(vec![name.clone()]).fmt(f),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.exclude {
            f.write_str("!")?;
        }
        for (n, segment) in self.segments.iter().enumerate() {
            if n > 0 {
                f.write_str(".")?;
            }
            segment.fmt(f)?;
        }
        Ok(())
    }
}

/// What to evaluate: the includes, less the excluded paths. Order has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Pattern>", into = "Vec<Pattern>")]
pub struct PatternSet {
    /// Patterns whose matches are wanted; a bare `*` is already expanded over [`ROOTS`].
    pub includes: Vec<Pattern>,
    /// Paths that are left out, compared name by name.
    pub excludes: Vec<AttrPath>,
}

impl PatternSet {
    /// Parses a list of texts, each of one pattern.
    ///
    /// # Errors
    /// For the first text that is no pattern, and if there is nothing but exclusions.
    pub fn from_texts<S: AsRef<str>>(
        texts: impl IntoIterator<Item = S>,
    ) -> Result<Self, ParsePatternError> {
        let parsed = texts.into_iter().map(|text| {
            if text.as_ref().len() > TEXT_LEN_MAX {
                return Err(ParsePatternError::TooLong);
            }
            text.as_ref().parse()
        });
        Self::try_from(parsed.collect::<Result<Vec<Pattern>, _>>()?)
    }

    /// The first pattern whose root is none of [`ROOTS`]; stored tasks refuse those.
    #[must_use]
    pub fn unknown_root(&self) -> Option<&Pattern> {
        self.includes.iter().find(|pattern| !pattern.has_known_root())
    }
}

impl TryFrom<Vec<Pattern>> for PatternSet {
    type Error = ParsePatternError;

    fn try_from(patterns: Vec<Pattern>) -> Result<Self, Self::Error> {
        if patterns.is_empty() {
            return Err(ParsePatternError::Empty);
        }
        if patterns.len() > PATTERNS_MAX {
            return Err(ParsePatternError::TooLong);
        }
        let mut set = PatternSet { includes: Vec::new(), excludes: Vec::new() };
        for pattern in patterns {
            if pattern.exclude {
                set.excludes.extend(pattern.exact_path());
            } else if pattern.segments == [Segment::Star] {
                set.includes.extend(ROOTS.map(|root| Pattern {
                    exclude: false,
                    segments: vec![Segment::Name(root.to_owned()), Segment::Star],
                }));
            } else {
                set.includes.push(pattern);
            }
        }
        if set.includes.is_empty() {
            return Err(ParsePatternError::NothingIncluded);
        }
        Ok(set)
    }
}

impl From<PatternSet> for Vec<Pattern> {
    fn from(set: PatternSet) -> Self {
        let exclude = |path: AttrPath| Pattern {
            exclude: true,
            segments: path.0.into_iter().map(Segment::Name).collect(),
        };
        set.includes.into_iter().chain(set.excludes.into_iter().map(exclude)).collect()
    }
}

impl FromStr for PatternSet {
    type Err = ParsePatternError;

    /// Parses one text of patterns separated by commas.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ParsePatternError::Empty);
        }
        if text.trim() != text {
            return Err(ParsePatternError::Whitespace);
        }
        Self::from_texts(parse::split_at_commas(text)?)
    }
}

impl fmt::Display for PatternSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, pattern) in Vec::<Pattern>::from(self.clone()).iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            pattern.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
