//! `gradient explain`: why a job runs where it runs, or why it does not run yet. Answered by the log
//! alone.

use clap::Args;
use futures_util::StreamExt;
use gradient_domain::{JobId, Timestamp, WorkerId};
use gradient_events::Event;
use gradient_log::EventLog;
use gradient_scheduler_core::explain::{Explanation, Standing, explain};
use gradient_scheduler_core::{State, evolve};

use crate::cluster::Found;
use crate::exit::{Code, Failure};
use crate::say;

/// Explain a job: its hand-outs and why, or what it waits for
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// build:ID, eval:ID, or the id of a build or an evaluation alone
    job: String,
}

pub(crate) async fn run(found: &Found, args: ExplainArgs) -> Result<(), Failure> {
    let job = parse(&args.job)?;
    let log = found.broker().await?.log();
    let (state, hand_outs) = read(&log, job).await?;
    say::line(format_args!("{job}"));
    for hand_out in &hand_outs {
        print_hand_out(&state, hand_out);
    }
    let explanation = explain(&state, job);
    print_explanation(&state, &explanation);
    match explanation {
        Explanation::Unknown => {
            Err(Failure::new(Code::NotFound, anyhow::anyhow!("the log knows no job {job}")))
        }
        _ => Ok(()),
    }
}

fn parse(text: &str) -> Result<JobId, Failure> {
    if let Ok(job) = text.parse() {
        return Ok(job);
    }
    let evaluation = text.parse().map(JobId::Evaluate);
    let job = evaluation.or_else(|_| text.parse().map(JobId::Build));
    job.map_err(|_| Failure::usage(format!("'{text}' is not a job: write build:ID or eval:ID")))
}

struct HandOut {
    at: Timestamp,
    event: Event,
}

async fn read(log: &impl EventLog, job: JobId) -> Result<(State, Vec<HandOut>), Failure> {
    let unreadable =
        |error| Failure::unavailable(anyhow::Error::from(error).context("the log cannot be read"));
    let last = log.last_sequence().await.map_err(unreadable)?;
    let (mut state, mut hand_outs) = (State::default(), Vec::new());
    if last == 0 {
        return Ok((state, hand_outs));
    }
    let mut messages = log.read(1).await.map_err(unreadable)?;
    while let Some(message) = messages.next().await {
        let message = message.map_err(unreadable)?;
        for entry in &message.batch.entries {
            evolve(&mut state, entry);
            let concerns = |event: &&Event| matches!(event, Event::JobAssigned { job: assigned, .. } if *assigned == job);
            let events = entry.events.iter().filter(concerns).cloned();
            hand_outs.extend(events.map(|event| HandOut { at: entry.at, event }));
        }
        if message.sequence >= last {
            break;
        }
    }
    Ok((state, hand_outs))
}

fn print_hand_out(state: &State, hand_out: &HandOut) {
    let Event::JobAssigned { assignment, worker, total, breakdown, considered, runners_up, .. } =
        &hand_out.event
    else {
        return;
    };
    say::line(format_args!(
        "  {assignment} to {} at {}: {} points, best of {considered}",
        name(state, *worker),
        say::moment(hand_out.at),
        points(total.0)
    ));
    for rule in breakdown {
        say::line(format_args!("      {:<18} {:>12}", rule.rule.name(), points(rule.points.0)));
    }
    for runner_up in runners_up.iter().take(5) {
        say::line(format_args!(
            "      behind it: {} with {}",
            runner_up.job,
            points(runner_up.total.0)
        ));
    }
}

fn print_explanation(state: &State, explanation: &Explanation) {
    match explanation {
        Explanation::Unknown => {}
        Explanation::Running { assignment, worker, phase, .. } => {
            say::line(format_args!(
                "  runs as {assignment} on {} ({phase:?})",
                name(state, *worker)
            ));
        }
        Explanation::Queued { workers, .. } => {
            say::line("  waits in the queue:");
            if workers.is_empty() {
                say::line("      no worker is connected");
            }
            for (worker, standing) in workers {
                say::line(format_args!(
                    "      {:<20} {}",
                    name(state, *worker),
                    standing_text(*standing)
                ));
            }
        }
        Explanation::Blocked { missing, inputs } => {
            let named: Vec<String> = inputs.iter().map(|build| format!("build:{build}")).collect();
            say::line(format_args!("  waits for {missing} inputs: {}", named.join(", ")));
        }
        Explanation::NotRecorded => {
            say::line("  is mentioned, but its evaluation has not recorded it yet")
        }
        Explanation::Unwanted => say::line("  no live evaluation wants it"),
        Explanation::Backoff { until } => {
            say::line(format_args!("  failed and comes back at {}", say::moment(*until)))
        }
        Explanation::Over { how } => say::line(format_args!("  is over: {how}")),
    }
}

fn standing_text(standing: Standing) -> &'static str {
    match standing {
        Standing::DoesNotFit => "does not fit: it lacks the system, a feature or the capability",
        Standing::Draining => "drains and takes nothing new",
        Standing::Full => "all its slots are taken",
        Standing::NotAsked => "has a free slot and has not asked yet",
        Standing::Idle => "has a free slot and asked before the job was there",
    }
}

fn name(state: &State, worker: WorkerId) -> String {
    state.workers().get(&worker).map_or_else(|| worker.to_string(), |known| known.name.clone())
}

/// Thousandths of a point as points.
pub(crate) fn points(milli: i64) -> String {
    format!(
        "{}{}.{:03}",
        if milli < 0 { "-" } else { "" },
        milli.abs() / 1_000,
        milli.abs() % 1_000
    )
}
