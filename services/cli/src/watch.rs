//! `gradient watch`: an evaluation as it goes, and what came of it.

mod progress;
mod report;

use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use gradient_api::types::EvaluationSummary;
use gradient_domain::EvaluationId;
use gradient_events::event::EvaluationState;
use reqwest::Method;

use crate::client::Client;
use crate::cluster::Found;
use crate::exit::{Code, Failure};
use crate::say;
use progress::Progress;

/// Pause before a broken connection is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Tries in a row before the command gives up; a restart of the server takes a few.
const TRIES_MAX: u32 = 60;

/// Show an evaluation until it is over; exit code 1 if it fails
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The evaluation
    evaluation: EvaluationId,
    /// One JSON object per change
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(found: &Found, args: WatchArgs) -> Result<(), Failure> {
    follow(&Client::new(found)?, args.evaluation, args.json).await
}

/// Shows an evaluation until it is over or Ctrl-C; the evaluation itself goes on then.
pub(crate) async fn follow(client: &Client, id: EvaluationId, json: bool) -> Result<(), Failure> {
    let mut progress = Progress::new(id, json);
    let over = tokio::select! {
        over = changes(client, id, &mut progress) => over?,
        _ = tokio::signal::ctrl_c() => {
            progress.end();
            let error = anyhow::anyhow!("stopped watching; evaluation {id} goes on");
            return Err(Failure::new(Code::Interrupted, error).hint(format!("stop it with `gradient cancel {id}`")));
        }
    };
    progress.end();
    if !json {
        report::print(client, &over).await?;
    }
    match over.state {
        EvaluationState::Completed => Ok(()),
        state => {
            Err(Failure::new(Code::Failed, anyhow::anyhow!("evaluation {id} {}", state.name())))
        }
    }
}

/// Follows the stream of changes; after an interruption it starts over with the newest state.
async fn changes(
    client: &Client,
    id: EvaluationId,
    progress: &mut Progress,
) -> Result<EvaluationSummary, Failure> {
    let mut tries = 0;
    loop {
        match stream(client, id, progress).await {
            Ok(Some(over)) => return Ok(over),
            Ok(None) => tries = 1,
            // Just submitted: the scheduler has not taken it yet, or the tables are behind.
            Err(failure) if failure.code == Code::NotFound && tries < TRIES_MAX => tries += 1,
            Err(failure) if failure.code == Code::Unavailable && tries < TRIES_MAX => {
                if tries == 4 {
                    progress.note("the server does not answer; waiting for it");
                }
                tries += 1;
            }
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn stream(
    client: &Client,
    id: EvaluationId,
    progress: &mut Progress,
) -> Result<Option<EvaluationSummary>, Failure> {
    let request = client.request(Method::GET, &format!("api/v1/evaluations/{id}/live"));
    let mut chunks = client.send(request).await?.bytes_stream();
    let mut text = Vec::new();
    while let Some(Ok(chunk)) = chunks.next().await {
        text.extend_from_slice(&chunk);
        while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = text.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event).into_owned();
            let data: String = event
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .map(str::trim_start)
                .collect();
            if data.is_empty() {
                continue;
            }
            let summary: EvaluationSummary = serde_json::from_str(&data).map_err(|error| {
                Failure::unavailable(
                    anyhow::Error::from(error).context("the server's answer is not understood"),
                )
            })?;
            progress.show(&summary)?;
            if summary.is_over() {
                return Ok(Some(summary));
            }
        }
    }
    Ok(None)
}

/// Seconds between two moments, as people say it.
pub(crate) fn span(
    from: gradient_domain::Timestamp,
    to: Option<gradient_domain::Timestamp>,
) -> String {
    to.map_or_else(|| "-".into(), |to| say::duration(to.since_ms(from)))
}
