//! Offers: which worker is owed which page of candidates (spec, Offers; ADR 8).

use std::collections::BTreeSet;

use gradient_domain::{JobId, Kind, WorkerId};
use gradient_events::score::OfferNumber;
use gradient_events::{Event, PAGE_BYTES_MAX, PAGE_ITEMS_MAX};

use super::Decision;
use super::limits::OFFERS_PER_DECISION_MAX;
use crate::outstanding::{candidate, candidate_bytes};
use crate::queue::ClassId;
use crate::state::State;
use crate::worker::{WINDOW_MAX, Worker};

impl Decision<'_> {
    /// Notes that a job has a new offer, which fitting workers will hear of.
    pub(super) fn note_offer(&mut self, job: JobId) {
        if let Some(pending) = self.state.queue.get(job) {
            self.offered.insert(pending.class);
        }
    }

    /// The answer to `RequestJobList`: the list from its start, even if it is empty.
    pub(super) fn job_list(&mut self, worker: WorkerId) {
        if self.state.workers[&worker].presence != crate::worker::Presence::Connected {
            return;
        }
        self.send_page(worker, true);
    }

    /// Sends what is new to the workers that it may concern: those that fit a class with new offers,
    /// and the one that spoke.
    pub(super) fn send_offers(&mut self) {
        let speaker = match self.input {
            gradient_events::Input::Worker { worker, .. } => Some(*worker),
            _ => None,
        };
        let offered = std::mem::take(&mut self.offered);
        let may_hear = |worker: &Worker| worker.listed && worker.page.is_none();
        let concerned: BTreeSet<WorkerId> = if offered.is_empty() {
            speaker
                .into_iter()
                .filter(|id| self.state.workers.get(id).is_some_and(may_hear))
                .collect()
        } else {
            let fits = |worker: &Worker| offered.iter().any(|class| self.concerns(worker, *class));
            let workers = self.state.workers.iter().filter(|(_, worker)| may_hear(worker));
            workers
                .filter(|(id, worker)| Some(**id) == speaker || fits(worker))
                .map(|(id, _)| *id)
                .collect()
        };
        for worker in concerned.into_iter().take(OFFERS_PER_DECISION_MAX) {
            let known = &self.state.workers[&worker];
            let page = next_page(self.state, known, false);
            if page.is_some_and(|page| page.count > 0 || known.listing) {
                self.send_page(worker, known.listing);
            }
        }
    }

    /// Whether new offers of a class concern a worker now: it can run them and has a slot for one. A
    /// worker without hears of them with its next message, in time for the slot that it will free.
    fn concerns(&self, worker: &Worker, class: ClassId) -> bool {
        let kind = self.state.queue.class(class).need.kind();
        let has_slot = kind == Kind::Evaluate || worker.assignments.len() < worker.build_slots();
        has_slot && worker.takes(kind) && worker.fits(class)
    }

    fn send_page(&mut self, worker: WorkerId, list: bool) {
        let known = &self.state.workers[&worker];
        let Some(page) = next_page(self.state, known, list && !known.listing) else {
            return;
        };
        let NextPage { up_to, is_final, .. } = page;
        self.emit(Event::OffersSent { worker, up_to, list, is_final });
    }
}

struct NextPage {
    up_to: OfferNumber,
    count: usize,
    is_final: bool,
}

/// The next page for a worker: offers after its cursor of classes that it fits, in order, at most
/// 1,000 and 256 KiB, and no more than its window has room for.
fn next_page(state: &State, worker: &Worker, from_start: bool) -> Option<NextPage> {
    let cursor = if from_start { OfferNumber::default() } else { worker.cursor };
    let answers = &worker.answers;
    let taken = match answers.len() {
        _ if from_start => 0,
        count if count <= WINDOW_MAX / 2 => count,
        _ => answers.count(|job, score| {
            state.queue.get(job).is_some_and(|pending| pending.offer == score.offer)
        }),
    };
    let room = WINDOW_MAX.saturating_sub(taken);
    if room == 0 {
        return None;
    }
    let after = OfferNumber(cursor.0 + 1);
    let most = room.min(PAGE_ITEMS_MAX);
    let mut offers: Vec<(OfferNumber, JobId)> = [Kind::Evaluate, Kind::Build]
        .into_iter()
        .flat_map(|kind| state.queue.classes_for(worker, kind))
        .flat_map(|class| class.offers.range(after..).take(most + 1))
        .map(|(offer, job)| (*offer, *job))
        .collect();
    offers.sort_unstable();
    let mut bytes = 0;
    let fitting = offers.iter().take(most).take_while(|(_, job)| {
        bytes += candidate_bytes(&candidate(state, *job));
        bytes <= PAGE_BYTES_MAX
    });
    // A candidate is bounded (`outstanding`), so that one alone always fits a message.
    let count = fitting.count().max(usize::from(!offers.is_empty()));
    let is_final = count == offers.len();
    let up_to = match offers.get(count.wrapping_sub(1)) {
        Some((offer, _)) if !is_final => *offer,
        Some(_) | None => state.last_offer,
    };
    Some(NextPage { up_to, count, is_final })
}
