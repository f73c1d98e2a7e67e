//! Refusals and failures as answers over HTTP: `{"error": "<code>", "message": "<text>"}`.

use std::io;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request is not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No token, or one that is not valid.
    #[error("{0}")]
    Unauthorized(String),
    /// A valid token that does not allow this.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The request itself is malformed.
    #[error("{0}")]
    Malformed(String),
    /// There is no such thing here.
    #[error("{0} is not here")]
    NotFound(String),
    /// The log has another length than the request assumes.
    #[error("the log has {length} bytes, not {offset}")]
    WrongOffset {
        /// What the request assumed.
        offset: u64,
        /// What is right, in bytes.
        length: u64,
    },
    /// The log is finished.
    #[error("the log is finished")]
    Finished,
    /// Over a limit.
    #[error("{what} is over the limit of {limit} bytes")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// What was sent is not what was said.
    #[error("{0}")]
    Unverified(String),
    /// Nothing came for too long, or the connection broke.
    #[error("the upload broke off: {0}")]
    Interrupted(String),
    /// Reading or writing failed here.
    #[error("the cache cannot read or write its files: {0}")]
    Storage(String),
    /// No space is left.
    #[error("the cache's disk is full: {0}")]
    Full(String),
}

impl Error {
    /// A storage failure, told apart by its cause.
    pub(crate) fn storage(error: &(dyn std::error::Error + 'static)) -> Self {
        let text = error.to_string();
        let mut cause = Some(error);
        while let Some(error) = cause {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
                return Error::Full(text);
            }
            cause = error.source();
        }
        Error::Storage(text)
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Error::Unauthorized(_) => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Error::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Error::Malformed(_) => (StatusCode::BAD_REQUEST, "malformed"),
            Error::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Error::WrongOffset { .. } => (StatusCode::CONFLICT, "wrong_offset"),
            Error::Finished => (StatusCode::CONFLICT, "finished"),
            Error::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Error::Unverified(_) => (StatusCode::UNPROCESSABLE_ENTITY, "unverified"),
            Error::Interrupted(_) => (StatusCode::REQUEST_TIMEOUT, "interrupted"),
            Error::Storage(_) => (StatusCode::INTERNAL_SERVER_ERROR, "storage"),
            Error::Full(_) => (StatusCode::INSUFFICIENT_STORAGE, "full"),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        if status.is_server_error() {
            tracing::error!(error = %self, code, "request failed");
        }
        let mut body = json!({ "error": code, "message": self.to_string() });
        if let Error::WrongOffset { length, .. } = self {
            body["offset"] = json!(length);
        }
        (status, Json(body)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_apart() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(matches!(Error::storage(&full), Error::Full(_)));
        let wrapped = object_store::Error::Generic { store: "folder", source: Box::new(full) };
        assert!(matches!(Error::storage(&wrapped), Error::Full(_)));
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(matches!(Error::storage(&other), Error::Storage(_)));
    }
}
