//! Fold of the worker events.

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::{JobId, SessionId, WorkerId};
use gradient_events::score::{CandidateScore, OfferNumber};
use gradient_events::worker::Hello;
use gradient_events::{Event, Input, WorkerMessage};

use super::corrupt;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::state::State;
use crate::worker::{Answers, Page, Presence, Rejection, WINDOW_MAX, Worker, WorkerScore};

pub(super) fn apply(state: &mut State, input: &Input, event: &Event) {
    match (event, input) {
        (Event::SettingsReplaced, Input::Started { settings, commands_restarted }) => {
            state.settings = settings.clone();
            if *commands_restarted {
                state.commands_position = 0;
            }
            let policy = Policy::named(&settings.policy);
            for worker in state.workers.values_mut() {
                worker.answers.rescore(|score| policy.worker_part(score));
            }
        }
        (
            Event::WorkerJoined { worker, session, protocol },
            Input::Worker { message: WorkerMessage::Hello(hello), .. },
        ) => join(state, *worker, *session, *protocol, hello),
        (Event::WorkerRejected { worker, session, code, reason }, _) => {
            let entry = state.workers.entry(*worker).or_insert_with(|| blank(*session));
            entry.rejection =
                Some(Rejection { session: *session, code: *code, reason: reason.clone() });
        }
        (
            Event::CapabilitiesReplaced { worker, version },
            Input::Worker { message: WorkerMessage::WorkerCapabilities { capabilities }, .. },
        ) => {
            let entry = state.worker_mut(*worker);
            entry.capabilities = Some(capabilities.clone());
            entry.capabilities_version = *version;
            entry.cursor = OfferNumber::default();
            entry.listing = false;
            entry.welcome_owed = false;
            learn_classes(state, *worker);
        }
        (Event::MetricsRecorded { worker }, Input::Metrics { metrics, .. }) => {
            state.worker_mut(*worker).metrics = Some(metrics.clone());
        }
        (Event::SlotIdle { worker, kind }, _) => {
            let now = state.now;
            state.worker_mut(*worker).idle.insert(*kind, now);
            drop_void_answers(state, *worker);
        }
        (Event::OffersSent { worker, up_to, list, is_final }, _) => {
            let entry = state.worker_mut(*worker);
            let starts_list = *list && !entry.listing;
            let after = if starts_list { OfferNumber::default() } else { entry.cursor };
            entry.listing = *list && !*is_final;
            entry.page = Some(Page { after, up_to: *up_to, list: *list, is_final: *is_final });
            entry.cursor = *up_to;
            entry.listed |= *list;
            entry.welcome_owed = false;
        }
        (
            Event::ScoresRecorded { worker, up_to },
            Input::Worker { message: WorkerMessage::RequestJobChunk { scores, .. }, .. },
        ) => record_scores(state, *worker, *up_to, scores),
        (Event::WorkerDraining { worker }, _) => set_presence(state, *worker, Presence::Draining),
        (Event::WorkerLost { worker }, _) => set_presence(state, *worker, Presence::Lost),
        (Event::WorkerLeft { worker, .. }, _) => set_presence(state, *worker, Presence::Left),
        (event, input) => corrupt(input, event),
    }
}

fn blank(session: SessionId) -> Worker {
    Worker {
        name: String::new(),
        session,
        presence: Presence::Refused,
        fetch: false,
        eval: false,
        build: false,
        greeting: 0,
        protocol: 0,
        capabilities: None,
        capabilities_version: 0,
        metrics: None,
        listed: false,
        listing: false,
        cursor: OfferNumber::default(),
        page: None,
        classes: Vec::new(),
        answers: Answers::default(),
        idle: BTreeMap::new(),
        assignments: BTreeSet::new(),
        welcome_owed: false,
        rejection: None,
    }
}

fn join(state: &mut State, worker: WorkerId, session: SessionId, protocol: u16, hello: &Hello) {
    let entry = state.workers.entry(worker).or_insert_with(|| blank(session));
    let resumes = entry.session == session && entry.presence.is_here();
    if !resumes {
        let assignments = std::mem::take(&mut entry.assignments);
        let capabilities_version = entry.capabilities_version;
        *entry = Worker { assignments, capabilities_version, ..blank(session) };
        entry.presence = Presence::Connected;
    }
    entry.name.clone_from(&hello.name);
    (entry.fetch, entry.eval, entry.build) = (hello.fetch, hello.eval, hello.build);
    entry.listing = false;
    entry.greeting = hello.greeting;
    entry.protocol = protocol;
    entry.welcome_owed = true;
    entry.rejection = None;
    learn_classes(state, worker);
}

/// Takes over the answers for jobs that still wait; the others went to somebody else meanwhile.
fn record_scores(
    state: &mut State,
    worker: WorkerId,
    up_to: OfferNumber,
    scores: &[CandidateScore],
) {
    let policy = Policy::named(&state.settings.policy);
    let (queue, workers) = (&state.queue, &mut state.workers);
    let entry = workers.get_mut(&worker).expect("events name workers that joined before");
    for score in scores {
        let CandidateScore { job, missing_count, missing_nar_size, outputs_present } = *score;
        let Some(pending) = queue.get(job) else { continue };
        let offer = pending.offer;
        let answer = WorkerScore { offer, missing_count, missing_nar_size, outputs_present };
        entry.answers.insert(job, answer, policy.worker_part(&answer), pending.ready_at);
    }
    if entry.answers.len() >= WINDOW_MAX {
        entry.answers.drop_all_void(|job, score| is_void(queue, job, score));
    }
    if entry.page.is_some_and(|page| page.up_to <= up_to) {
        entry.page = None;
    }
}

/// An answer counts for the offer that it answers, as long as that stands.
fn is_void(queue: &Queue, job: JobId, score: &WorkerScore) -> bool {
    queue.get(job).is_none_or(|pending| pending.offer != score.offer)
}

/// Drops what a worker said of jobs that are gone, as far as it stands in the way of the next look.
pub(super) fn drop_void_answers(state: &mut State, worker: WorkerId) {
    let (queue, workers) = (&state.queue, &mut state.workers);
    if let Some(entry) = workers.get_mut(&worker) {
        if entry.answers.len() >= WINDOW_MAX {
            entry.answers.drop_all_void(|job, score| is_void(queue, job, score));
        } else {
            entry.answers.drop_void(|job, score| is_void(queue, job, score));
        }
    }
}

/// Finds out which classes of jobs a worker can run.
fn learn_classes(state: &mut State, worker: WorkerId) {
    let (queue, workers) = (&state.queue, &mut state.workers);
    if let Some(entry) = workers.get_mut(&worker) {
        let fitting = queue.all_classes().filter(|(_, class)| class.need.fits(entry));
        entry.classes = fitting.map(|(id, _)| id).collect();
    }
}

fn set_presence(state: &mut State, worker: WorkerId, presence: Presence) {
    let entry = state.worker_mut(worker);
    entry.presence = presence;
    entry.idle.clear();
    entry.page = None;
    entry.answers = Answers::default();
    entry.welcome_owed = false;
}
