//! What workers say about themselves: sessions, capabilities, requests, leaving.

use gradient_domain::{Capabilities, Kind, SessionId, WorkerId};
use gradient_events::event::AbandonReason;
use gradient_events::worker::{Hello, OpenAssignment};
use gradient_events::{Event, PAGE_ITEMS_MAX, PROTOCOL_VERSIONS, WorkerMessage};

use super::Decision;
use crate::assignment::Phase;
use crate::worker::Presence;

/// Longest name of a worker, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Most systems or features that a worker may list.
const CAPABILITY_ITEMS_MAX: usize = 256;
/// Most build slots of one worker.
const SLOTS_MAX: u32 = 1_024;

impl Decision<'_> {
    pub(super) fn worker(&mut self, worker: WorkerId, session: SessionId, message: &WorkerMessage) {
        if let WorkerMessage::Hello(hello) = message {
            return self.hello(worker, session, hello);
        }
        if !self.is_current(worker, session) {
            return self.stale_session(worker, session, message);
        }
        match message {
            WorkerMessage::Hello(_) => unreachable!("taken above"),
            WorkerMessage::WorkerCapabilities { capabilities } => {
                self.capabilities(worker, capabilities)
            }
            WorkerMessage::RequestJobList => self.job_list(worker),
            WorkerMessage::RequestJobChunk { scores, up_to, .. } => {
                if scores.len() > PAGE_ITEMS_MAX {
                    return self.refuse(format!("a chunk holds at most {PAGE_ITEMS_MAX} scores"));
                }
                let open = self.state.workers[&worker].page.is_some();
                if open || !scores.is_empty() {
                    self.emit(Event::ScoresRecorded { worker, up_to: *up_to });
                }
            }
            WorkerMessage::RequestJob { kind } => self.request_job(worker, *kind),
            WorkerMessage::AssignJobResponse { job, assignment, accepted, reason } => {
                let reason = reason.as_deref().unwrap_or("no reason given");
                self.assign_job_response(worker, *job, *assignment, *accepted, reason);
            }
            WorkerMessage::JobUpdate { job, assignment, update } => {
                self.job_update(worker, *job, *assignment, update);
            }
            WorkerMessage::JobCompleted { job, assignment, .. } => {
                self.job_completed(worker, *job, *assignment);
            }
            WorkerMessage::JobFailed { job, assignment, kind, error, .. } => {
                self.job_failed(worker, *job, *assignment, *kind, error);
            }
            WorkerMessage::Draining => {
                if self.state.workers[&worker].presence == Presence::Connected {
                    self.emit(Event::WorkerDraining { worker });
                    self.workers_changed = true;
                }
            }
            WorkerMessage::Goodbye => self.leave(worker, session),
        }
    }

    fn is_current(&self, worker: WorkerId, session: SessionId) -> bool {
        self.state
            .workers
            .get(&worker)
            .is_some_and(|w| w.session == session && w.presence.is_here())
    }

    /// A session that does not count (any more): its reports are dropped, and it is told once to say
    /// hello again.
    fn stale_session(&mut self, worker: WorkerId, session: SessionId, message: &WorkerMessage) {
        if let Some(OpenAssignment { job, assignment }) = message.reported() {
            self.drop_report(worker, job, assignment);
        }
        self.reject(worker, session, 401, "this session is not open; say hello again".to_owned());
    }

    /// Tells a session once that it is refused.
    fn reject(&mut self, worker: WorkerId, session: SessionId, code: u16, reason: String) {
        let told = self.state.workers.get(&worker).and_then(|w| w.rejection.as_ref());
        let is_news = told.is_none_or(|told| (told.session, told.code) != (session, code));
        if is_news {
            self.emit(Event::WorkerRejected { worker, session, code, reason });
        }
    }

    fn hello(&mut self, worker: WorkerId, session: SessionId, hello: &Hello) {
        let (oldest, newest) = PROTOCOL_VERSIONS;
        let protocol = newest.min(hello.protocol_newest);
        if protocol < oldest.max(hello.protocol_oldest) {
            let reason = format!(
                "no shared protocol version: ours {oldest}..={newest}, peer {}..={}",
                hello.protocol_oldest, hello.protocol_newest
            );
            return self.reject(worker, session, 400, reason);
        }
        if hello.name.is_empty()
            || hello.name.len() > NAME_BYTES_MAX
            || hello.name.contains(char::is_control)
        {
            let reason = format!(
                "a worker's name has 1 to {NAME_BYTES_MAX} bytes and no control characters"
            );
            return self.reject(worker, session, 400, reason);
        }
        if let Some(known) = self.state.workers.get(&worker) {
            if known.session != session && known.presence.is_here() {
                let session = known.session;
                self.emit(Event::WorkerLeft { worker, session });
            }
            self.abandon_assignments(worker, AbandonReason::WorkerLeft, &hello.open_assignments);
        }
        self.emit(Event::WorkerJoined { worker, session, protocol });
        self.workers_changed = true;
    }

    fn capabilities(&mut self, worker: WorkerId, capabilities: &Capabilities) {
        let listed = capabilities.architectures.len().max(capabilities.system_features.len());
        if listed > CAPABILITY_ITEMS_MAX || capabilities.max_concurrent_builds > SLOTS_MAX {
            return self.refuse(format!(
                "a worker lists at most {CAPABILITY_ITEMS_MAX} systems and features and {SLOTS_MAX} slots"
            ));
        }
        let version = self.state.workers[&worker].capabilities_version + 1;
        self.emit(Event::CapabilitiesReplaced { worker, version });
        self.workers_changed = true;
    }

    fn request_job(&mut self, worker: WorkerId, kind: Kind) {
        let known = &self.state.workers[&worker];
        let full = match kind {
            Kind::Build => self.running_builds(worker) >= known.build_slots(),
            // The limit is the worker's own; while one is on its way to it, it gets no second.
            Kind::Evaluate => known.assignments.iter().any(|id| {
                let open = &self.state.assignments[id];
                open.job.kind() == kind && open.phase == Phase::Claimed
            }),
        };
        if !known.takes(kind) || full || self.place(worker, kind) {
            return;
        }
        // A repeat is counted, not logged.
        if !self.state.workers[&worker].idle.contains_key(&kind) {
            self.emit(Event::SlotIdle { worker, kind });
        }
    }

    fn running_builds(&self, worker: WorkerId) -> usize {
        let assignments = &self.state.workers[&worker].assignments;
        assignments.iter().filter(|id| self.state.assignments[id].job.kind() == Kind::Build).count()
    }

    pub(super) fn metrics(&mut self, worker: WorkerId) {
        if self.state.workers.get(&worker).is_some_and(|w| w.presence.is_here()) {
            self.emit(Event::MetricsRecorded { worker });
        }
    }

    pub(super) fn worker_silent(&mut self, worker: WorkerId) {
        if self.state.workers.get(&worker).is_some_and(|w| w.presence.is_here()) {
            self.emit(Event::WorkerLost { worker });
            self.abandon_assignments(worker, AbandonReason::WorkerLost, &[]);
            self.workers_changed = true;
        }
    }

    fn leave(&mut self, worker: WorkerId, session: SessionId) {
        self.emit(Event::WorkerLeft { worker, session });
        self.abandon_assignments(worker, AbandonReason::WorkerLeft, &[]);
        self.workers_changed = true;
    }
}
