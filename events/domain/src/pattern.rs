//! Include and exclude patterns of an evaluation, parsed once (reference 5.1, 5.2).

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {}
