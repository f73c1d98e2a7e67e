//! Offers and assignments: scoring, asking, taking.

use gradient_domain::Kind;
use gradient_events::score::{CandidateScore, OfferNumber};
use gradient_events::server::{JobCandidate, UploadToken};
use gradient_events::worker::OpenAssignment;
use gradient_events::{FailureKind, Job, WorkerMessage};

use super::slots::Over;
use super::{Agent, Own, Phase};
use crate::job::{JobEnd, Running, Stop};
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

    /// Asks for a job of a kind if a slot of it is free. Without a connection nobody would hear it;
    /// the next heartbeat asks again.
    pub(super) async fn request(&self, kind: Kind) {
        if self.phase == Phase::Open && self.slots.has_free(kind) && self.broker.is_connected() {
            self.voice.request(kind).await;
        }
    }

    pub(super) async fn request_all(&self) {
        self.request(Kind::Evaluate).await;
        self.request(Kind::Build).await;
    }

    /// Takes or declines a job. A repeat of a running one is taken again; one that is over does not
    /// start again, its report is under way or has arrived.
    pub(super) async fn assign(
        &mut self,
        open: OpenAssignment,
        job: Job,
        upload_token: UploadToken,
    ) {
        if self.slots.holds(open.assignment) {
            return self.answer(open, None).await;
        }
        if self.outbox.holds(open.assignment) {
            return;
        }
        match self.slots.over(open.assignment) {
            Some(Over::Ended) => return,
            Some(Over::Aborted) => return self.report_aborted(open, "before it began").await,
            None => {}
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

    /// Stops a job. What does not run here is answered at once: the server need not wait for it, and
    /// drops the answer if the hand-out is closed.
    pub(super) async fn abort(&mut self, open: OpenAssignment, reason: &str) {
        if !self.outbox.holds(open.assignment) && !self.slots.abort(open.assignment, reason) {
            self.report_aborted(open, reason).await;
        }
    }

    async fn report_aborted(&self, open: OpenAssignment, reason: &str) {
        let OpenAssignment { job, assignment } = open;
        self.voice
            .say(WorkerMessage::JobFailed {
                job,
                assignment,
                kind: FailureKind::Aborted,
                error: format!("job aborted by server: {reason}"),
                missing_paths: Vec::new(),
                elapsed_ms: 0,
            })
            .await;
    }

    fn start(&mut self, open: OpenAssignment, job: Job, upload_token: UploadToken) {
        let running = Running::new(open.job, open.assignment, upload_token, self.voice.clone());
        self.slots.started(running.clone());
        let (executor, own) = (self.executor.clone(), self.own.0.clone());
        tokio::spawn(async move {
            let run = running.clone();
            let end = end_of(async move { executor.run(&run, job).await }).await;
            running.end(end).await;
            let _ = own.send(Own::Ended(open)).await;
        });
    }
}

/// The end of a job, though it panics: the slot must not be lost with it.
async fn end_of(run: impl Future<Output = JobEnd> + Send + 'static) -> JobEnd {
    match tokio::spawn(run).await {
        Ok(end) => end,
        Err(error) => {
            tracing::error!(%error, "a job's task panicked: a fault of ours");
            JobEnd::failed(FailureKind::Transient, "the job's task panicked")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        let end = end_of(async { panic!("on purpose") }).await;
        assert!(matches!(end, JobEnd::Failed { kind: FailureKind::Transient, .. }), "{end:?}");
        assert_eq!(end_of(async { JobEnd::Completed }).await, JobEnd::Completed);
    }
}
