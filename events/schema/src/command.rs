//! User commands: `gradient.cmd.api`.

use gradient_domain::flake::FetchOptions;
use gradient_domain::{BuildId, EvaluationId};
use serde::{Deserialize, Serialize};

use crate::envelope::wire_v1;
use crate::job::FlakeSource;

/// What a user asks of the scheduler.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
#[serde(tag = "command")]
pub enum Command {
    /// Evaluate a flake and build what is found.
    Submit {
        /// The id, chosen by the submitter; a repeat of the same id changes nothing.
        evaluation: EvaluationId,
        /// The flake.
        flake: FlakeSource,
        /// Include and exclude patterns, 1 to 256 of them.
        patterns: Vec<String>,
        /// How the flake is fetched and locked.
        #[serde(default)]
        fetch: Box<FetchOptions>,
    },
    /// Stop an evaluation; builds that no other live evaluation wants stop, too.
    CancelEvaluation {
        /// Which.
        evaluation: EvaluationId,
    },
    /// Stop one build.
    CancelBuild {
        /// Which.
        build: BuildId,
    },
}
wire_v1!(Command, "command");
