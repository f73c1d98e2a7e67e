//! The end of a worker: drain, abort, report, leave (spec, Worker Stop; reference 1.7).

use std::time::Duration;

use gradient_events::{ServerMessage, WorkerMessage};
use gradient_log::jetstream::{Live, LiveEvent};
use tokio::time::Instant;

use super::{Agent, Own};

/// How long reports of stopped jobs are waited for.
const REPORTS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the word that it drains may wait for room in a full queue before the jobs are stopped.
const DRAINING_TIMEOUT: Duration = Duration::from_millis(500);

impl Agent {
    /// Says that it drains, aborts every running job, waits at most 5 s for their reports, leaves.
    pub(super) async fn leave(mut self, live: &mut Live) {
        let deadline = Instant::now() + REPORTS_TIMEOUT;
        let farewell = async {
            let draining = self.voice.say(WorkerMessage::Draining);
            let _ = tokio::time::timeout(DRAINING_TIMEOUT, draining).await;
            self.slots.cancel_all();
            while !self.slots.is_empty() {
                tokio::select! {
                    own = self.own.1.recv() => if let Some(Own::Ended(open)) = own {
                        self.slots.ended(open.assignment);
                    },
                    heard = live.next() => if let Some(LiveEvent::Message(ServerMessage::AssignJob { job_id, assignment_id, .. })) = heard {
                        let reason = Some("worker is draining".to_owned());
                        let (job, assignment) = (job_id, assignment_id);
                        self.voice
                            .say(WorkerMessage::AssignJobResponse { job, assignment, accepted: false, reason })
                            .await;
                    },
                }
            }
            self.voice.say(WorkerMessage::Goodbye).await;
            self.voice.flush().await;
        };
        if tokio::time::timeout_at(deadline, farewell).await.is_err() {
            tracing::warn!("not every job could report its stop; they count as lost");
        }
        self.executor.shutdown().await;
    }
}
