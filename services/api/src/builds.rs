//! `/builds`.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use gradient_domain::{BuildId, StorePath};
use gradient_events::Command;
use gradient_postgres::queries;
use serde::Deserialize;
use uuid::Uuid;

use crate::error::ApiError;
use crate::server::ApiState;
use crate::types::{Accepted, BuildDetail, ErrorBody};

async fn existing(state: &ApiState, id: &str) -> Result<BuildDetail, ApiError> {
    let id: BuildId = id.parse().map_err(|error: gradient_domain::id::ParseIdError| {
        ApiError::bad(error.to_string(), "GET /evaluations/{id}/builds lists them")
    })?;
    let found = queries::build(state.database(), id).await?;
    found.ok_or_else(|| ApiError::unknown(format!("build {id}")))
}

/// One build with its attempts.
#[utoipa::path(
    get, path = "/builds/{id}", params(("id" = String, Path)),
    responses((status = 200, body = BuildDetail), (status = 404, body = ErrorBody))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<BuildDetail>, ApiError> {
    Ok(Json(existing(&state, &id).await?))
}

/// Which build.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FindQuery {
    /// Store path of its derivation.
    drv: String,
}

/// The build of a derivation.
#[utoipa::path(
    get, path = "/builds", params(FindQuery),
    responses((status = 200, body = BuildDetail), (status = 404, body = ErrorBody))
)]
pub(crate) async fn find(
    State(state): State<ApiState>,
    query: Result<Query<FindQuery>, QueryRejection>,
) -> Result<Json<BuildDetail>, ApiError> {
    let Query(FindQuery { drv }) = query?;
    let parsed = drv.parse().or_else(|_| StorePath::from_base_name(&drv));
    let path =
        parsed.map_err(|error| ApiError::bad(error.to_string(), "/nix/store/<hash>-<name>.drv"))?;
    let unknown = || ApiError::unknown(format!("build of {path}"));
    let id = queries::build_of_derivation(state.database(), &path).await?.ok_or_else(unknown)?;
    Ok(Json(queries::build(state.database(), id).await?.ok_or_else(unknown)?))
}

/// Stops one build.
#[utoipa::path(
    post, path = "/builds/{id}/cancel", params(("id" = String, Path)),
    responses(
        (status = 202, description = "the scheduler was told", body = Accepted),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    )
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let found = existing(&state, &id).await?.build;
    if found.state.is_success() || found.state.is_failure() {
        return Err(ApiError::over(format!("build {}", found.id)));
    }
    state.send(Uuid::now_v7(), Command::CancelBuild { build: found.id }).await?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { accepted: true })))
}
