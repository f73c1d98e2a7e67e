//! What requests and responses hold. No server in here: clients use these types, too.

use gradient_domain::flake::{Commit, LockPolicy, Override};
use gradient_domain::{EvaluationId, SshKey, StorePath};
use gradient_events::FlakeSource;
use serde::{Deserialize, Serialize};

pub use gradient_events::event::EvaluationState;
pub use gradient_projections::view::{
    Anomaly, AnomalyKind, Attempt, BuildCounts, BuildDetail, BuildOutput, BuildState, BuildSummary,
    Counts, DispatchedJob, EntryPoint, EvaluationSummary, Message, MessageLevel, Outcome, PAGE_MAX,
    Page, PendingJob, Presence, RunningJob, Status, Waiting, Worker,
};

/// Body of `POST /evaluations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SubmitEvaluation {
    /// What to evaluate.
    pub flake: SubmitFlake,
    /// Include and exclude patterns, 1 to 256 of them, such as `packages.*.*`.
    pub patterns: Vec<String>,
    /// Inputs that are replaced, at most 64: `input` (a name, `a/b`, or a pattern with `*` and `?`)
    /// and `reference`.
    #[serde(default)]
    #[cfg_attr(feature = "server", schema(value_type = Vec<Object>))]
    pub overrides: Vec<Override>,
    /// `complete` locks missing inputs in memory and warns; `strict` fails.
    #[serde(default)]
    #[cfg_attr(feature = "server", schema(value_type = String))]
    pub lock_policy: LockPolicy,
    /// Text of a private key for `git+ssh:`; kept until the evaluation is over and never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "server", schema(value_type = Option<String>))]
    pub ssh_key: Option<SshKey>,
}

/// Where the flake is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum SubmitFlake {
    /// A reference that the worker fetches, such as `github:owner/name`.
    Reference {
        /// The flake reference.
        url: String,
    },
    /// A source tree that was uploaded to the cache before.
    Store {
        /// Its store path.
        #[cfg_attr(feature = "server", schema(value_type = String))]
        path: StorePath,
        /// SHA-256 of its NAR as Nix writes it, `sha256-<base64>`.
        nar_hash: String,
        /// Folder of the flake below the tree; empty for the tree itself.
        #[serde(default)]
        subdir: String,
        /// What to show; the store path if it is empty.
        #[serde(default)]
        label: String,
        /// The commit that it is, if it is exactly one: `rev`, `rev_count` and `last_modified`.
        #[serde(default)]
        #[cfg_attr(feature = "server", schema(value_type = Option<Object>))]
        commit: Option<Box<Commit>>,
    },
}

impl From<SubmitFlake> for FlakeSource {
    fn from(flake: SubmitFlake) -> Self {
        match flake {
            SubmitFlake::Reference { url } => FlakeSource::Reference { url },
            SubmitFlake::Store { path, nar_hash, subdir, label, commit } => {
                let label = if label.is_empty() { path.to_string() } else { label };
                FlakeSource::Store { path, nar_hash, subdir, label, commit }
            }
        }
    }
}

/// Answer to `POST /evaluations`: it will be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Submitted {
    /// Its id.
    #[cfg_attr(feature = "server", schema(value_type = String))]
    pub evaluation: EvaluationId,
}

/// Answer to a cancel: the scheduler was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Accepted {
    /// Always true.
    pub accepted: bool,
}

/// Answer to `GET /jobs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Jobs {
    /// Jobs in the queue, in the order of offers (states `pending` and `all`, there on the first page).
    pub pending: Vec<PendingJob>,
    /// Hand-outs, newest first: the open ones (state `dispatched`) or all of them (state `all`).
    pub dispatched: Vec<DispatchedJob>,
    /// What to pass as `after` for the next page; `null` on the last one.
    pub next: Option<String>,
}

/// Body of every answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// What is wrong, in one sentence.
    pub error: String,
    /// What to do about it.
    pub hint: Option<String>,
}
