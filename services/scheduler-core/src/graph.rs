//! The derivation graph and the one shared build of each derivation (reference 3.2 to 3.4).
//!
//! Builds are numbered in order of first mention; a node may be mentioned (by an edge) before it is
//! recorded. Readiness is a pure function of what stands here (ADR 6).

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{AssignmentId, BuildId, StorePath, Timestamp, nix_base32};
use gradient_events::FailureKind;
use gradient_events::job::Output;

use crate::evaluation::EvaluationIndex;
use crate::queue::ClassId;

/// All derivations that the log mentions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    by_hash: BTreeMap<[u8; 20], BuildId>,
    nodes: Vec<Node>,
}

/// One derivation and its build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The derivation file.
    pub drv_path: StorePath,
    /// What was recorded of it; `None` while it is only mentioned by an edge.
    pub recipe: Option<Box<Recipe>>,
    /// Builds that need this one.
    pub dependents: Vec<BuildId>,
    /// Live evaluations that want it.
    pub wanted_by: Vec<EvaluationIndex>,
    /// Direct dependencies that have not succeeded.
    pub blocking: u32,
    /// Direct dependencies below which something is not recorded.
    pub gaps: u32,
    /// Since when it could run; kept over hand-outs.
    pub ready_at: Timestamp,
    /// Executions that ended in a retryable failure.
    pub failures: u32,
    /// Hand-outs in a row that ended with a lost worker.
    pub losses: u32,
    /// How far it is.
    pub state: BuildState,
}

/// What a derivation needs and makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// Its inputs.
    pub dependencies: Vec<Edge>,
    /// Its requirement, as a class of the queue.
    pub class: ClassId,
    /// Whether an output's hash is given in advance.
    pub is_fixed_output: bool,
    /// Wall-clock limit of its own, in seconds.
    pub timeout_secs: Option<u64>,
    /// Silence limit of its own, in seconds.
    pub max_silent_secs: Option<u64>,
}

/// One input of a derivation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The derivation needed.
    pub build: BuildId,
    /// Which of its outputs.
    pub outputs: Vec<String>,
}

/// How far a build is (reference 3.2). Each state holds exactly its own data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildState {
    /// Not ready: something below it is missing, or it is not recorded, or nobody wants it.
    Created,
    /// In the queue.
    Queued,
    /// Handed out.
    Assigned {
        /// Under this id.
        assignment: AssignmentId,
    },
    /// A retryable failure; it comes back.
    Backoff {
        /// When.
        until: Timestamp,
    },
    /// Its outputs can be fetched by others.
    Succeeded {
        /// Path and NAR size in bytes of each output, by name.
        outputs: BTreeMap<String, (StorePath, u64)>,
        /// Nothing was built: the outputs were there.
        substituted: bool,
    },
    /// It failed by its own fault or too often.
    Failed {
        /// How.
        kind: FailureKind,
    },
    /// Something below it failed.
    DependencyFailed {
        /// The build whose own failure is the cause.
        cause: BuildId,
    },
    /// Stopped while it ran.
    Aborted,
    /// Not needed any more before it ran.
    Skipped,
}

impl BuildState {
    /// Whether nothing follows unless a new evaluation wants it.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            BuildState::Succeeded { .. }
            | BuildState::Failed { .. }
            | BuildState::DependencyFailed { .. }
            | BuildState::Aborted
            | BuildState::Skipped => true,
            BuildState::Created
            | BuildState::Queued
            | BuildState::Assigned { .. }
            | BuildState::Backoff { .. } => false,
        }
    }

    /// Whether it ended without success.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.is_terminal() && !self.is_success()
    }

    /// Whether its outputs can be fetched by others.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, BuildState::Succeeded { .. })
    }

    /// The open hand-out.
    #[must_use]
    pub fn assignment(&self) -> Option<AssignmentId> {
        match self {
            BuildState::Assigned { assignment } => Some(*assignment),
            BuildState::Created
            | BuildState::Queued
            | BuildState::Backoff { .. }
            | BuildState::Succeeded { .. }
            | BuildState::Failed { .. }
            | BuildState::DependencyFailed { .. }
            | BuildState::Aborted
            | BuildState::Skipped => None,
        }
    }
}

