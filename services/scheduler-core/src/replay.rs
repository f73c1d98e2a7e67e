//! Replay: the log decided again (architecture page, Replay).

use gradient_events::{Entry, Event};

use crate::decide::decide;
use crate::evolve::evolve;
use crate::state::State;

/// An entry that this build decides otherwise than the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// What the log says.
    pub logged: Vec<Event>,
    /// What this build decides.
    pub decided: Vec<Event>,
}

/// Folds a log and decides every input of it again, side by side.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    folded: State,
    decided: State,
}

impl Verifier {
    /// A verifier that goes on from a folded state.
    #[must_use]
    pub fn from_state(state: &State) -> Self {
        Self { folded: state.clone(), decided: state.clone() }
    }

    /// The fold of the log so far.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.folded
    }

    /// Takes the next entry. After a deviation both sides go on from what the log says.
    ///
    /// # Errors
    /// The deviation.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), Box<Deviation>> {
        let decided = decide(&mut self.decided, entry.at, entry.cause, &entry.input);
        evolve(&mut self.folded, entry);
        if decided == entry.events {
            return Ok(());
        }
        self.decided = self.folded.clone();
        Err(Box::new(Deviation { logged: entry.events.clone(), decided }))
    }

    /// Whether both sides came to the same state.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.folded == self.decided
    }
}

/// Folds a whole log.
#[must_use]
pub fn fold<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> State {
    let mut state = State::default();
    for entry in entries {
        evolve(&mut state, entry);
    }
    state
}
