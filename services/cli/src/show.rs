//! `gradient jobs`, `workers`, `builds`: the tables.

use clap::Args;
use gradient_api::types::{BuildSummary, EvaluationSummary, Jobs, PAGE_MAX, Worker};
use gradient_domain::EvaluationId;
use serde_json::json;

use crate::client::Client;
use crate::cluster::Found;
use crate::exit::{Code, Failure};
use crate::explain::points;
use crate::say;
use crate::watch::span;

/// Most workers that are shown.
const WORKERS_MAX: usize = 10_000;

/// Show jobs: those in the queue and those handed out
#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// Also the hand-outs that are over
    #[arg(long)]
    all: bool,
    /// Most rows of each kind
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_MAX)))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show workers and what they run
#[derive(Debug, Args)]
pub(crate) struct WorkersArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show the builds of an evaluation
#[derive(Debug, Args)]
pub(crate) struct BuildsArgs {
    /// The evaluation; the newest if absent
    evaluation: Option<EvaluationId>,
    /// Most rows
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn jobs(found: &Found, args: JobsArgs) -> Result<(), Failure> {
    let client = Client::new(found)?;
    let state = if args.all { "all" } else { "dispatched" };
    let Jobs { pending, .. } =
        client.get(&format!("jobs?state=pending&limit={}", args.limit)).await?;
    let Jobs { dispatched, .. } =
        client.get(&format!("jobs?state={state}&limit={}", args.limit)).await?;
    if args.json {
        say::json(&json!({ "pending": pending, "dispatched": dispatched }))?;
        return Ok(());
    }
    let mut rows = vec![
        ["JOB", "WHAT", "STATE", "WORKER", "ASSIGNMENT", "SCORE", "TOOK"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(pending.iter().map(|job| {
        let needs = job.requirement.as_ref().map_or_else(String::new, ToString::to_string);
        vec![job.job.to_string(), say::plain(&job.label), "pending".into(), needs]
    }));
    rows.extend(dispatched.iter().map(|job| {
        let state = match &job.outcome {
            None if job.accepted_at.is_some() => "running".to_owned(),
            None => "handed out".to_owned(),
            Some(outcome) => outcome.name().replace('_', " "),
        };
        let worker = job.worker_name.clone().unwrap_or_else(|| job.worker.to_string());
        let took = span(job.assigned_at, job.finished_at);
        vec![
            job.job.to_string(),
            say::plain(&job.label),
            state,
            worker,
            job.assignment.to_string(),
            points(job.total.0),
            took,
        ]
    }));
    if rows.len() == 1 {
        say::line("no jobs");
        return Ok(());
    }
    say::table(&rows);
    Ok(())
}

pub(crate) async fn workers(found: &Found, args: WorkersArgs) -> Result<(), Failure> {
    let client = Client::new(found)?;
    let mut workers: Vec<Worker> = client.list("workers", WORKERS_MAX).await?;
    workers.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    if args.json {
        say::json(&workers)?;
        return Ok(());
    }
    let mut rows = vec![
        ["NAME", "STATE", "RUNS", "SLOTS", "SYSTEMS", "FEATURES", "PROCESSOR", "FREE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for worker in &workers {
        let offers = worker.capabilities.as_ref();
        let list = |names: Vec<String>| if names.is_empty() { "-".into() } else { names.join(",") };
        let metrics = worker.metrics.as_ref();
        rows.push(vec![
            say::plain(&worker.name),
            worker.presence.name().to_owned(),
            worker.running.len().to_string(),
            offers.map_or_else(|| "-".into(), |c| c.max_concurrent_builds.to_string()),
            list(offers.map_or_else(Vec::new, |c| {
                c.architectures.iter().map(ToString::to_string).collect()
            })),
            list(offers.map_or_else(Vec::new, |c| {
                c.system_features.iter().map(ToString::to_string).collect()
            })),
            metrics.map_or_else(|| "-".into(), |m| format!("{} %", m.cpu_usage_pct)),
            metrics.map_or_else(|| "-".into(), |m| format!("{} MiB", m.ram_free_mb)),
        ]);
        rows.extend(worker.running.iter().map(|job| {
            vec![format!("  {}", job.job), say::plain(&job.label), job.assignment.to_string()]
        }));
    }
    say::table(&rows);
    Ok(())
}

pub(crate) async fn builds(found: &Found, args: BuildsArgs) -> Result<(), Failure> {
    let client = Client::new(found)?;
    let evaluation = match args.evaluation {
        Some(evaluation) => evaluation,
        None => {
            let newest: Vec<EvaluationSummary> = client.list("evaluations", 1).await?;
            let none =
                || Failure::new(Code::NotFound, anyhow::anyhow!("there is no evaluation yet"));
            newest.first().ok_or_else(none)?.id
        }
    };
    let builds: Vec<BuildSummary> =
        client.list(&format!("evaluations/{evaluation}/builds"), args.limit).await?;
    if args.json {
        say::json(&builds)?;
        return Ok(());
    }
    let mut rows =
        vec![["BUILD", "NAME", "STATE", "ATTEMPTS", "TOOK", "NOTE"].map(str::to_owned).to_vec()];
    rows.extend(builds.iter().map(|build| {
        let note = match (&build.cause, &build.message) {
            (Some(cause), _) => format!("build {cause} failed, which it needs"),
            (None, Some(message)) => say::first_line(message),
            (None, None) => String::new(),
        };
        let took = build.started_at.map_or_else(|| "-".into(), |at| span(at, build.finished_at));
        let name = build.drv_path.name().trim_end_matches(".drv").to_owned();
        vec![
            build.id.to_string(),
            name,
            build.state.name().replace('_', " "),
            build.attempts.to_string(),
            took,
            note,
        ]
    }));
    say::table(&rows);
    Ok(())
}
