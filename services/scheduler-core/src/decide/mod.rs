//! One input in, its events out.
//!
//! A decision is a chain: a finished build makes others ready, that ends an evaluation, that wakes
//! offers. Each event is applied as soon as it is decided, by the very function that a replay uses,
//! so the next link sees the state it left (ADR 13). Hence `decide` advances the state exactly as
//! [`crate::evolve()`] would; whoever loses the append throws the state away.

mod build;
mod command;
mod evaluation;
mod hand_out;
mod limits;
mod offer;
mod placement;
mod report;
mod time;
mod waiting;
mod worker;

pub(crate) use limits::BUILDS_PER_EVENT_MAX;

use std::collections::BTreeSet;

use gradient_domain::Timestamp;
use gradient_events::score::OfferNumber;
use gradient_events::{Cause, Event, Input};

use crate::evaluation::EvaluationIndex;
use crate::evolve;
use crate::queue::ClassId;
use crate::state::State;

/// Decides one input on the running state. No events: the input changes nothing and is not logged.
///
/// `at` is the shell's clock; an entry never goes back behind the one in front of it.
pub fn decide(state: &mut State, at: Timestamp, cause: Cause, input: &Input) -> Vec<Event> {
    let mut decision = Decision::new(state, at, cause, input);
    match input {
        Input::Started { .. } => decision.emit(Event::SettingsReplaced),
        Input::Worker { worker, session, message } => decision.worker(*worker, *session, message),
        Input::Metrics { worker, .. } => decision.metrics(*worker),
        Input::WorkerSilent { worker } => decision.worker_silent(*worker),
        Input::Command { command } => decision.command(command),
        Input::Unreadable { reason, .. } => decision.refuse(reason.clone()),
        Input::Tick => decision.tick(),
        Input::Sweep => decision.sweep(),
    }
    decision.conclude();
    decision.events
}

/// A decision under way.
pub(crate) struct Decision<'a> {
    state: &'a mut State,
    at: Timestamp,
    cause: Cause,
    input: &'a Input,
    events: Vec<Event>,
    /// Evaluations whose end may have come.
    touched: BTreeSet<EvaluationIndex>,
    /// Classes that have new offers.
    offered: BTreeSet<ClassId>,
    /// Whether the set of workers that take jobs changed.
    workers_changed: bool,
}

impl<'a> Decision<'a> {
    fn new(state: &'a mut State, at: Timestamp, cause: Cause, input: &'a Input) -> Self {
        let at = at.max(state.now);
        Self {
            state,
            at,
            cause,
            input,
            events: Vec::new(),
            touched: BTreeSet::new(),
            offered: BTreeSet::new(),
            workers_changed: false,
        }
    }

    /// The moment of the input.
    fn now(&self) -> Timestamp {
        self.at
    }

    /// Adds an event and applies it.
    fn emit(&mut self, event: Event) {
        if self.events.is_empty() {
            evolve::begin(self.state, self.at, self.cause);
        }
        evolve::apply(self.state, self.input, &event);
        self.events.push(event);
    }

    fn refuse(&mut self, reason: impl Into<String>) {
        self.emit(Event::InputRefused { reason: reason.into() });
    }

    fn next_offer(&self) -> OfferNumber {
        OfferNumber(self.state.last_offer.0 + 1)
    }

    /// What follows from whatever happened: evaluations end or wait, new offers go out.
    fn conclude(&mut self) {
        while let Some(index) = self.touched.pop_first() {
            self.settle_evaluation(index);
        }
        if self.workers_changed {
            self.review_queued_evaluations();
        }
        self.send_offers();
    }
}
