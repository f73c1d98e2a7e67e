//! `gradient-server`: scheduler, projector, api and cache in one process, or some of them.

mod args;
mod secret;
mod services;

use std::process::ExitCode;

use clap::Parser;
use gradient_runtime::telemetry::{self, LogFormat};

use crate::args::{ServerArgs, ServerCommand};

fn main() -> ExitCode {
    let args = ServerArgs::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the server cannot start its threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: ServerArgs) -> anyhow::Result<()> {
    let _telemetry = telemetry::init("gradient-server", &args.log_level, LogFormat::Text)?;
    match &args.command {
        None => services::run(args).await,
        Some(ServerCommand::RebuildProjections { digest }) => {
            services::rebuild(&args, *digest).await
        }
        Some(ServerCommand::DigestProjections) => services::print_digest(&args).await,
    }
}
