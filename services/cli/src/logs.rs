//! `gradient logs`: what a builder printed. On a terminal only colours keep their effect; elsewhere
//! every byte goes through as it is.

mod terminal;

use std::io::{IsTerminal, Write};

use clap::Args;
use futures_util::StreamExt;
use gradient_api::types::BuildDetail;
use gradient_domain::BuildId;
use reqwest::Method;

use crate::client::Client;
use crate::cluster::Found;
use crate::exit::{Code, Failure};
use terminal::Terminal;

/// Print the log of a build
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The build
    build: BuildId,
    /// Go on until the build is over
    #[arg(long, short)]
    follow: bool,
    /// The attempt, counted from 1; the last if absent
    #[arg(long, value_name = "N")]
    attempt: Option<usize>,
}

pub(crate) async fn run(found: &Found, args: LogsArgs) -> Result<(), Failure> {
    let client = Client::new(found)?;
    let detail: BuildDetail = client.get(&format!("builds/{}", args.build)).await?;
    let attempt = match args.attempt {
        Some(number) => detail.attempts.get(number.wrapping_sub(1)),
        None => detail.attempts.last(),
    };
    let attempt = attempt.ok_or_else(|| {
        let state = detail.build.state.name();
        let error = anyhow::anyhow!("build {} has no such attempt yet; it is {state}", args.build);
        Failure::new(Code::NotFound, error)
            .hint(format!("`gradient explain {}` says what it waits for", args.build))
    })?;
    let path = format!("logs/{}?follow={}", attempt.assignment, args.follow);
    let mut chunks = client.send(client.request(Method::GET, &path)).await?.bytes_stream();
    let mut out = std::io::stdout().lock();
    let mut terminal = out.is_terminal().then(Terminal::default);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            Failure::unavailable(anyhow::Error::from(error).context("the log broke off"))
        })?;
        let shown = match &mut terminal {
            Some(terminal) => terminal.show(&chunk).into(),
            None => chunk,
        };
        if out.write_all(&shown).and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
    if let Some(terminal) = terminal {
        let _ = out.write_all(&terminal.end()).and_then(|()| out.flush());
    }
    Ok(())
}
