//! Queries by core request/reply (protocol page, Server → worker).

use std::time::Duration;

use async_nats::{Client, Subscriber};
use futures_util::StreamExt;
use gradient_domain::StorePath;
use gradient_events::query::{KnownDerivations, QueryKnownDerivations};
use gradient_events::{Envelope, PAGE_ITEMS_MAX, Wire, subject};
use uuid::Uuid;

use super::{from_headers, to_headers};

/// How long a worker waits for an answer before it takes nothing for known.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks and answers.
#[derive(Clone, Debug)]
pub struct Queries {
    client: Client,
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Query {
    /// What is asked; at most 1,000 paths.
    pub drv_paths: Vec<StorePath>,
    reply: async_nats::Subject,
    client: Client,
}

impl Queries {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Which of these derivations the scheduler knows whole. No answer means none.
    pub async fn known_derivations(&self, drv_paths: &[StorePath]) -> Vec<StorePath> {
        let mut known = Vec::new();
        for page in drv_paths.chunks(PAGE_ITEMS_MAX) {
            let query = QueryKnownDerivations { drv_paths: page.to_vec() };
            let body = query.to_body();
            let envelope = Envelope::of::<QueryKnownDerivations>(Uuid::now_v7(), &body, None);
            let request = async_nats::Request::new()
                .headers(to_headers(&envelope))
                .payload(body.into())
                .timeout(Some(ANSWER_TIMEOUT));
            let answer = self.client.send_request(subject::QUERY_KNOWN_DERIVATIONS, request).await;
            let Ok(answer) = answer else { return known };
            let decoded = from_headers(answer.headers.as_ref())
                .and_then(|envelope| envelope.decode::<KnownDerivations>(&answer.payload));
            match decoded {
                Ok(answer) => known.extend(answer.known),
                Err(error) => tracing::warn!(%error, "unreadable answer to KnownDerivations"),
            }
        }
        known
    }

    /// Questions to answer.
    ///
    /// # Errors
    /// If the subscription is refused.
    pub async fn listen(&self) -> Result<Questions, async_nats::SubscribeError> {
        let subscriber = self.client.subscribe(subject::QUERY_KNOWN_DERIVATIONS).await?;
        Ok(Questions { subscriber, client: self.client.clone() })
    }
}

/// Questions as they come.
#[derive(Debug)]
pub struct Questions {
    subscriber: Subscriber,
    client: Client,
}

impl Questions {
    /// The next well-formed question; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<Query> {
        loop {
            let message = self.subscriber.next().await?;
            let decoded = from_headers(message.headers.as_ref())
                .and_then(|envelope| envelope.decode::<QueryKnownDerivations>(&message.payload));
            match (decoded, message.reply) {
                (Ok(query), Some(reply)) if query.drv_paths.len() <= PAGE_ITEMS_MAX => {
                    return Some(Query {
                        drv_paths: query.drv_paths,
                        reply,
                        client: self.client.clone(),
                    });
                }
                (Ok(_), _) => {
                    tracing::warn!("a query without a reply subject or over its limit is ignored")
                }
                (Err(error), _) => tracing::warn!(%error, "unreadable query"),
            }
        }
    }
}

impl Query {
    /// Answers; a lost answer only costs the asker its time limit.
    pub async fn answer(self, known: Vec<StorePath>) {
        let body = KnownDerivations { known }.to_body();
        let envelope = Envelope::of::<KnownDerivations>(Uuid::now_v7(), &body, None);
        let headers = to_headers(&envelope);
        if let Err(error) = self.client.publish_with_headers(self.reply, headers, body.into()).await
        {
            tracing::debug!(%error, "answer to a query was not sent");
        }
    }
}
