//! A cache service in this process, without Nix.

#![allow(dead_code, clippy::allow_attributes, reason = "every test binary uses another part of it")]

use std::time::{SystemTime, UNIX_EPOCH};

use gradient_cache::{CacheSettings, CacheState, Scope, UploadToken, router, token};
use reqwest::{Client, Response};

const SECRET: &[u8] = b"0123456789abcdef";
pub(crate) const CLUSTER: &str = "the token of the cluster";

pub(crate) struct Service {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) state: CacheState,
}

pub(crate) fn worker_token(job: &str, assignment: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let token = UploadToken {
        job: job.into(),
        assignment: assignment.into(),
        expires_at_ms: u64::try_from(now.as_millis()).expect("fits") + 60_000,
        scope: Scope::Upload,
    };
    token::mint(SECRET, &token)
}

pub(crate) async fn text(response: Response) -> String {
    response.text().await.expect("text")
}

impl Service {
    pub(crate) async fn start() -> Service {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut CacheSettings)) -> Service {
        let dir = tempfile::tempdir().expect("temporary folder");
        let mut settings = CacheSettings::new(dir.path(), "test-1", SECRET.to_vec());
        settings.cluster_token = Some(CLUSTER.into());
        settings.nar_size_max_bytes = 1 << 20;
        change(&mut settings);
        let state = CacheState::open(settings).expect("opens");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let app = router(state.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = Client::builder().no_proxy().build().expect("client");
        Service { dir, url, client, state }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client.get(format!("{}{path}", self.url)).send().await.expect("answers")
    }
}
