//! `gradient projections`: the tables, dropped and folded again. The work is the server program's: this
//! one knows no SQL.

use std::process::Stdio;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tokio::process::Command;

use crate::cluster::Found;
use crate::exit::{Code, Failure};
use crate::up::programs;

/// Work on the tables that the log is folded into
#[derive(Debug, Args)]
pub(crate) struct ProjectionsArgs {
    #[command(subcommand)]
    command: ProjectionsCommand,
}

#[derive(Debug, Subcommand)]
enum ProjectionsCommand {
    /// Drop all tables and fold the log into new ones; prints a digest of every table
    Rebuild,
    /// Print a digest of every table
    Digest,
}

pub(crate) async fn run(found: &Found, args: ProjectionsArgs) -> Result<(), Failure> {
    let local = found.local.as_ref().ok_or_else(|| {
        Failure::usage("the tables of a remote cluster are rebuilt on its server")
            .hint("run `gradient-server rebuild-projections` there")
    })?;
    let server = programs::server().ok_or_else(|| {
        Failure::unavailable(anyhow::anyhow!("gradient-server is not beside this program"))
            .hint("build it with `make build`")
    })?;
    let mut command = Command::new(server);
    match args.command {
        ProjectionsCommand::Rebuild => command.args(["rebuild-projections", "--digest"]),
        ProjectionsCommand::Digest => command.arg("digest-projections"),
    };
    let status = command
        .args(["--nats-url", &local.nats_url, "--database-url", &local.database_url])
        .arg("--nats-token-file")
        .arg(&local.nats_token_file)
        .env("GRADIENT_LOG", "warn")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("gradient-server cannot be started")?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(Code::Failed, anyhow::anyhow!("the tables could not be rebuilt ({status})")))
}
