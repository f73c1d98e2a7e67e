//! `gradient up`: a whole fleet on one machine, started, watched and stopped in order.

mod child;
mod cluster;
pub(crate) mod programs;
mod supervise;

use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;

use crate::data_dir::DataDir;
use crate::exit::Failure;
use crate::say;
use cluster::Cluster;
use programs::Programs;

/// Most workers of a local cluster.
const WORKERS_MAX: u32 = 64;

/// Start a local cluster: NATS, PostgreSQL, the services, and workers with stores of their own
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Workers, each with its own Nix daemon and store
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(WORKERS_MAX)))]
    pub(crate) workers: u32,
    /// Port of the web address on 127.0.0.1; 0 = any free one
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    pub(crate) http: u16,
    /// Build slots per worker; the processors shared among the workers, at least 2, if absent
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,
    /// Say what is missing and how to get it, and start nothing
    #[arg(long)]
    pub(crate) check: bool,
}

/// Runs the cluster until a signal.
pub(crate) async fn run(root: &std::path::Path, args: UpArgs) -> Result<(), Failure> {
    if args.check {
        return check();
    }
    let programs = Programs::find()?;
    check_port(args.http)?;
    let data = DataDir::create(root)?;
    let _lock = data.lock()?;
    let stop = gradient_runtime::shutdown::on_signal()
        .map_err(|error| Failure::unavailable(anyhow::Error::from(error)))?;
    let mut cluster = Cluster::new(data, programs);
    if let Err(failure) = cluster.start(&args, &stop).await {
        cluster.stop().await;
        return Err(failure);
    }
    cluster.announce(&args);
    stop.cancelled().await;
    say::note("stopping ...");
    cluster.stop().await;
    say::note("stopped; `gradient up` on the same data directory goes on from here");
    Ok(())
}

/// Whether the port is free, before anything is started or written.
fn check_port(port: u16) -> Result<(), Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    std::net::TcpListener::bind(address).map(drop).map_err(|error| {
        let error = anyhow::Error::from(error).context(format!("port {port} cannot be used"));
        Failure::unavailable(error).hint("choose another with --http PORT (0 = any free one)")
    })
}

fn check() -> Result<(), Failure> {
    let mut missing = 0;
    for looked in programs::look() {
        match looked.found {
            Ok(path) => {
                let version = if path.is_file() {
                    programs::version_of(&path).unwrap_or_default()
                } else {
                    String::new()
                };
                say::line(format_args!(
                    "ok       {:<16} {} {}",
                    looked.what,
                    path.display(),
                    version
                ));
            }
            Err(otherwise) => {
                missing += 1;
                say::line(format_args!("missing  {:<16} {otherwise}", looked.what));
            }
        }
    }
    if missing == 0 {
        return Ok(());
    }
    Err(Failure::unavailable(anyhow::anyhow!("{missing} programs are missing"))
        .hint("run `make setup`"))
}
