//! Simulated schedulers: the real core over a shared log, with the shell's rules about appending,
//! standing by and delivering.

use std::collections::BTreeMap;

use gradient_domain::Timestamp;
use gradient_events::{Cause, Entry, Input, Settings};
use gradient_scheduler_core::outstanding::{Effect, Owed};
use gradient_scheduler_core::{State, decide, evolve, outstanding_for};

/// Milliseconds after which an unacknowledged delivery is repeated.
const REPEAT_MS: u64 = 5_000;

/// The log that all schedulers share: messages of entries.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The messages.
    pub messages: Vec<Vec<Entry>>,
}

/// One scheduler process.
#[derive(Clone, Debug)]
pub struct Scheduler {
    /// The folded log, perhaps with decisions that are not appended yet.
    pub state: State,
    /// Messages folded.
    pub folded: usize,
    /// When each delivery was last sent.
    sent: BTreeMap<Effect, u64>,
    /// Whether it has to say that it started.
    starts: bool,
}

/// What became of a turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing changed.
    Quiet,
    /// A message was appended.
    Appended,
    /// Another scheduler was first; what was decided is thrown away.
    Lost,
}

impl Scheduler {
    /// A scheduler that folds the log and takes over.
    #[must_use]
    pub fn start(log: &Log) -> Self {
        let mut scheduler =
            Self { state: State::default(), folded: 0, sent: BTreeMap::new(), starts: true };
        scheduler.catch_up(log);
        scheduler
    }

    /// Folds what is new.
    pub fn catch_up(&mut self, log: &Log) {
        for message in &log.messages[self.folded..] {
            for entry in message {
                evolve(&mut self.state, entry);
            }
        }
        self.folded = log.messages.len();
    }

    /// Decides inputs and appends the entries as one message.
    pub fn turn(&mut self, log: &mut Log, now: Timestamp, mut inputs: Vec<(Cause, Input)>) -> Turn {
        if std::mem::take(&mut self.starts) {
            inputs.insert(
                0,
                (
                    Cause::Internal,
                    Input::Started { settings: Settings::default(), commands_restarted: false },
                ),
            );
        }
        let mut entries = Vec::new();
        for (cause, input) in inputs {
            if matches!(cause, Cause::Command(n) if n <= self.state.commands_position()) {
                continue;
            }
            let at = now.max(self.state.now());
            let events = decide(&mut self.state, at, cause, &input);
            if !events.is_empty() {
                if let Input::Worker {
                    worker,
                    message: gradient_events::WorkerMessage::Hello(_),
                    ..
                } = &input
                {
                    self.sent.retain(|effect, _| effect.worker != *worker);
                }
                entries.push(Entry { at, cause, input, events });
            }
        }
        if entries.is_empty() {
            return Turn::Quiet;
        }
        if log.messages.len() != self.folded {
            *self = Self::start(log);
            return Turn::Lost;
        }
        log.messages.push(entries);
        self.folded += 1;
        Turn::Appended
    }

    /// Deliveries that are due.
    pub fn due(&mut self, now_ms: u64) -> Vec<Effect> {
        let mut due = Vec::new();
        let mut owed_now = Vec::new();
        for worker in self.state.workers().keys() {
            for effect in outstanding_for(&self.state, *worker) {
                owed_now.push(effect);
                let last = self.sent.get(&effect);
                if last.is_none_or(|last| now_ms.abs_diff(*last) >= REPEAT_MS) {
                    self.sent.insert(effect, now_ms);
                    due.push(effect);
                }
            }
        }
        self.sent.retain(|effect, _| owed_now.contains(effect));
        due
    }

    /// Whether something is owed to anybody.
    #[must_use]
    pub fn owes(&self, owed: Owed) -> bool {
        self.sent.keys().any(|effect| effect.owed == owed)
    }
}
