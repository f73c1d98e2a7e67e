//! Entries as lines for people.

use gradient_domain::flake::{FetchOptions, LockPolicy, Override};
use gradient_events::event::JobResult;
use gradient_events::worker::JobUpdate;
use gradient_events::{Command, Entry, Event, Input, WorkerMessage};

use crate::explain::points;
use crate::say;

pub(super) fn print(sequence: u64, index: usize, entry: &Entry) {
    say::line(format_args!(
        "{sequence}.{index}  {}  {}",
        say::moment(entry.at),
        input(&entry.input)
    ));
    for event in &entry.events {
        say::line(format_args!("      {}", self::event(event)));
    }
}

fn input(input: &Input) -> String {
    match input {
        Input::Started { settings, .. } => {
            format!("scheduler started (policy {})", settings.policy)
        }
        Input::Worker { worker, message, .. } => format!("worker {worker}: {}", said(message)),
        Input::Metrics { worker, metrics } => {
            format!(
                "worker {worker}: processor {} %, {} MiB free",
                metrics.cpu_usage_pct, metrics.ram_free_mb
            )
        }
        Input::WorkerSilent { worker } => format!("worker {worker} is silent"),
        Input::Command { command } => match command {
            Command::Submit { evaluation, flake, patterns, fetch } => {
                let options = fetch_options(fetch);
                format!("submit {evaluation}: {} ({}){options}", flake.label(), patterns.join(", "))
            }
            Command::CancelEvaluation { evaluation } => format!("cancel evaluation {evaluation}"),
            Command::CancelBuild { build } => format!("cancel build {build}"),
        },
        Input::Unreadable { subject, .. } => format!("unreadable message on {subject}"),
        Input::Tick => "tick".into(),
        Input::Sweep => "sweep".into(),
    }
}

fn fetch_options(options: &FetchOptions) -> String {
    let FetchOptions { overrides, lock_policy, has_ssh_key } = options;
    let mut text = String::new();
    for Override { input, reference } in overrides {
        text.push_str(&format!(", {input} from {reference}"));
    }
    if *lock_policy == LockPolicy::Strict {
        text.push_str(", strict lock");
    }
    if *has_ssh_key {
        text.push_str(", with a key for SSH");
    }
    text
}

fn said(message: &WorkerMessage) -> String {
    match message {
        WorkerMessage::Hello(hello) => format!("hello from {}", hello.name),
        WorkerMessage::WorkerCapabilities { .. } => "capabilities".into(),
        WorkerMessage::RequestJobList => "asks for the list of candidates".into(),
        WorkerMessage::RequestJobChunk { scores, .. } => format!("{} scores", scores.len()),
        WorkerMessage::RequestJob { kind } => format!("asks for a job of kind {kind}"),
        WorkerMessage::AssignJobResponse { assignment, accepted: true, .. } => {
            format!("takes {assignment}")
        }
        WorkerMessage::AssignJobResponse { assignment, reason, .. } => {
            format!("declines {assignment}: {}", reason.as_deref().unwrap_or("no reason given"))
        }
        WorkerMessage::JobUpdate { assignment, update, .. } => {
            format!("{assignment} {}", step(update))
        }
        WorkerMessage::JobCompleted { assignment, elapsed_ms, .. } => {
            format!("{assignment} completed after {elapsed_ms} ms")
        }
        WorkerMessage::JobFailed { assignment, kind, error, .. } => {
            format!(
                "{assignment} failed ({}): {}",
                kind.name(),
                error.lines().next().unwrap_or_default()
            )
        }
        WorkerMessage::Draining => "drains".into(),
        WorkerMessage::Goodbye => "says goodbye".into(),
    }
}

fn step(update: &JobUpdate) -> String {
    match update {
        JobUpdate::Fetching => "fetches".into(),
        JobUpdate::FetchResult { locked_url, .. } => format!("fetched {locked_url}"),
        JobUpdate::EvaluatingFlake => "opens the flake".into(),
        JobUpdate::EvaluatingDerivations => "finds derivations".into(),
        JobUpdate::EvalResult(batch) => format!(
            "found {} derivations, {} errors, {} warnings",
            batch.derivations.len(),
            batch.errors.len(),
            batch.warnings.len()
        ),
        JobUpdate::Building => "builds".into(),
        JobUpdate::BuildOutput { outputs, substituted, .. } => {
            format!(
                "{} outputs{}",
                outputs.len(),
                if *substituted { " (they were there)" } else { "" }
            )
        }
    }
}

