//! Finding the cluster that a command speaks to: a remote one by `GRADIENT_URL`, else the local one of
//! the data directory.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gradient_log::jetstream::{Broker, ConnectSettings};

use crate::data_dir::DataDir;
use crate::exit::Failure;

/// A cluster and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    nats: Option<(String, Option<String>)>,
    pub(crate) local: Option<Local>,
}

/// What only a local cluster tells.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) nats_url: String,
    pub(crate) nats_token_file: PathBuf,
    pub(crate) database_url: String,
}

impl Found {
    /// A cluster that is no more than an address.
    #[cfg(test)]
    pub(crate) fn at(url: String) -> Self {
        Self { url, token: None, nats: None, local: None }
    }

    pub(crate) fn find(root: &Path) -> Result<Self, Failure> {
        let nats = std::env::var("GRADIENT_NATS_URL").ok();
        if let Ok(url) = std::env::var("GRADIENT_URL") {
            let token = read_token("GRADIENT_TOKEN", "GRADIENT_TOKEN_FILE")?;
            let nats_token = read_token("GRADIENT_NATS_TOKEN", "GRADIENT_NATS_TOKEN_FILE")?;
            let url = url.trim_end_matches('/').to_owned();
            return Ok(Self { url, token, nats: nats.map(|url| (url, nats_token)), local: None });
        }
        let data = DataDir::existing(root)?;
        let cluster = data.cluster()?;
        let nats_token = data.read_secret("nats-token")?;
        Ok(Self {
            url: cluster.http_url,
            token: Some(data.read_secret("api-token")?),
            nats: Some((cluster.nats_url.clone(), Some(nats_token))),
            local: Some(Local {
                nats_url: cluster.nats_url,
                nats_token_file: data.secret("nats-token")?,
                database_url: cluster.database_url,
            }),
        })
    }

    /// A connection to the log itself.
    pub(crate) async fn broker(&self) -> Result<Broker, Failure> {
        let Some((url, token)) = &self.nats else {
            let error =
                anyhow::anyhow!("this command reads the log itself and needs the NATS server");
            return Err(Failure::usage(error)
                .hint("name it in GRADIENT_NATS_URL and GRADIENT_NATS_TOKEN_FILE"));
        };
        let settings =
            ConnectSettings { url: url.clone(), token: token.clone(), name: "gradient".into() };
        Broker::connect(&settings).await.map_err(|error| {
            Failure::unavailable(error)
                .hint("is the cluster running? `gradient up` starts a local one")
        })
    }
}

fn read_token(variable: &str, file_variable: &str) -> anyhow::Result<Option<String>> {
    if let Ok(token) = std::env::var(variable) {
        return Ok(Some(token));
    }
    let Some(file) = std::env::var_os(file_variable) else { return Ok(None) };
    let text = std::fs::read_to_string(&file);
    let text = text.with_context(|| format!("cannot read {}", PathBuf::from(&file).display()))?;
    Ok(Some(text.trim().to_owned()))
}