/// The key of a derivation: the 20 bytes of its path's hash.
fn key(path: &StorePath) -> [u8; 20] {
    nix_base32::decode(path.hash_part()).expect("a parsed store path has 32 base-32 digits")
}

impl Graph {
    /// Number of derivations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// One node.
    #[must_use]
    pub fn get(&self, build: BuildId) -> Option<&Node> {
        self.nodes.get(build.index())
    }

    /// The build of a derivation, if it was ever mentioned.
    #[must_use]
    pub fn find(&self, drv_path: &StorePath) -> Option<BuildId> {
        self.by_hash.get(&key(drv_path)).copied()
    }

    /// All builds with their nodes, in order of first mention.
    pub fn iter(&self) -> impl Iterator<Item = (BuildId, &Node)> {
        (0..).map(BuildId).zip(&self.nodes)
    }

    /// A node that is known to exist.
    ///
    /// # Panics
    /// If no event created it: the log is corrupt.
    #[must_use]
    pub fn node(&self, build: BuildId) -> &Node {
        &self.nodes[build.index()]
    }

    pub(crate) fn node_mut(&mut self, build: BuildId) -> &mut Node {
        &mut self.nodes[build.index()]
    }

    /// The build of a derivation, made if it was never mentioned.
    pub(crate) fn intern(&mut self, drv_path: &StorePath) -> BuildId {
        let next = BuildId(u32::try_from(self.nodes.len()).expect("fewer than 2^32 derivations"));
        let build = *self.by_hash.entry(key(drv_path)).or_insert(next);
        if build == next {
            self.nodes.push(Node {
                drv_path: drv_path.clone(),
                recipe: None,
                dependents: Vec::new(),
                wanted_by: Vec::new(),
                blocking: 0,
                gaps: 0,
                ready_at: Timestamp::default(),
                failures: 0,
                losses: 0,
                state: BuildState::Created,
            });
        }
        build
    }

    /// Whether a build may enter the queue: recorded whole, wanted, untouched, nothing missing below.
    #[must_use]
    pub fn is_ready(&self, build: BuildId) -> bool {
        let node = self.node(build);
        node.state == BuildState::Created
            && node.recipe.is_some()
            && !node.wanted_by.is_empty()
            && node.blocking == 0
    }

    /// The build at the bottom of a failure below `build`, if one of its direct inputs failed. Those
    /// that are about to start over do not count.
    #[must_use]
    pub fn failed_below(
        &self,
        build: BuildId,
        starting_over: &BTreeSet<BuildId>,
    ) -> Option<BuildId> {
        let recipe = self.node(build).recipe.as_ref()?;
        let counts = |edge: &&Edge| !starting_over.contains(&edge.build);
        recipe.dependencies.iter().filter(counts).find_map(|edge| {
            match &self.node(edge.build).state {
                BuildState::Failed { .. } | BuildState::Aborted | BuildState::Skipped => {
                    Some(edge.build)
                }
                BuildState::DependencyFailed { cause } => Some(*cause),
                BuildState::Created
                | BuildState::Queued
                | BuildState::Assigned { .. }
                | BuildState::Backoff { .. }
                | BuildState::Succeeded { .. } => None,
            }
        })
    }

    /// Whether a derivation and everything below it is recorded.
    #[must_use]
    pub fn is_known_whole(&self, build: BuildId) -> bool {
        self.node(build).is_whole()
    }

    /// Passes on that a derivation is whole now, to those whose last gap it was.
    pub(crate) fn became_whole(&mut self, build: BuildId) {
        let mut stack = vec![build];
        while let Some(build) = stack.pop() {
            let dependents = std::mem::take(&mut self.node_mut(build).dependents);
            for dependent in &dependents {
                let node = self.node_mut(*dependent);
                node.gaps -= 1;
                if node.is_whole() {
                    stack.push(*dependent);
                }
            }
            self.node_mut(build).dependents = dependents;
        }
    }
}

impl Node {
    /// Whether it and everything below it is recorded.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.recipe.is_some() && self.gaps == 0
    }
}
