//! What the worker says: one queue, in order, each message sent until the inbox has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradient_domain::text::cut;
use gradient_domain::{Kind, SessionId, WorkerId};
use gradient_events::{Envelope, FailureKind, FromWorker, Wire, WorkerMessage, subject};
use gradient_log::{Inbox, SendError};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::job::ERROR_BYTES_MAX;
use crate::outbox::{Outbox, ended};

/// Most messages that wait to be sent; whoever reports more waits.
const WAITING_MAX: usize = 256;
/// First and longest pause before a message is sent again.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Missing paths that are left in a report that was too large.
const MISSING_PATHS_LEFT: usize = 100;

enum Item {
    Say(WorkerMessage),
    Flush(oneshot::Sender<()>),
}

/// Speaks for the worker. Clones speak through the same queue.
#[derive(Clone, Debug)]
pub struct Voice {
    queue: mpsc::Sender<Item>,
    session: SessionId,
    outbox: Outbox,
    asked: Arc<Asked>,
}

/// The kinds of jobs that a request in the queue asks for.
#[derive(Debug, Default)]
struct Asked {
    evaluate: AtomicBool,
    build: AtomicBool,
}

impl Asked {
    fn of(&self, kind: Kind) -> &AtomicBool {
        match kind {
            Kind::Evaluate => &self.evaluate,
            Kind::Build => &self.build,
        }
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Item::Say(message) => f.debug_tuple("Say").field(message).finish(),
            Item::Flush(_) => f.write_str("Flush"),
        }
    }
}

impl Voice {
    /// Starts the queue of a session.
    #[must_use]
    pub fn start(inbox: impl Inbox, worker: WorkerId, session: SessionId, outbox: Outbox) -> Self {
        let (queue, mut items) = mpsc::channel(WAITING_MAX);
        let asked = Arc::<Asked>::default();
        let voice = Self { queue, session, outbox: outbox.clone(), asked: asked.clone() };
        tokio::spawn(async move {
            let subject = subject::command(worker);
            while let Some(item) = items.recv().await {
                match item {
                    Item::Say(message) => {
                        let end = ended(&message);
                        let request = match &message {
                            WorkerMessage::RequestJob { kind } => Some(*kind),
                            _ => None,
                        };
                        send(&inbox, &subject, FromWorker { session, message }).await;
                        if let Some(end) = end {
                            outbox.forget(end.assignment);
                        }
                        if let Some(kind) = request {
                            asked.of(kind).store(false, Ordering::Relaxed);
                        }
                    }
                    Item::Flush(done) => drop(done.send(())),
                }
            }
        });
        voice
    }

    /// Says something. An end is on disk before this returns.
    pub async fn say(&self, message: WorkerMessage) {
        if let Some(end) = ended(&message) {
            let report = FromWorker { session: self.session, message: message.clone() };
            if let Err(error) = self.outbox.keep(end, &report) {
                tracing::error!(assignment = %end.assignment, %error, "a report cannot be kept on disk");
            }
        }
        if self.queue.send(Item::Say(message)).await.is_err() {
            tracing::error!("the worker's queue of messages is gone");
        }
    }

    /// Asks for a job of a kind, unless such a request waits to be sent already.
    pub async fn request(&self, kind: Kind) {
        if !self.asked.of(kind).swap(true, Ordering::Relaxed) {
            self.say(WorkerMessage::RequestJob { kind }).await;
        }
    }

