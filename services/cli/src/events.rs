//! `gradient events`: the log itself, as it is and as it was.

mod describe;
mod read;
mod state;

use clap::{Args, Subcommand};
use gradient_domain::Timestamp;
use gradient_events::{Cause, Entry, Event, Input};
use gradient_log::EventLog;
use gradient_scheduler_core::replay::Verifier;
use gradient_scheduler_core::{State, evolve};
use serde::Serialize;

use crate::cluster::Found;
use crate::exit::{Code, Failure};
use crate::say;
pub(crate) use read::fold_to;

/// Read the log: every input and what was decided of it
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Debug, Subcommand)]
enum EventsCommand {
    /// Print entries as they are appended
    Tail {
        /// One JSON object per entry
        #[arg(long)]
        json: bool,
        /// End at the end of the log instead of waiting for more
        #[arg(long)]
        no_follow: bool,
        /// Start at this message
        #[arg(long, default_value_t = 1, value_name = "SEQ")]
        from: u64,
    },
    /// Print one message whole
    Show {
        /// Its sequence
        seq: u64,
    },
    /// Print jobs and workers as they were after a message
    At {
        /// Its sequence
        seq: u64,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Fold the log, decide every input again, and compare
    Verify {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

/// An entry with its position, as JSON shows it.
#[derive(Serialize)]
struct Positioned<'a> {
    sequence: u64,
    index: usize,
    at: Timestamp,
    cause: Cause,
    input: &'a Input,
    events: &'a [Event],
}

impl<'a> Positioned<'a> {
    fn new(sequence: u64, index: usize, entry: &'a Entry) -> Self {
        let Entry { at, cause, input, events } = entry;
        Self { sequence, index, at: *at, cause: *cause, input, events }
    }
}

pub(crate) async fn run(found: &Found, args: EventsArgs) -> Result<(), Failure> {
    let log = found.broker().await?.log();
    match args.command {
        EventsCommand::Tail { json, no_follow, from } => tail(&log, json, !no_follow, from).await,
        EventsCommand::Show { seq } => show(&log, seq).await,
        EventsCommand::At { seq, json } => {
            let state = fold_to(&log, seq).await?;
            state::print(&state, seq, json)
        }
        EventsCommand::Verify { json } => verify(&log, json).await,
    }
}

async fn tail(log: &impl EventLog, json: bool, follow: bool, from: u64) -> Result<(), Failure> {
    read::each(log, from, follow, |sequence, index, entry| {
        if json {
            say::json(&Positioned::new(sequence, index, entry))?;
        } else {
            describe::print(sequence, index, entry);
        }
        Ok(())
    })
    .await
}

async fn show(log: &impl EventLog, seq: u64) -> Result<(), Failure> {
    let batch = read::message(log, seq).await?;
    for (index, entry) in batch.entries.iter().enumerate() {
        let text = serde_json::to_string_pretty(&Positioned::new(seq, index, entry));
        say::line(text.map_err(anyhow::Error::from)?);
    }
    Ok(())
}

async fn verify(log: &impl EventLog, json: bool) -> Result<(), Failure> {
    let mut verifier = Verifier::default();
    let (mut entries, mut deviations) = (0_u64, Vec::new());
    read::each(log, 1, false, |sequence, index, entry| {
        entries += 1;
        if let Err(deviation) = verifier.entry(entry) {
            deviations.push((sequence, index, deviation));
        }
        Ok(())
    })
    .await?;
    if json {
        let at: Vec<String> =
            deviations.iter().map(|(seq, index, _)| format!("{seq}.{index}")).collect();
        say::line(format_args!("{}", serde_json::json!({ "entries": entries, "deviations": at })));
    } else {
        for (sequence, index, deviation) in &deviations {
            say::line(format_args!("{sequence}.{index}  the log says   {:?}", deviation.logged));
            say::line(format_args!("{sequence}.{index}  decided again  {:?}", deviation.decided));
        }
        say::line(format_args!("{entries} entries decided again, {} deviations", deviations.len()));
    }
    if deviations.is_empty() && verifier.agrees() {
        return Ok(());
    }
    Err(Failure::new(
        Code::Failed,
        anyhow::anyhow!("this build decides otherwise than the log says"),
    ))
}

/// Folds an entry; for those who need only the state.
fn fold(state: &mut State, entry: &Entry) {
    evolve(state, entry);
}
