//! Offers and assignments: scoring, asking, taking.

use gradient_domain::Kind;
use gradient_events::score::{CandidateScore, OfferNumber};
use gradient_events::server::{JobCandidate, UploadToken};
use gradient_events::worker::OpenAssignment;
use gradient_events::{Job, WorkerMessage};

use super::{Agent, Own, Phase};
use crate::job::{Running, Stop};
use crate::store::{Candidate, score};

/// Answers to one page of candidates.
pub(super) struct Scored {
    scores: Vec<CandidateScore>,
    up_to: OfferNumber,
    is_final: bool,
}

impl Scored {
    pub(super) fn into_message(self) -> WorkerMessage {
        let Scored { scores, up_to, is_final } = self;
        WorkerMessage::RequestJobChunk { scores, up_to, is_final }
    }
}

impl Agent {
    /// Scores a page against the local store, beside the agent.
    pub(super) fn score(&self, candidates: Vec<JobCandidate>, up_to: OfferNumber, is_final: bool) {
        let (store, own) = (self.executor.store().clone(), self.own.0.clone());
        tokio::spawn(async move {
            let asked: Vec<Candidate> = candidates
                .iter()
                .map(|candidate| Candidate {
                    required: candidate
                        .required_paths
                        .iter()
                        .map(|required| (required.path.clone(), required.nar_size.unwrap_or(0)))
                        .collect(),
                    outputs: candidate.output_paths.clone(),
                })
                .collect();
            let scores = score(&store, &asked).await;
            let scores = candidates
                .iter()
                .zip(scores)
                .map(|(candidate, score)| CandidateScore {
                    job: candidate.job_id,
                    missing_count: score.missing_count,
                    missing_nar_size: score.missing_nar_size,
                    outputs_present: score.outputs_present,
                })
                .collect();
            let _ = own.send(Own::Scored(Scored { scores, up_to, is_final })).await;
        });
    }

    /// Asks for a job of a kind if a slot of it is free.
    pub(super) async fn request(&self, kind: Kind) {
        if self.phase == Phase::Open && self.slots.has_free(kind) {
            self.voice.say(WorkerMessage::RequestJob { kind }).await;
        }
    }

    pub(super) async fn request_all(&self) {
        self.request(Kind::Evaluate).await;
        self.request(Kind::Build).await;
    }

    /// Takes or declines a job. A repeat of a running one is taken again, an ended one is known to
    /// have its report under way.
    pub(super) async fn assign(
        &mut self,
        open: OpenAssignment,
        job: Job,
        upload_token: UploadToken,
    ) {
        if self.slots.holds(open.assignment) {
            return self.answer(open, None).await;
        }
        let reported = self.outbox.kept().unwrap_or_default();
        if reported.iter().any(|(ended, _)| ended.assignment == open.assignment) {
            return;
        }
        if let Some(other) = self.slots.other(open) {
            // Hand-outs are counted: a late delivery of an older one stops nothing.
            if other.assignment < open.assignment {
                other.stop(Stop::Forgotten);
            }
            return self.answer(open, Some("another run of this job is not over yet".into())).await;
        }
        let kind = open.job.kind();
        if !self.slots.has_free(kind) {
            let (active, limit) = self.slots.load(kind);
            return self.answer(open, Some(format!("at capacity ({active}/{limit})"))).await;
        }
        self.answer(open, None).await;
        self.start(open, job, upload_token);
        self.request(kind).await;
    }

    async fn answer(&self, open: OpenAssignment, reason: Option<String>) {
        let OpenAssignment { job, assignment } = open;
        let accepted = reason.is_none();
        self.voice
            .say(WorkerMessage::AssignJobResponse { job, assignment, accepted, reason })
            .await;
    }

    fn start(&mut self, open: OpenAssignment, job: Job, upload_token: UploadToken) {
        let running = Running::new(open.job, open.assignment, upload_token, self.voice.clone());
        self.slots.started(running.clone());
        let (executor, own) = (self.executor.clone(), self.own.0.clone());
        tokio::spawn(async move {
            let end = executor.run(&running, job).await;
            running.end(end).await;
            let _ = own.send(Own::Ended(open)).await;
        });
    }
}
