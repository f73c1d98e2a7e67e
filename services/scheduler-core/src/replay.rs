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

/// Folds an entry and decides its input again on the state before it. Both ways must agree.
///
/// # Errors
/// The deviation; the state is then the one that the log says.
pub fn verify(state: &mut State, entry: &Entry) -> Result<(), Box<Deviation>> {
    let mut again = state.clone();
    let decided = decide(&mut again, entry.at, entry.cause, &entry.input);
    evolve(state, entry);
    if decided == entry.events && again == *state {
        return Ok(());
    }
    Err(Box::new(Deviation { logged: entry.events.clone(), decided }))
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
