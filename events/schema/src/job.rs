//! Jobs as a worker receives them, and how they can end.

use gradient_domain::flake::{Commit, FetchOptions};
use gradient_domain::{BuildId, EvaluationId, Requirement, StorePath};
use serde::{Deserialize, Serialize};

/// Where the source of a flake is.
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
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FlakeSource {
    /// A reference that the worker fetches, such as `github:owner/name` or `git+https://…?rev=…`.
    Reference {
        /// The flake reference as the user gave it.
        url: String,
    },
    /// A source tree that the submitter uploaded to the cache.
    Store {
        /// Its store path.
        path: StorePath,
        /// SHA-256 of its NAR as Nix writes it, `sha256-<base64>`.
        nar_hash: String,
        /// Folder of the flake below the tree; empty for the tree itself.
        subdir: String,
        /// What the user typed, for showing.
        label: String,
        /// The commit that it is, if it is exactly one.
        #[serde(default)]
        commit: Option<Box<Commit>>,
    },
}

impl FlakeSource {
    /// What to show a person.
    #[must_use]
    pub fn label(&self) -> &str {
        match self {
            FlakeSource::Reference { url } => url,
            FlakeSource::Store { label, .. } => label,
        }
    }
}

/// One evaluation as a job.
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
pub struct EvaluateJob {
    /// The evaluation.
    pub evaluation: EvaluationId,
    /// The flake.
    pub flake: FlakeSource,
    /// Include and exclude patterns (reference 5.1), at least one.
    pub patterns: Vec<String>,
    /// How the flake is fetched and locked.
    #[serde(default)]
    pub fetch: Box<FetchOptions>,
}

/// An output of a derivation.
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
pub struct Output {
    /// Its name, such as `out`.
    pub name: String,
    /// Its path; `None` for a content-addressed output that is known only after the build.
    pub path: Option<StorePath>,
}

/// One build as a job.
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
pub struct BuildJob {
    /// The shared build.
    pub build: BuildId,
    /// The derivation to build.
    pub drv_path: StorePath,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// What it needs.
    pub requirement: Requirement,
    /// Whether an output's hash is given in advance.
    pub is_fixed_output: bool,
    /// Wall-clock limit of the build in seconds; 0 = off.
    pub timeout_secs: u64,
    /// Longest silence of the builder in seconds; 0 = off.
    pub max_silent_secs: u64,
}

/// What `AssignJob` carries.
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
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Job {
    /// Evaluate a flake.
    Evaluate(EvaluateJob),
    /// Build a derivation.
    Build(BuildJob),
}

/// Why a job failed: the closed list (ADR 7, reference 2.7).
///
/// Only `Permanent` and `Timeout` are the job's own fault: they alone cascade.
#[derive(
    Clone,
    Copy,
    Debug,
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
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Memory, disk, network, daemon, upload: retried with backoff.
    Transient,
    /// The builder failed, or the evaluation itself is wrong. Not retried.
    Permanent,
    /// Wall clock or silence. Not retried.
    Timeout,
    /// A required input could not be had. Retried; uses attempts.
    InputsUnavailable,
    /// Stopped by `AbortJob`.
    Aborted,
    /// Stopped because the worker stops. Retried at no cost.
    Canceled,
}

impl FailureKind {
    /// Whether the failure says something about the job itself, so that it may cascade and be remembered.
    #[must_use]
    pub fn is_genuine(self) -> bool {
        match self {
            FailureKind::Permanent | FailureKind::Timeout => true,
            FailureKind::Transient
            | FailureKind::InputsUnavailable
            | FailureKind::Aborted
            | FailureKind::Canceled => false,
        }
    }

    /// The name used in text and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Transient => "transient",
            FailureKind::Permanent => "permanent",
            FailureKind::Timeout => "timeout",
            FailureKind::InputsUnavailable => "inputs_unavailable",
            FailureKind::Aborted => "aborted",
            FailureKind::Canceled => "canceled",
        }
    }
}
