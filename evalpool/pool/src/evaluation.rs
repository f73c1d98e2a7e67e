//! An evaluation from outside: what is asked for, what is found, how it ends.

use std::time::Duration;

use gradient_domain::pattern::PatternSet;
use gradient_domain::{AttrPath, StorePath};
use gradient_ipc::message::Source;
use gradient_ipc::shard::Recursion;
use gradient_ipc::tree::Extra;

use crate::eval_stats::{EntryPoints, Usage};
use crate::transport::SpawnError;

/// What is to be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The tree of attributes. Its cache is the pool's matter.
    pub source: Source,
    /// What of it.
    pub patterns: PatternSet,
    /// How far below the patterns.
    pub recursion: Recursion,
    /// The complete lock file of the flake, if it is not the one in its locked tree.
    pub locks: String,
}

impl Evaluation {
    /// The jobs of a locked flake that patterns match, by a fleet's rules.
    #[must_use]
    pub fn of_flake(locked_url: &str, patterns: PatternSet) -> Evaluation {
        let source = Source::flake(locked_url);
        Evaluation { source, patterns, recursion: Recursion::Pattern, locks: String::new() }
    }
}

/// Something that an evaluation found, as soon as it is known. Nothing is told twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// A derivation.
    Attribute {
        /// Where.
        path: AttrPath,
        /// Its `.drv` file, which exists in the store.
        drv_path: StorePath,
        /// What else was asked for.
        extra: Option<Extra>,
    },
    /// Something that could not be evaluated. The evaluation goes on, and fails in the end.
    Error {
        /// Where, if it has a place.
        path: Option<AttrPath>,
        /// Nix's message, or ours; without the path.
        message: String,
    },
    /// Something worth telling.
    Warning {
        /// The attribute that brought it up, if it was one.
        path: Option<AttrPath>,
        /// All its lines.
        text: String,
    },
}

/// Why an evaluation failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The flake cannot be fetched, parsed, or its outputs not evaluated.
    #[error("{message}")]
    Flake {
        /// What Nix says.
        message: String,
    },
    /// There is no evaluator to work with.
    #[error("no evaluator")]
    Spawn(#[from] SpawnError),
    /// A subprocess broke the rules of the conversation.
    #[error("{reason}")]
    Protocol {
        /// How.
        reason: String,
    },
    /// Nobody listens to the results any more, or the pool was shut down.
    #[error("evaluation cancelled")]
    Cancelled,
}

/// What an evaluation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoverySummary {
    /// Derivations found.
    pub attributes: u64,
    /// Errors told.
    pub errors: u64,
    /// Warnings told.
    pub warnings: u64,
    /// Whether the evaluation cache had the whole answer, so that nothing was evaluated.
    pub is_cached: bool,
    /// Whether the evaluation cache can answer this evaluation from now on, and could not before.
    pub is_cache_completed: bool,
    /// Calls to subprocesses.
    pub calls: u64,
    /// Calls that a subprocess did not survive.
    pub crashes: u64,
    /// Time from begin to end.
    pub wall: Duration,
    /// What the calls used.
    pub usage: Usage,
    /// What of that each pattern used.
    pub entry_points: EntryPoints,
}
