//! The log record: one input fact and the decisions that the core made of it (ADR 2).

use gradient_domain::{SessionId, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use crate::command::Command;
use crate::envelope::wire_v1;
use crate::event::Event;
use crate::worker::{EvalResult, JobUpdate, WorkerMessage, WorkerMetrics};

/// Where an input came from.
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
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The scheduler itself: its start, a tick, a silence.
    #[default]
    Internal,
    /// The message with this sequence in COMMANDS.
    Command(u64),
}

/// One record of the log. Its position is (sequence of the message in EVENTS, index in the message).
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
pub struct Entry {
    /// When the scheduler took the input; never before the entry in front of it.
    pub at: Timestamp,
    /// Where the input came from.
    pub cause: Cause,
    /// What came in.
    pub input: Input,
    /// What was decided, in order.
    pub events: Vec<Event>,
}

/// The body of one message in EVENTS: the entries of all inputs that arrived while the append before
/// it was under way.
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
pub struct EntryBatch {
    /// At least one.
    pub entries: Vec<Entry>,
}
wire_v1!(EntryBatch, "entries");

/// A fact that came in.
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
#[serde(tag = "input")]
pub enum Input {
    /// A scheduler took over, with these settings.
    Started {
        /// In force from here on.
        settings: Settings,
        /// COMMANDS was made anew: its sequences start over.
        commands_restarted: bool,
    },
    /// A worker spoke.
    Worker {
        /// Who, by its subject.
        worker: WorkerId,
        /// Which run of it.
        session: SessionId,
        /// What it said.
        message: WorkerMessage,
    },
    /// A worker's figures changed materially.
    Metrics {
        /// Who.
        worker: WorkerId,
        /// The figures.
        metrics: WorkerMetrics,
    },
    /// A worker was silent for the heartbeat timeout.
    WorkerSilent {
        /// Who.
        worker: WorkerId,
    },
    /// A user asked for something.
    Command {
        /// What.
        command: Command,
    },
    /// A message in COMMANDS that cannot be believed.
    Unreadable {
        /// Its subject.
        subject: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Time passed; `Entry::at` says which.
    Tick,
    /// The periodic look for what the rules should have done at once.
    Sweep,
}

impl Input {
    /// What a worker said, if it is that.
    #[must_use]
    pub fn message(&self) -> Option<&WorkerMessage> {
        match self {
            Input::Worker { message, .. } => Some(message),
            Input::Started { .. }
            | Input::Metrics { .. }
            | Input::WorkerSilent { .. }
            | Input::Command { .. }
            | Input::Unreadable { .. }
            | Input::Tick
            | Input::Sweep => None,
        }
    }

    /// The batch of an evaluation, if it is one.
    #[must_use]
    pub fn eval_result(&self) -> Option<&EvalResult> {
        let WorkerMessage::JobUpdate { update: JobUpdate::EvalResult(batch), .. } =
            self.message()?
        else {
            return None;
        };
        Some(batch)
    }
}

/// What the core needs to know of the configuration. Part of the log, so that a replay decides alike.
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
pub struct Settings {
    /// Name of the scoring policy.
    pub policy: String,
    /// Executions of a build before a retryable failure is permanent (reference 3.7).
    pub build_max_attempts: u32,
    /// First pause before a retry, in milliseconds; doubles with each (reference 3.7).
    pub build_retry_backoff_ms: u64,
    /// Losses in a row before a build fails (protocol page, Assignment 9).
    pub build_max_losses: u32,
    /// Hand-outs before an evaluation fails (reference 3.7).
    pub evaluation_max_hand_outs: u32,
    /// An assignment without an answer is withdrawn after this time, in milliseconds.
    pub accept_timeout_ms: u64,
    /// An unanswered request counts as an idle slot for this time, in milliseconds.
    pub idle_slot_ms: u64,
    /// An unconfirmed abort closes the assignment after this time, in milliseconds.
    pub abort_timeout_ms: u64,
    /// Wall-clock limit of a build that has none of its own, in seconds; 0 = off.
    pub build_timeout_secs: u64,
    /// Silence limit of a build that has none of its own, in seconds; 0 = off.
    pub build_max_silent_secs: u64,
    /// An evaluation whose builds fit no worker is aborted after this time, in milliseconds; 0 = never.
    pub unbuildable_timeout_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: "simple".into(),
            build_max_attempts: 3,
            build_retry_backoff_ms: 30_000,
            build_max_losses: 10,
            evaluation_max_hand_outs: 10,
            accept_timeout_ms: 30_000,
            idle_slot_ms: 25_000,
            abort_timeout_ms: 300_000,
            build_timeout_secs: 14_400,
            build_max_silent_secs: 3_600,
            unbuildable_timeout_ms: 300_000,
        }
    }
}
