//! `/evaluations`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use gradient_domain::EvaluationId;
use gradient_domain::flake::FetchOptions;
use gradient_events::Command;
use gradient_postgres::queries::{self, Paging};
use serde::Deserialize;
use uuid::Uuid;

use crate::error::ApiError;
use crate::server::ApiState;
use crate::submit;
use crate::types::{
    Accepted, BuildState, BuildSummary, EntryPoint, ErrorBody, EvaluationSummary, Message, Page,
    SubmitEvaluation, Submitted,
};

/// How long a reader waits for rows of an evaluation that was submitted a moment ago.
const FRESH_WAIT: Duration = Duration::from_secs(2);
/// What counts as a moment ago.
const FRESH: Duration = Duration::from_secs(30);

/// Which part of a list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// `next` of the page before.
    after: Option<String>,
    /// Most items, 1 to 500; 100 unless given.
    limit: Option<u32>,
}

impl PageQuery {
    pub(crate) fn paging(self) -> Result<Paging, ApiError> {
        paging(self.after, self.limit)
    }
}

pub(crate) fn paging(after: Option<String>, limit: Option<u32>) -> Result<Paging, ApiError> {
    let limit = limit.unwrap_or(100);
    if !(1..=crate::types::PAGE_MAX).contains(&limit) {
        return Err(ApiError::bad(format!("limit is {limit}"), "1 to 500 are allowed"));
    }
    Ok(Paging { after, limit })
}

/// The evaluation of an address; 404 if there is none. Rows of one that was submitted a moment ago
/// may still be on their way, so they are waited for.
pub(crate) async fn existing(state: &ApiState, id: &str) -> Result<EvaluationSummary, ApiError> {
    let parsed: EvaluationId = id.parse().map_err(|error: gradient_domain::id::ParseIdError| {
        ApiError::bad(error.to_string(), "GET /evaluations lists them")
    })?;
    let mut position = state.position();
    let deadline = tokio::time::Instant::now() + FRESH_WAIT;
    loop {
        position.mark_unchanged();
        if let Some(found) = queries::evaluation(state.database(), parsed).await? {
            return Ok(found);
        }
        let waited = tokio::time::timeout_at(deadline, position.changed());
        if !is_fresh(parsed.uuid()) || !matches!(waited.await, Ok(Ok(()))) {
            return Err(ApiError::unknown(format!("evaluation {parsed}")));
        }
    }
}

/// Whether the id says that it was made a moment ago.
fn is_fresh(id: Uuid) -> bool {
    let Some((secs, _)) = id.get_timestamp().map(|made| made.to_unix()) else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().abs_diff(secs) <= FRESH.as_secs()
}

/// Evaluations, newest first.
#[utoipa::path(
    get, path = "/evaluations", params(PageQuery),
    responses((status = 200, body = Page<EvaluationSummary>), (status = 401, body = ErrorBody))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Page<EvaluationSummary>>, ApiError> {
    let Query(query) = query?;
    Ok(Json(queries::evaluations(state.database(), &query.paging()?).await?))
}

/// Submits a flake.
#[utoipa::path(
    post, path = "/evaluations", request_body = SubmitEvaluation,
    responses(
        (status = 202, description = "it will be evaluated", body = Submitted),
        (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn submit(
    State(state): State<ApiState>,
    body: Result<Json<SubmitEvaluation>, JsonRejection>,
) -> Result<(StatusCode, Json<Submitted>), ApiError> {
    let Json(submitted) = body?;
    submit::check(&submitted)?;
    let id = Uuid::now_v7();
    let evaluation = EvaluationId::from(id);
    let SubmitEvaluation { flake, patterns, overrides, lock_policy, ssh_key } = submitted;
    // The key is there before anybody may ask for it.
    if let Some(key) = &ssh_key {
        state.keys()?.save(evaluation, key)?;
    }
    let fetch = FetchOptions { overrides, lock_policy, has_ssh_key: ssh_key.is_some() };
    let fetch = Box::new(fetch);
    let command = Command::Submit { evaluation, flake: flake.into(), patterns, fetch };
    // A command that was not acknowledged may have been taken all the same, so its key stays; the
    // sweep looks after it.
    state.send(id, command).await?;
    Ok((StatusCode::ACCEPTED, Json(Submitted { evaluation })))
}

/// One evaluation.
#[utoipa::path(
    get, path = "/evaluations/{id}", params(("id" = String, Path)),
    responses((status = 200, body = EvaluationSummary), (status = 404, body = ErrorBody))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<EvaluationSummary>, ApiError> {
    Ok(Json(existing(&state, &id).await?))
}

/// Stops an evaluation; builds that no other live evaluation wants stop, too.
#[utoipa::path(
    post, path = "/evaluations/{id}/cancel", params(("id" = String, Path)),
    responses(
        (status = 202, description = "the scheduler was told", body = Accepted),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    )
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let evaluation = existing(&state, &id).await?;
    if evaluation.is_over() {
        return Err(ApiError::over(format!("evaluation {}", evaluation.id)));
    }
    let command = Command::CancelEvaluation { evaluation: evaluation.id };
    state.send(Uuid::now_v7(), command).await?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { accepted: true })))
}

/// Attributes of an evaluation and how their builds stand, by name.
#[utoipa::path(
    get, path = "/evaluations/{id}/entry-points", params(("id" = String, Path), PageQuery),
    responses((status = 200, body = Page<EntryPoint>), (status = 404, body = ErrorBody))
)]
pub(crate) async fn entry_points(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Page<EntryPoint>>, ApiError> {
    let Query(query) = query?;
    let evaluation = existing(&state, &id).await?.id;
    Ok(Json(queries::entry_points(state.database(), evaluation, &query.paging()?).await?))
}

/// Which builds of an evaluation.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BuildsQuery {
    /// `next` of the page before.
    after: Option<String>,
    /// Most items, 1 to 500; 100 unless given.
    limit: Option<u32>,
    /// Those of one state.
    state: Option<BuildState>,
}

/// Builds that an evaluation wants, by id.
#[utoipa::path(
    get, path = "/evaluations/{id}/builds", params(("id" = String, Path), BuildsQuery),
    responses((status = 200, body = Page<BuildSummary>), (status = 404, body = ErrorBody))
)]
pub(crate) async fn builds(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    query: Result<Query<BuildsQuery>, QueryRejection>,
) -> Result<Json<Page<BuildSummary>>, ApiError> {
    let Query(BuildsQuery { after, limit, state: of_state }) = query?;
    let evaluation = existing(&state, &id).await?.id;
    let paging = paging(after, limit)?;
    let page = queries::builds_of_evaluation(state.database(), evaluation, of_state, &paging);
    Ok(Json(page.await?))
}

/// Warnings and errors of an evaluation, oldest first.
#[utoipa::path(
    get, path = "/evaluations/{id}/messages", params(("id" = String, Path), PageQuery),
    responses((status = 200, body = Page<Message>), (status = 404, body = ErrorBody))
)]
pub(crate) async fn messages(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Page<Message>>, ApiError> {
    let Query(query) = query?;
    let evaluation = existing(&state, &id).await?.id;
    Ok(Json(queries::messages(state.database(), evaluation, &query.paging()?).await?))
}
