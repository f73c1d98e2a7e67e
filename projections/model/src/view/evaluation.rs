//! Evaluations, their attributes and texts.

use gradient_domain::{AttrPath, BuildId, EvaluationId, StorePath, Timestamp};
use gradient_events::FlakeSource;
use gradient_events::event::EvaluationState;
use serde::{Deserialize, Serialize};

use super::{BuildOutput, BuildState, MessageLevel, Waiting};

/// One evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EvaluationSummary {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: EvaluationId,
    /// The flake as it was submitted.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub flake: FlakeSource,
    /// What to show for the flake.
    pub label: String,
    /// Include and exclude patterns.
    pub patterns: Vec<String>,
    /// How far it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: EvaluationState,
    /// What it waits for, if it waits.
    pub waiting: Option<Waiting>,
    /// Since when.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub waiting_since: Option<Timestamp>,
    /// When it was asked for.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub requested_at: Timestamp,
    /// When a worker first got it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub started_at: Option<Timestamp>,
    /// When everything was found.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub discovered_at: Option<Timestamp>,
    /// When it ended.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub finished_at: Option<Timestamp>,
    /// Why it failed or was stopped, if for a reason of its own.
    pub error: Option<String>,
    /// Store path of the fetched source.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub flake_source: Option<StorePath>,
    /// What the reference was locked to.
    pub locked_url: Option<String>,
    /// Error texts; any one fails it.
    pub errors: u64,
    /// Warning texts.
    pub warnings: u64,
    /// How often it was handed out.
    pub hand_outs: u64,
    /// Attributes found.
    pub entry_points: u64,
    /// The builds it wants.
    pub builds: BuildCounts,
}

impl EvaluationSummary {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.is_terminal()
    }
}

/// How many builds are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(missing_docs, reason = "as the states of the same name")]
pub struct BuildCounts {
    pub created: u64,
    pub queued: u64,
    pub assigned: u64,
    pub building: u64,
    pub completed: u64,
    pub substituted: u64,
    pub failed_transient: u64,
    pub failed_permanent: u64,
    pub failed_timeout: u64,
    pub dependency_failed: u64,
    pub aborted: u64,
    pub skipped: u64,
}

impl BuildCounts {
    /// The counter of a state.
    pub fn of_mut(&mut self, state: BuildState) -> &mut u64 {
        match state {
            BuildState::Created => &mut self.created,
            BuildState::Queued => &mut self.queued,
            BuildState::Assigned => &mut self.assigned,
            BuildState::Building => &mut self.building,
            BuildState::Completed => &mut self.completed,
            BuildState::Substituted => &mut self.substituted,
            BuildState::FailedTransient => &mut self.failed_transient,
            BuildState::FailedPermanent => &mut self.failed_permanent,
            BuildState::FailedTimeout => &mut self.failed_timeout,
            BuildState::DependencyFailed => &mut self.dependency_failed,
            BuildState::Aborted => &mut self.aborted,
            BuildState::Skipped => &mut self.skipped,
        }
    }

    /// How many are in a state.
    #[must_use]
    pub fn of(mut self, state: BuildState) -> u64 {
        *self.of_mut(state)
    }

    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        BuildState::ALL.iter().map(|state| self.of(*state)).sum()
    }

    /// Those whose outputs can be fetched.
    #[must_use]
    pub fn succeeded(self) -> u64 {
        self.completed + self.substituted
    }

    /// Those that ended without success.
    #[must_use]
    pub fn failed(self) -> u64 {
        BuildState::ALL.iter().filter(|s| s.is_failure()).map(|state| self.of(*state)).sum()
    }
}

/// An attribute that an evaluation found, and how its build stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EntryPoint {
    /// The attribute, for showing.
    pub attr: String,
    /// The attribute, name by name.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub attr_path: AttrPath,
    /// Its build.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub build: BuildId,
    /// Its derivation.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub drv_path: StorePath,
    /// Its system.
    pub system: String,
    /// How far its build is.
    pub state: BuildState,
    /// What went wrong.
    pub message: Option<String>,
    /// The build below it whose failure is the cause.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<BuildId>,
    /// What it made or will make.
    pub outputs: Vec<BuildOutput>,
}

/// A text of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Message {
    /// How bad.
    pub level: MessageLevel,
    /// Of which attribute, for showing.
    pub attr: Option<String>,
    /// What.
    pub text: String,
    /// When it came.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub at: Timestamp,
}
