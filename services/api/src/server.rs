//! The router and what its handlers share.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};
use gradient_domain::AssignmentId;
use gradient_events::{Command, Envelope, Wire, subject};
use gradient_log::{Inbox, SendError};
use gradient_postgres::Database;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use crate::error::ApiError;
use crate::keys::{self, Keys};
use crate::{auth, builds, evaluations, fleet, live, openapi};

/// Longest request body, in bytes.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Most live streams at a time.
const LIVE_MAX: usize = 1_000;

type Sending = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send>>;

/// The hand-out that an upload token was minted for; `None` if it is no valid token.
pub type AssignmentOf = Arc<dyn Fn(&str) -> Option<AssignmentId> + Send + Sync>;

/// Settings of the api.
#[derive(Clone)]
pub struct ApiSettings {
    /// The token that every request but `/status` needs; never empty.
    pub token: String,
    /// Folder of the keys for SSH, made when the first one comes; without it none is taken.
    pub key_dir: Option<PathBuf>,
    /// Reads the tokens of workers that ask for a key.
    pub assignment_of: AssignmentOf,
}

impl std::fmt::Debug for ApiSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiSettings").finish_non_exhaustive()
    }
}

/// What the handlers share.
#[derive(Clone)]
pub struct ApiState {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for ApiState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiState").finish_non_exhaustive()
    }
}

struct Shared {
    token: Vec<u8>,
    keys: Option<Keys>,
    assignment_of: AssignmentOf,
    database: Database,
    send: Box<dyn Fn(Uuid, Command) -> Sending + Send + Sync>,
    position: watch::Receiver<u64>,
    head: Option<watch::Receiver<Option<u64>>>,
    live: Arc<Semaphore>,
}

impl ApiState {
    /// Reads `database`, sends commands to `inbox`, and hears of new rows by `position`
    /// (`Projector::position`, or `gradient_postgres::follow` if the projector is another process).
    ///
    /// # Panics
    /// If the token is empty: everybody would be let in.
    #[must_use]
    pub fn new(
        settings: ApiSettings,
        database: Database,
        inbox: impl Inbox,
        position: watch::Receiver<u64>,
    ) -> Self {
        assert!(!settings.token.is_empty(), "the api needs a token");
        let send = move |id: Uuid, command: Command| -> Sending {
            let inbox = inbox.clone();
            Box::pin(async move {
                let body = command.to_body();
                let envelope = Envelope::of::<Command>(id, &body, None);
                inbox.send(subject::COMMAND_API.to_owned(), envelope, body).await
            })
        };
        let shared = Shared {
            token: settings.token.into_bytes(),
            keys: settings.key_dir.map(Keys::new),
            assignment_of: settings.assignment_of,
            database,
            send: Box::new(send),
            position,
            head: None,
            live: Arc::new(Semaphore::new(LIVE_MAX)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Shows in `/status` how far the tables are behind the log (`Projector::head`).
    #[must_use]
    pub fn with_head(self, head: watch::Receiver<Option<u64>>) -> Self {
        let shared = Arc::try_unwrap(self.shared);
        let shared =
            shared.unwrap_or_else(|_| panic!("the head is set before the state is shared"));
        Self { shared: Arc::new(Shared { head: Some(head), ..shared }) }
    }

    pub(crate) fn token(&self) -> &[u8] {
        &self.shared.token
    }

    /// The keys for SSH, if this server keeps any.
    pub(crate) fn keys(&self) -> Result<&Keys, ApiError> {
        self.shared.keys.as_ref().ok_or_else(|| {
            ApiError::bad("this server keeps no keys for SSH", "start it with --key-dir")
        })
    }

    pub(crate) fn assignment_of(&self, token: &str) -> Option<AssignmentId> {
        (self.shared.assignment_of)(token)
    }

    pub(crate) fn database(&self) -> &Database {
        &self.shared.database
    }

    pub(crate) fn position(&self) -> watch::Receiver<u64> {
        self.shared.position.clone()
    }

    pub(crate) fn head(&self) -> Option<u64> {
        self.shared.head.as_ref().and_then(|head| *head.borrow())
    }

    pub(crate) fn live_slots(&self) -> Arc<Semaphore> {
        self.shared.live.clone()
    }

    /// Puts a command into the inbox. The same id is taken once.
    pub(crate) async fn send(&self, id: Uuid, command: Command) -> Result<(), ApiError> {
        Ok((self.shared.send)(id, command).await?)
    }
}

/// The api under `/api/v1`.
pub fn router(state: ApiState) -> Router {
    // A worker's token opens the way to a key; see there.
    let open = Router::new()
        .route("/status", get(fleet::status))
        .route("/evaluations/{id}/ssh-key", get(keys::hand_over));
    let guarded = Router::new()
        .route("/evaluations", get(evaluations::list).post(evaluations::submit))
        .route("/evaluations/{id}", get(evaluations::show))
        .route("/evaluations/{id}/cancel", post(evaluations::cancel))
        .route("/evaluations/{id}/entry-points", get(evaluations::entry_points))
        .route("/evaluations/{id}/builds", get(evaluations::builds))
        .route("/evaluations/{id}/messages", get(evaluations::messages))
        .route("/evaluations/{id}/live", get(live::evaluation))
        .route("/builds", get(builds::find))
        .route("/builds/{id}", get(builds::show))
        .route("/builds/{id}/cancel", post(builds::cancel))
        .route("/jobs", get(fleet::jobs))
        .route("/workers", get(fleet::workers))
        .route("/anomalies", get(fleet::anomalies))
        .route("/openapi.json", get(openapi::show))
        .route_layer(middleware::from_fn_with_state(state.clone(), auth::require));
    let api = open
        .merge(guarded)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(state);
    Router::new().nest("/api/v1", api)
}

async fn unknown_route() -> ApiError {
    let hint = "see /api/v1/openapi.json for what there is";
    ApiError::new(StatusCode::NOT_FOUND, "there is no such address", hint)
}

async fn wrong_method() -> ApiError {
    let hint = "see /api/v1/openapi.json for what there is";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this address has no such method", hint)
}
