//! `/evaluations/{id}/live`: the summary whenever it changed, until the evaluation is over.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::stream::{self, Stream};
use gradient_domain::EvaluationId;
use gradient_postgres::queries;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::error::ApiError;
use crate::evaluations;
use crate::server::ApiState;
use crate::types::{ErrorBody, EvaluationSummary};

/// Shortest time between two looks, so that a busy log does not make a busy database.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a database may be away before the stream ends.
const TRIES_MAX: u32 = 30;
/// Pause before another look at a database that failed.
const RETRY: Duration = Duration::from_secs(1);

struct Live {
    state: ApiState,
    id: EvaluationId,
    position: watch::Receiver<u64>,
    sent: Option<EvaluationSummary>,
    /// What the check of the address read already.
    first: Option<EvaluationSummary>,
    _slot: OwnedSemaphorePermit,
}

/// An `evaluation` event with the summary at once and whenever it changed; the stream ends after the
/// one that says that the evaluation is over.
#[utoipa::path(
    get, path = "/evaluations/{id}/live", params(("id" = String, Path)),
    responses(
        (status = 200, description = "server-sent events named `evaluation`", content_type = "text/event-stream",
         body = EvaluationSummary),
        (status = 404, body = ErrorBody), (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn evaluation(
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let slot = state.live_slots().try_acquire_owned().map_err(|_| {
        let hint = "close one, or ask GET /evaluations/{id} now and then";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many live streams are open", hint)
    })?;
    let mut position = state.position();
    position.mark_unchanged();
    let first = evaluations::existing(&state, &id).await?;
    let live = Live { id: first.id, state, position, sent: None, first: Some(first), _slot: slot };
    let events = stream::unfold(live, |mut live| async move {
        let summary = live.next().await?;
        let event = Event::default().event("evaluation").json_data(&summary).ok()?;
        live.sent = Some(summary);
        Some((Ok(event), live))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

impl Live {
    /// The next summary that differs from the last one sent; `None` at the end.
    async fn next(&mut self) -> Option<EvaluationSummary> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.sent.as_ref().is_some_and(EvaluationSummary::is_over) {
            return None;
        }
        let mut failures = 0;
        loop {
            tokio::time::sleep(PAUSE).await;
            if failures == 0 {
                self.position.changed().await.ok()?;
            }
            match queries::evaluation(self.state.database(), self.id).await {
                Ok(Some(found)) if self.sent.as_ref() != Some(&found) => return Some(found),
                Ok(Some(_)) => failures = 0,
                Ok(None) => return None,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, failures, "a live stream cannot look at the database");
                    if failures > TRIES_MAX {
                        return None;
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}
