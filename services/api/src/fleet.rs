//! `/jobs`, `/workers`, `/anomalies`, `/status`.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use gradient_postgres::queries;
use serde::Deserialize;

use crate::error::ApiError;
use crate::evaluations::{PageQuery, paging};
use crate::server::ApiState;
use crate::types::{Anomaly, ErrorBody, Jobs, Page, Status, Worker};

/// Which jobs.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobsState {
    /// In the queue.
    Pending,
    /// Handed out and open.
    Dispatched,
    /// In the queue, and every hand-out there ever was.
    #[default]
    All,
}

/// Which part of the jobs.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobsQuery {
    /// `pending`, `dispatched` or `all` (unless given).
    #[serde(default)]
    #[param(inline)]
    state: JobsState,
    /// `next` of the page before.
    after: Option<String>,
    /// Most items, 1 to 500; 100 unless given.
    limit: Option<u32>,
}

/// The queue and the hand-outs.
#[utoipa::path(
    get, path = "/jobs", params(JobsQuery),
    responses((status = 200, body = Jobs), (status = 401, body = ErrorBody))
)]
pub(crate) async fn jobs(
    State(state): State<ApiState>,
    query: Result<Query<JobsQuery>, QueryRejection>,
) -> Result<Json<Jobs>, ApiError> {
    let Query(JobsQuery { state: which, after, limit }) = query?;
    let is_first = after.is_none();
    let paging = paging(after, limit)?;
    let database = state.database();
    let mut jobs = Jobs::default();
    match which {
        JobsState::Pending => {
            let page = queries::pending_jobs(database, &paging).await?;
            (jobs.pending, jobs.next) = (page.items, page.next);
        }
        JobsState::Dispatched | JobsState::All => {
            let open_only = matches!(which, JobsState::Dispatched);
            let page = queries::dispatched_jobs(database, open_only, &paging).await?;
            (jobs.dispatched, jobs.next) = (page.items, page.next);
            if is_first && !open_only {
                jobs.pending = queries::pending_jobs(database, &paging).await?.items;
            }
        }
    }
    Ok(Json(jobs))
}

/// Workers by id, with what they run.
#[utoipa::path(
    get, path = "/workers", params(PageQuery),
    responses((status = 200, body = Page<Worker>), (status = 401, body = ErrorBody))
)]
pub(crate) async fn workers(
    State(state): State<ApiState>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Page<Worker>>, ApiError> {
    let Query(query) = query?;
    Ok(Json(queries::workers(state.database(), &query.paging()?).await?))
}

/// What was not as it should be, newest first.
#[utoipa::path(
    get, path = "/anomalies", params(PageQuery),
    responses((status = 200, body = Page<Anomaly>), (status = 401, body = ErrorBody))
)]
pub(crate) async fn anomalies(
    State(state): State<ApiState>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Page<Anomaly>>, ApiError> {
    let Query(query) = query?;
    Ok(Json(queries::anomalies(state.database(), &query.paging()?).await?))
}

/// How far the tables are, and what is in them. Needs no token.
#[utoipa::path(
    get, path = "/status", security(()),
    responses((status = 200, body = Status), (status = 503, body = ErrorBody))
)]
pub(crate) async fn status(State(state): State<ApiState>) -> Result<Json<Status>, ApiError> {
    let position = queries::position(state.database()).await?;
    let counts = queries::counts(state.database()).await?;
    let lag = state.head().map(|head| head.saturating_sub(position));
    Ok(Json(Status { version: env!("CARGO_PKG_VERSION").to_owned(), position, lag, counts }))
}