fn event(event: &Event) -> String {
    match event {
        Event::SettingsReplaced => "settings replaced".into(),
        Event::WorkerJoined { worker, protocol, .. } => {
            format!("worker joined: {worker} (protocol {protocol})")
        }
        Event::WorkerRejected { worker, code, reason, .. } => {
            format!("worker rejected: {worker} ({code} {reason})")
        }
        Event::CapabilitiesReplaced { version, .. } => {
            format!("capabilities replaced: version {version}")
        }
        Event::MetricsRecorded { .. } => "metrics recorded".into(),
        Event::SlotIdle { kind, .. } => format!("slot idle: {kind}"),
        Event::OffersSent { worker, up_to, .. } => {
            format!("offers sent: to {worker} up to {}", up_to.0)
        }
        Event::ScoresRecorded { up_to, .. } => format!("scores recorded: up to {}", up_to.0),
        Event::WorkerDraining { worker } => format!("worker draining: {worker}"),
        Event::WorkerLost { worker } => format!("worker lost: {worker}"),
        Event::WorkerLeft { worker, .. } => format!("worker left: {worker}"),
        Event::EvaluationRequested { evaluation } => format!("evaluation requested: {evaluation}"),
        Event::EvaluationAdvanced { evaluation, state } => {
            format!("evaluation {}: {evaluation}", state.name())
        }
        Event::DerivationsRecorded { builds, .. } => {
            format!("derivations recorded: {}", builds.len())
        }
        Event::MessagesRecorded { .. } => "messages recorded".into(),
        Event::EvaluationParked { evaluation, reason } => {
            format!("evaluation waits: {evaluation} for {reason:?}")
        }
        Event::EvaluationResumed { evaluation, .. } => format!("evaluation goes on: {evaluation}"),
        Event::EvaluationFinished { evaluation, verdict, .. } => {
            format!("evaluation finished: {evaluation} {verdict:?}")
        }
        Event::EvaluationAborted { evaluation, reason } => {
            format!("evaluation aborted: {evaluation} ({reason})")
        }
        Event::JobQueued { job, offer } => format!("job queued: {job} as offer {}", offer.0),
        Event::JobAssigned { job, assignment, worker, total, considered, .. } => format!(
            "job assigned: {job} to {worker} as {assignment}, {} points, {considered} considered",
            points(total.0)
        ),
        Event::AssignmentAccepted { assignment } => format!("assignment accepted: {assignment}"),
        Event::AssignmentDeclined { assignment, reason, .. } => {
            format!("assignment declined: {assignment} ({reason})")
        }
        Event::UpdateRecorded { assignment } => format!("step recorded: {assignment}"),
        Event::AbortRequested { assignment, cause, .. } => {
            format!("abort requested: {assignment} ({})", cause.text())
        }
        Event::AssignmentAbandoned { assignment, reason, .. } => {
            format!("assignment abandoned: {assignment} ({})", reason.name())
        }
        Event::ReportDropped { assignment, reason, .. } => {
            format!("report dropped: {assignment} ({reason:?})")
        }
        Event::InputRefused { reason } => format!("refused: {reason}"),
        Event::JobRequeued { job, reason, .. } => {
            format!("job requeued: {job} ({})", reason.name())
        }
        Event::JobFinished { job, assignment, result } => match result {
            JobResult::Completed => format!("job finished: {job} {assignment} completed"),
            JobResult::Failed(kind) => {
                format!("job finished: {job} {assignment} failed ({})", kind.name())
            }
        },
        Event::BuildsCreated { first, count } => format!("builds created: {count} from {first}"),
        Event::BuildsReady { builds, .. } => format!("builds ready: {}", list(builds)),
        Event::BuildStarted { build, .. } => format!("build started: {build}"),
        Event::BuildSucceeded { build, .. } => format!("build succeeded: {build}"),
        Event::BuildFailed { build, kind, message, .. } => {
            format!(
                "build failed: {build} ({}) {}",
                kind.name(),
                message.lines().next().unwrap_or_default()
            )
        }
        Event::DependencyFailed { builds, cause } => {
            format!("dependency failed: {} because of {cause}", list(builds))
        }
        Event::BuildAborted { build, reason } => format!("build aborted: {build} ({reason})"),
        Event::BuildsSkipped { builds } => format!("builds skipped: {}", list(builds)),
        Event::BuildsThawed { builds } => format!("builds thawed: {}", list(builds)),
        Event::SweepFound { what } => format!("SWEEP FOUND: {what}"),
    }
}

fn list(builds: &[gradient_domain::BuildId]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = builds.iter().take(NAMED).map(ToString::to_string).collect();
    let rest = builds.len().saturating_sub(NAMED);
    if rest == 0 { named.join(" ") } else { format!("{} and {rest} more", named.join(" ")) }
}
