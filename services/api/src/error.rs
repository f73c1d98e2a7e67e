//! Answers that are no success: one sentence and a hint, as JSON.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gradient_log::SendError;
use gradient_postgres::queries::QueryError;
use gradient_runtime::causes;

use crate::types::ErrorBody;

/// A refusal or a failure.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>, hint: &str) -> Self {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        Self { status, body: ErrorBody { error: error.into(), hint } }
    }

    pub(crate) fn bad(error: impl Into<String>, hint: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, hint)
    }

    pub(crate) fn unknown(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no {what}"), "")
    }

    pub(crate) fn over(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::CONFLICT, format!("{what} is over already"), "")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        match &error {
            QueryError::Cursor { .. } => Self::bad(error.to_string(), ""),
            QueryError::Database(source) if source.is_transient() => {
                tracing::warn!(error = causes(&error), "the database does not answer");
                let hint = "the database does not answer; try again in a moment";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "nothing can be shown now", hint)
            }
            QueryError::Database(_) => {
                tracing::error!(error = causes(&error), "a query failed");
                let hint = "the server's log says why";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the query failed", hint)
            }
        }
    }
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        match &error {
            SendError::TooLarge { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string(), "")
            }
            SendError::Unacknowledged(_) => {
                tracing::warn!(error = causes(&error), "a command was not acknowledged");
                let hint = "the message broker does not answer; try again in a moment";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "the command was not taken", hint)
            }
        }
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        let hint = "see /api/v1/openapi.json for what is expected";
        Self::new(rejection.status(), rejection.body_text(), hint)
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text(), "")
    }
}
