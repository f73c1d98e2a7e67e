//! The HTTP side of a cluster.

use std::time::Duration;

use gradient_api::types::Page;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cluster::Found;
use crate::exit::{Code, Failure};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Items asked for at a time.
const PAGE: usize = 500;

/// A client of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

/// The body of a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: String,
    message: String,
    hint: Option<String>,
}

impl Client {
    pub(crate) fn new(found: &Found) -> Result<Self, Failure> {
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).build();
        let http = http.map_err(Failure::unavailable)?;
        Ok(Self { http, url: found.url.clone(), token: found.token.clone() })
    }

    /// A request below the address of the cluster, with the user's token.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}/{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request; a refusal becomes a failure with the server's words.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| {
            let error = anyhow::Error::from(error.without_url())
                .context(format!("{} does not answer", self.url));
            Failure::unavailable(error)
                .hint("is the cluster running? `gradient up` starts a local one")
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.unwrap_or_default();
        let refusal: Refusal = serde_json::from_str(&text).unwrap_or_default();
        let words = [refusal.message, refusal.error].into_iter().find(|words| !words.is_empty());
        let error =
            anyhow::anyhow!("{}", words.unwrap_or_else(|| format!("the server answered {status}")));
        let code = match status {
            StatusCode::NOT_FOUND => Code::NotFound,
            status if status.is_client_error() => Code::Usage,
            _ => Code::Unavailable,
        };
        let failure = Failure::new(code, error);
        Err(match (refusal.hint, status) {
            (Some(hint), _) => failure.hint(hint),
            (None, StatusCode::UNAUTHORIZED) => {
                failure.hint("set GRADIENT_TOKEN, or use the --data-dir of the cluster")
            }
            (None, _) => failure,
        })
    }

    /// One answer.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let response = self.send(self.request(Method::GET, &format!("api/v1/{path}"))).await?;
        response.json().await.map_err(|error| {
            Failure::unavailable(
                anyhow::Error::from(error).context("the server's answer is not understood"),
            )
            .hint("are this program and the server of the same version?")
        })
    }

    /// A whole list, page by page, up to `most` items.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        most: usize,
    ) -> Result<Vec<T>, Failure> {
        let (mut items, mut after) = (Vec::new(), None::<String>);
        while items.len() < most {
            let sign = if path.contains('?') { '&' } else { '?' };
            let cursor = after
                .as_ref()
                .map_or_else(String::new, |after| format!("&after={}", escape(after)));
            let limit = PAGE.min(most - items.len());
            let page: Page<T> = self.get(&format!("{path}{sign}limit={limit}{cursor}")).await?;
            items.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(items)
    }
}

/// Escapes a value of a query.
fn escape(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    text.bytes()
        .map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
