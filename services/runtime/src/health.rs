//! Health that tells the truth: each part of a process says whether it works at the moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The parts of a process and what they say.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, Result<String, String>>>>,
}

#[derive(Serialize)]
struct Part {
    ok: bool,
    text: String,
}

impl Health {
    /// A part works; `text` says something useful of it, such as its position.
    pub fn good(&self, part: &'static str, text: impl Into<String>) {
        self.set(part, Ok(text.into()));
    }

    /// A part does not work; `text` says why.
    pub fn bad(&self, part: &'static str, text: impl Into<String>) {
        self.set(part, Err(text.into()));
    }

    fn set(&self, part: &'static str, value: Result<String, String>) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(part, value);
    }

    /// 200 and all parts if each works, 503 otherwise.
    #[must_use]
    pub fn response(&self) -> Response {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ok = !parts.is_empty() && parts.values().all(Result::is_ok);
        let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body: BTreeMap<&str, Part> = parts
            .into_iter()
            .map(|(name, value)| {
                (name, Part { ok: value.is_ok(), text: value.unwrap_or_else(|text| text) })
            })
            .collect();
        (status, Json(body)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_part_makes_the_process_bad() {
        let health = Health::default();
        assert_eq!(
            health.response().status(),
            StatusCode::SERVICE_UNAVAILABLE,
            "nothing is known yet"
        );
        health.good("log", "at 7");
        assert_eq!(health.response().status(), StatusCode::OK);
        health.bad("database", "connection refused");
        assert_eq!(health.response().status(), StatusCode::SERVICE_UNAVAILABLE);
        health.good("database", "connected");
        assert_eq!(health.response().status(), StatusCode::OK);
    }
}
