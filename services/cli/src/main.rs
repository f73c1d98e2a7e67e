//! `gradient`: everything a person types.

mod cache;
mod cancel;
mod client;
mod cluster;
mod data_dir;
mod eval;
mod eval_cache;
mod events;
mod exit;
mod explain;
mod logs;
mod overrides;
mod projections;
mod say;
mod show;
mod submit;
mod up;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gradient_runtime::telemetry::{self, LogFormat};

use crate::cluster::Found;
use crate::exit::Failure;

/// A Nix CI fleet: evaluate flakes, build what they hold, see why
///
/// Commands find the local cluster of `--data-dir`, or a remote one by GRADIENT_URL and GRADIENT_TOKEN.
///
/// Exit codes: 0 success; 1 the evaluation or build failed, or a check did not hold; 2 the input is
/// wrong; 3 something is not there or does not answer; 4 no such evaluation, build or job; 130 stopped
/// by Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "gradient", version, about, long_about)]
struct Arguments {
    /// Directory of the local cluster; /var/lib/gradient for root, else ~/.local/share/gradient
    #[arg(long, global = true, env = "GRADIENT_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::UpArgs),
    Submit(submit::SubmitArgs),
    Watch(watch::WatchArgs),
    Jobs(show::JobsArgs),
    Workers(show::WorkersArgs),
    Builds(show::BuildsArgs),
    Logs(logs::LogsArgs),
    Cancel(cancel::CancelArgs),
    Explain(explain::ExplainArgs),
    Events(events::EventsArgs),
    Projections(projections::ProjectionsArgs),
    Cache(cache::CacheArgs),
    Eval(eval::EvalArgs),
    EvalCache(eval_cache::EvalCacheArgs),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::unavailable(error).report(),
    };
    let done = runtime.block_on(run(arguments));
    // A blocked read of standard input or a slow resolver must not hold up the end.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let _telemetry = telemetry::init("gradient", "warn", LogFormat::Text)?;
    let root = arguments.data_dir.unwrap_or_else(data_dir::default_root);
    match arguments.command {
        Command::Up(args) => up::run(&root, args).await,
        Command::Eval(args) => eval::run(&root, args).await,
        Command::EvalCache(args) => eval_cache::run(&root, args).await,
        Command::Submit(args) => submit::run(&Found::find(&root)?, args).await,
        Command::Watch(args) => watch::run(&Found::find(&root)?, args).await,
        Command::Jobs(args) => show::jobs(&Found::find(&root)?, args).await,
        Command::Workers(args) => show::workers(&Found::find(&root)?, args).await,
        Command::Builds(args) => show::builds(&Found::find(&root)?, args).await,
        Command::Logs(args) => logs::run(&Found::find(&root)?, args).await,
        Command::Cancel(args) => cancel::run(&Found::find(&root)?, args).await,
        Command::Cache(args) => cache::run(&Found::find(&root)?, args).await,
        Command::Explain(args) => explain::run(&Found::find(&root)?, args).await,
        Command::Events(args) => events::run(&Found::find(&root)?, args).await,
        Command::Projections(args) => projections::run(&Found::find(&root)?, args).await,
    }
}
