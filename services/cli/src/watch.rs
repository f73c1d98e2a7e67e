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
/// Tries in a row until an evaluation that was submitted a moment ago is known; the server waits a
/// while itself, too.
const FRESH_TRIES_MAX: u32 = 6;

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
    follow(&Client::new(found)?, args.evaluation, args.json, Known::Said).await
}

/// How an evaluation is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Somebody named it.
    Said,
    /// It was submitted a moment ago: the scheduler may not have taken it yet.
    Fresh,
}

/// Shows an evaluation until it is over or Ctrl-C; the evaluation itself goes on then.
pub(crate) async fn follow(
    client: &Client,
    id: EvaluationId,
    json: bool,
    known: Known,
) -> Result<(), Failure> {
    let mut progress = Progress::new(id, json);
    let over = tokio::select! {
        over = changes(client, id, known, &mut progress) => over?,
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
    known: Known,
    progress: &mut Progress,
) -> Result<EvaluationSummary, Failure> {
    let mut tries = 0;
    // An evaluation that was shown once is there, whatever tables that are made anew say.
    let mut unknown_max = match known {
        Known::Said => 0,
        Known::Fresh => FRESH_TRIES_MAX,
    };
    loop {
        match stream(client, id, progress).await {
            Ok(Some(over)) => return Ok(over),
            Ok(None) => (tries, unknown_max) = (1, TRIES_MAX),
            Err(failure) if failure.code == Code::NotFound && tries < unknown_max => tries += 1,
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that knows nothing; tells every question.
    async fn ignorant(listener: TcpListener, asked: tokio::sync::mpsc::UnboundedSender<()>) {
        const ANSWER: &[u8] =
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 34\r\nconnection: close\r\n\r\n\
            {\"error\":\"there is no evaluation\"}";
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.read(&mut [0; 4096]).await;
            let _ = connection.write_all(ANSWER).await;
            let _ = asked.send(());
        }
    }

    #[tokio::test]
    async fn an_unknown_evaluation_is_asked_for_once_unless_it_is_fresh() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (asked, mut questions) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(ignorant(listener, asked));
        let client = Client::new(&Found::at(url)).expect("a client");
        let id = EvaluationId([1; 16]);
        for (known, count) in [(Known::Said, 1), (Known::Fresh, FRESH_TRIES_MAX as usize + 1)] {
            let failure = changes(&client, id, known, &mut Progress::new(id, true)).await;
            assert_eq!(failure.expect_err("unknown").code, Code::NotFound);
            let mut asked = 0;
            while questions.try_recv().is_ok() {
                asked += 1;
            }
            assert_eq!(asked, count, "{known:?}");
        }
    }
}
