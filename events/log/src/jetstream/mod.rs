//! JetStream: the connection, the streams, and what each part of the product does on them.

mod deliveries;
mod heartbeats;
mod inbox;
mod live;
pub mod local;
mod log;
mod query;
mod streams;

use std::time::Duration;

use async_nats::jetstream::context::{AccountError, AccountErrorKind};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectOptions, HeaderMap};
use gradient_events::{DecodeError, Envelope};

pub use deliveries::Deliveries;
pub use heartbeats::{Beat, Heartbeats};
pub use inbox::CommandInbox;
pub use live::{Live, LiveEvent};
pub use log::JetStreamLog;
pub use query::{Queries, Query};
pub use streams::{StreamError, StreamLimits};

/// Oldest server that the product runs on: earlier ones lack message TTLs and guard fixes.
pub const SERVER_OLDEST: (i64, i64) = (2, 11);
/// Oldest server without a warning.
pub const SERVER_RECOMMENDED: (i64, i64) = (2, 14);

/// How long an answer of the server is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the server is and how to log in.
#[derive(Clone)]
pub struct ConnectSettings {
    /// `nats://host:port`. Credentials do not belong here: they would be ignored.
    pub url: String,
    /// Token of the server, if it wants one.
    pub token: Option<String>,
    /// Name shown by the server's monitoring.
    pub name: String,
}

impl std::fmt::Debug for ConnectSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "(hidden)");
        f.debug_struct("ConnectSettings")
            .field("url", &self.url)
            .field("token", &token)
            .field("name", &self.name)
            .finish()
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody answers, or the login is refused.
    #[error("cannot connect to the NATS server at {url}")]
    Connect {
        /// Where.
        url: String,
        /// What happened.
        #[source]
        source: async_nats::ConnectError,
    },
    /// The server is too old.
    #[error("the NATS server at {url} has version {found}, Gradient needs {}.{} or newer; recommended is 2.15", SERVER_OLDEST.0, SERVER_OLDEST.1)]
    TooOld {
        /// Where.
        url: String,
        /// Its version.
        found: String,
    },
    /// The server runs without JetStream.
    #[error("the NATS server at {url} runs without JetStream; start it with -js")]
    NoJetStream {
        /// Where.
        url: String,
    },
}

/// A connection to the server.
#[derive(Clone, Debug)]
pub struct Broker {
    client: Client,
    context: Context,
}

impl Broker {
    /// Connects and checks the server.
    ///
    /// # Errors
    /// If nobody answers, the login is refused, or the server is too old or runs without JetStream.
    pub async fn connect(settings: &ConnectSettings) -> Result<Self, ConnectError> {
        let mut options = ConnectOptions::new()
            .name(&settings.name)
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(ANSWER_TIMEOUT))
            .ping_interval(Duration::from_secs(10))
            .event_callback(|event| async move { tracing::debug!(%event, "NATS connection") });
        if let Some(token) = &settings.token {
            options = options.token(token.clone());
        }
        let url = settings.url.clone();
        let client = options
            .connect(&settings.url)
            .await
            .map_err(|source| ConnectError::Connect { url: url.clone(), source })?;
        let info = client.server_info();
        if !client.is_server_compatible(SERVER_OLDEST.0, SERVER_OLDEST.1, 0) {
            return Err(ConnectError::TooOld { url, found: info.version });
        }
        if !client.is_server_compatible(SERVER_RECOMMENDED.0, SERVER_RECOMMENDED.1, 0) {
            tracing::warn!(version = info.version, "this NATS server is old; 2.15 is recommended");
        }
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER_TIMEOUT);
        if let Err(error) = context.query_account().await {
            return Err(if lacks_jetstream(&error) {
                ConnectError::NoJetStream { url }
            } else {
                let kind = async_nats::ConnectErrorKind::TimedOut;
                let source = async_nats::ConnectError::with_source(kind, error);
                ConnectError::Connect { url, source }
            });
        }
        Ok(Self { client, context })
    }

    /// Whether the connection stands at the moment.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Creates the streams that are missing and checks those that are there.
    ///
    /// # Errors
    /// If a stream exists with other settings; it is never changed silently.
    pub async fn ensure_streams(&self, limits: &StreamLimits) -> Result<(), StreamError> {
        streams::ensure(&self.context, limits).await
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> JetStreamLog {
        JetStreamLog::new(self.context.clone())
    }

    /// The inbox of the scheduler.
    #[must_use]
    pub fn inbox(&self) -> CommandInbox {
        CommandInbox::new(self.context.clone())
    }

    /// The writer of deliveries.
    #[must_use]
    pub fn deliveries(&self) -> Deliveries {
        Deliveries::new(self.context.clone())
    }

    /// Heartbeats, to send and to hear.
    #[must_use]
    pub fn heartbeats(&self) -> Heartbeats {
        Heartbeats::new(self.context.clone())
    }

    /// What a worker hears.
    ///
    /// # Errors
    /// If the subscription is refused.
    pub async fn live(
        &self,
        worker: gradient_domain::WorkerId,
    ) -> Result<Live, async_nats::SubscribeError> {
        Live::subscribe(&self.client, worker).await
    }

    /// Queries, to ask and to answer.
    #[must_use]
    pub fn queries(&self) -> Queries {
        Queries::new(self.client.clone())
    }
}

/// Whether the server will never have JetStream; anything else may pass, such as an election.
fn lacks_jetstream(error: &AccountError) -> bool {
    match error.kind() {
        AccountErrorKind::JetStreamUnavailable => true,
        AccountErrorKind::JetStream(error) => {
            [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT]
                .contains(&error.error_code())
        }
        AccountErrorKind::TimedOut | AccountErrorKind::Other => false,
    }
}

fn to_headers(envelope: &Envelope) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in envelope.headers() {
        headers.insert(name, value.as_str());
    }
    headers
}

fn from_headers(headers: Option<&HeaderMap>) -> Result<Envelope, DecodeError> {
    Envelope::parse(|name| {
        headers.and_then(|headers| headers.get(name)).map(|value| value.as_str())
    })
}

/// How long a reader waits before it tries again after an interruption.
const RETRY: Duration = Duration::from_millis(250);