    /// Waits until everything said so far has arrived.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Item::Flush(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

async fn send(inbox: &impl Inbox, subject: &str, mut report: FromWorker) {
    let (mut pause, longest) = RETRY;
    'report: loop {
        let body = report.to_body();
        let envelope = Envelope::of::<FromWorker>(Uuid::now_v7(), &body, None);
        loop {
            match inbox.send(subject.to_owned(), envelope.clone(), body.clone()).await {
                Ok(()) => return,
                Err(SendError::TooLarge { bytes, limit }) => {
                    let Some(message) = smaller(report.message, bytes, limit) else {
                        tracing::error!(
                            bytes,
                            limit,
                            "a message is too large and cannot be sent: a fault of ours"
                        );
                        return;
                    };
                    report.message = message;
                    continue 'report;
                }
                Err(error) => {
                    tracing::debug!(%error, "a message was not acknowledged; sending it again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(longest);
                }
            }
        }
    }
}

/// What is said instead of a message that is too large. A result that cannot be reported fails its
/// job: without it the job must not look done. Its end, which follows, finds the hand-out closed.
fn smaller(message: WorkerMessage, bytes: usize, limit: usize) -> Option<WorkerMessage> {
    match message {
        WorkerMessage::JobUpdate { job, assignment, .. } => {
            tracing::warn!(%job, %assignment, bytes, limit, "a report is too large; the job fails");
            Some(WorkerMessage::JobFailed {
                job,
                assignment,
                kind: FailureKind::Permanent,
                error: format!("a report of {bytes} bytes is over the limit of {limit}"),
                missing_paths: Vec::new(),
                elapsed_ms: 0,
            })
        }
        WorkerMessage::JobFailed {
            job,
            assignment,
            kind,
            error,
            mut missing_paths,
            elapsed_ms,
        } if missing_paths.len() > MISSING_PATHS_LEFT || error.len() > 2 * ERROR_BYTES_MAX => {
            missing_paths.truncate(MISSING_PATHS_LEFT);
            let error = cut(error, ERROR_BYTES_MAX);
            Some(WorkerMessage::JobFailed {
                job,
                assignment,
                kind,
                error,
                missing_paths,
                elapsed_ms,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use gradient_domain::{AssignmentId, BuildId, JobId, StorePath};
    use gradient_events::worker::JobUpdate;
    use gradient_log::memory::MemoryInbox;
    use gradient_log::{BoxStream, ReadError, Received};

    use super::*;

    const JOB: JobId = JobId::Build(BuildId(3));
    const ASSIGNMENT: AssignmentId = AssignmentId(7);

    fn voice(inbox: impl Inbox, dir: &tempfile::TempDir) -> Voice {
        let outbox = Outbox::open(dir.path()).expect("opened");
        Voice::start(inbox, WorkerId([2; 16]), SessionId([1; 16]), outbox)
    }

    async fn heard(inbox: &MemoryInbox, count: usize) -> Vec<WorkerMessage> {
        let received = inbox.receive(1).await.expect("readable").take(count);
        received
            .map(|received| {
                let received = received.expect("received");
                FromWorker::from_body(FromWorker::SCHEMA, &received.body).expect("read").message
            })
            .collect()
            .await
    }

    #[tokio::test]
    async fn a_report_that_is_too_large_fails_its_job() {
        let (inbox, dir) = (MemoryInbox::default(), tempfile::tempdir().expect("a folder"));
        let voice = voice(inbox.clone(), &dir);
        let update = JobUpdate::FetchResult {
            flake_source: path(1),
            locked_url: "x".repeat(gradient_events::MESSAGE_BYTES_MAX),
        };
        voice.say(WorkerMessage::JobUpdate { job: JOB, assignment: ASSIGNMENT, update }).await;
        voice.flush().await;
        let said = heard(&inbox, 1).await.remove(0);
        let WorkerMessage::JobFailed { job: JOB, assignment: ASSIGNMENT, kind, error, .. } = said
        else {
            panic!("{said:?}")
        };
        assert_eq!(kind, FailureKind::Permanent);
        assert!(error.contains("over the limit"), "{error}");
    }

    #[tokio::test]
    async fn a_failure_that_is_too_large_is_cut() {
        let (inbox, dir) = (MemoryInbox::default(), tempfile::tempdir().expect("a folder"));
        let voice = voice(inbox.clone(), &dir);
        let failed = WorkerMessage::JobFailed {
            job: JOB,
            assignment: ASSIGNMENT,
            kind: FailureKind::InputsUnavailable,
            error: "y".repeat(gradient_events::MESSAGE_BYTES_MAX),
            missing_paths: (0..10_000).map(path).collect(),
            elapsed_ms: 5,
        };
        voice.say(failed).await;
        voice.flush().await;
        let said = heard(&inbox, 1).await.remove(0);
        let WorkerMessage::JobFailed { kind: FailureKind::InputsUnavailable, error, .. } = said
        else {
            panic!("{said:?}")
        };
        assert!(error.ends_with("[truncated]"), "{error}");
        assert!(!voice.outbox.holds(ASSIGNMENT));
    }

    fn path(n: usize) -> StorePath {
        format!("/nix/store/b9d5lnjsb9d5lnjsb9d5lnjsb9d5lnjs-{n}").parse().expect("a store path")
    }

    /// An inbox that never acknowledges.
    #[derive(Clone)]
    struct Silent;

    impl Inbox for Silent {
        async fn send(&self, _: String, _: Envelope, _: Vec<u8>) -> Result<(), SendError> {
            std::future::pending().await
        }

        async fn receive(
            &self,
            _: u64,
        ) -> Result<BoxStream<Result<Received, ReadError>>, ReadError> {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn requests_do_not_pile_up() {
        let dir = tempfile::tempdir().expect("a folder");
        let voice = voice(Silent, &dir);
        for _ in 0..2 * WAITING_MAX {
            voice.request(Kind::Build).await;
            voice.request(Kind::Evaluate).await;
        }
        assert!(voice.queue.capacity() >= WAITING_MAX - 2);

        let inbox = MemoryInbox::default();
        let voice = self::voice(inbox.clone(), &dir);
        for _ in 0..2 {
            voice.request(Kind::Build).await;
            voice.flush().await;
        }
        let again = WorkerMessage::RequestJob { kind: Kind::Build };
        assert_eq!(heard(&inbox, 2).await, [again.clone(), again]);
    }
}
