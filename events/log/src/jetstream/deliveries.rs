//! DELIVERIES: what workers are told.

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use gradient_domain::WorkerId;
use gradient_events::{Envelope, ServerMessage, Wire, subject};
use uuid::Uuid;

use super::to_headers;
use crate::{SendError, oversize};

/// The stream DELIVERIES, written by the scheduler alone.
#[derive(Clone, Debug)]
pub struct Deliveries {
    context: Context,
}

impl Deliveries {
    pub(super) fn new(context: Context) -> Self {
        Self { context }
    }

    /// Tells a worker something. Losing it is no harm: whatever is still owed is told again.
    ///
    /// # Errors
    /// If the message is too large or was not acknowledged.
    pub async fn send(&self, worker: WorkerId, message: &ServerMessage) -> Result<(), SendError> {
        let body = message.to_body();
        if let Some((bytes, limit)) = oversize(&body) {
            return Err(SendError::TooLarge { bytes, limit });
        }
        let envelope = Envelope::of::<ServerMessage>(Uuid::now_v7(), &body, None);
        let publish = PublishMessage::build().headers(to_headers(&envelope)).payload(body.into());
        let sent = self.context.send_publish(subject::delivery(worker), publish).await;
        let answer = match sent {
            Ok(answer) => answer.await,
            Err(error) => Err(error),
        };
        answer.map(|_| ()).map_err(|error| SendError::Unacknowledged(error.into()))
    }
}
