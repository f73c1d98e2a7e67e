//! The parts of a local cluster in the order of their start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use gradient_log::jetstream::local::{LocalServer, LocalSettings};
use gradient_postgres::local::{LocalPostgres, LocalPostgresSettings};
use gradient_runtime::shutdown::CancellationToken;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::UpArgs;
use super::child::{ChildSpec, RunningChild};
use super::programs::Programs;
use super::supervise::{Watched, watch};
use crate::data_dir::{ClusterFile, DataDir};
use crate::exit::{Code, Failure};
use crate::say;

/// How long the services may take until they are ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a worker may take to stop: it reports for up to 5 s.
const WORKER_GRACE: Duration = Duration::from_secs(7);
/// How long the services may take to stop.
const SERVER_GRACE: Duration = Duration::from_secs(4);
/// Seconds of silence after which a local worker is lost.
const HEARTBEAT_TIMEOUT_SECS: u32 = 30;

/// A set of children that stop together.
#[derive(Debug, Default)]
struct Layer {
    stop: CancellationToken,
    children: Vec<JoinHandle<()>>,
}

impl Layer {
    fn add<W: Watched>(&mut self, name: &str, child: W) {
        self.children.push(watch(name.to_owned(), child, self.stop.clone()));
    }

    async fn stop(self) {
        self.stop.cancel();
        for child in self.children {
            let _ = child.await;
        }
    }
}

/// The parts of a cluster and where they listen.
pub(crate) struct Cluster {
    data: DataDir,
    programs: Programs,
    stores: Layer,
    server: Layer,
    workers: Layer,
    addresses: Option<ClusterFile>,
}

impl Cluster {
    pub(crate) fn new(data: DataDir, programs: Programs) -> Self {
        let (stores, server, workers) = Default::default();
        Self { data, programs, stores, server, workers, addresses: None }
    }

    /// Starts all parts. A stop takes effect between two of them: a part whose start is dropped half-way
    /// might be left behind.
    pub(crate) async fn start(
        &mut self,
        args: &UpArgs,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        go_on_unless(stop)?;
        let nats_url = self.start_nats().await?;
        go_on_unless(stop)?;
        let database_url = self.start_postgres().await?;
        go_on_unless(stop)?;
        let http_url = self.start_server(args, &nats_url, &database_url, stop).await?;
        for number in 1..=args.workers {
            go_on_unless(stop)?;
            self.start_worker(number, args, &nats_url, &http_url)?;
        }
        let addresses = ClusterFile { pid: std::process::id(), http_url, nats_url, database_url };
        self.data.write_cluster(&addresses)?;
        self.addresses = Some(addresses);
        Ok(())
    }

    /// Stops everything in the reverse order of its start.
    pub(crate) async fn stop(self) {
        self.data.forget_cluster();
        self.workers.stop().await;
        self.server.stop().await;
        self.stores.stop().await;
    }

    /// Says how to use it.
    pub(crate) fn announce(&self, args: &UpArgs) {
        let Some(addresses) = &self.addresses else { return };
        let root = self.data.root().display();
        say::note(format_args!(
            "the cluster runs: {} workers, data in {root}\n  web      {}\n  submit   gradient --data-dir {root} submit path:./examples/first-light --include 'packages.*.*' --watch\n  stop     Ctrl-C",
            args.workers, addresses.http_url
        ));
    }

    fn log_file(&self, name: &str) -> anyhow::Result<PathBuf> {
        Ok(self.data.private("logs")?.join(format!("{name}.log")))
    }

    async fn start_nats(&mut self) -> Result<String, Failure> {
        say::note("starting nats-server ...");
        let settings = LocalSettings {
            program: self.programs.nats_server.clone(),
            dir: self.data.private("nats")?,
            token: self.data.read_secret("nats-token")?,
            port: None,
            log_file: Some(self.log_file("nats-server")?),
        };
        let server = LocalServer::start(&settings).await.map_err(|error| {
            let error = anyhow::Error::from(error).context("nats-server cannot be started");
            Failure::unavailable(error).hint("`gradient up --check` says what is missing")
        })?;
        let url = server.url();
        let settings = LocalSettings { port: Some(server.port()), ..settings };
        self.stores.add("nats-server", Nats { server, settings });
        Ok(url)
    }

    async fn start_postgres(&mut self) -> Result<String, Failure> {
        say::note("starting PostgreSQL ...");
        let settings = LocalPostgresSettings {
            bin_dir: Some(self.programs.postgres_bin_dir.clone()),
            dir: self.data.path("postgres"),
            socket_dir: None,
            log_file: None,
            durable: true,
        };
        let server = LocalPostgres::start(&settings).await.map_err(|error| {
            let error = anyhow::Error::from(error).context("PostgreSQL cannot be started");
            Failure::unavailable(error).hint("`gradient up --check` says what is missing")
        })?;
        let url = server.url().to_owned();
        self.stores.add("PostgreSQL", Postgres { server, settings });
        Ok(url)
    }

    async fn start_server(
        &mut self,
        args: &UpArgs,
        nats: &str,
        database: &str,
        stop: &CancellationToken,
    ) -> Result<String, Failure> {
        say::note("starting the services ...");
        let ready = self.data.path("server.ready");
        let _ = std::fs::remove_file(&ready);
        let mut spec = ChildSpec {
            name: "gradient-server".into(),
            program: self.programs.server.clone(),
            arguments: [
                "--http",
                &format!("127.0.0.1:{}", args.http),
                "--ready-file",
                &ready.to_string_lossy(),
                "--stop-with-stdin",
                "--nats-url",
                nats,
                "--nats-token-file",
                &self.data.secret("nats-token")?.to_string_lossy(),
                "--database-url",
                database,
                "--cache-dir",
                &self.data.private("cache")?.to_string_lossy(),
                "--cache-key-name",
                "gradient-local-1",
                "--key-dir",
                &self.data.private("keys")?.to_string_lossy(),
                "--upload-secret-file",
                &self.data.secret("upload-secret")?.to_string_lossy(),
                "--api-token-file",
                &self.data.secret("api-token")?.to_string_lossy(),
                "--worker-heartbeat-timeout-secs",
                &HEARTBEAT_TIMEOUT_SECS.to_string(),
            ]
            .map(str::to_owned)
            .to_vec(),
            environment: Vec::new(),
            log_file: self.log_file("gradient-server")?,
        };
        let mut child = spec.start()?;
        let until_ready = stop.run_until_cancelled(wait_until_ready(&mut child, &ready)).await;
        let url = match until_ready.unwrap_or_else(|| Err(stopped_while_starting())) {
            Ok(url) => url,
            Err(failure) => {
                child.stop(SERVER_GRACE).await;
                return Err(failure);
            }
        };
        // A restart has to come back at the same address.
        spec.arguments[1] = url.trim_start_matches("http://").to_owned();
        child.spec = spec;
        self.server.add("gradient-server", Own { child, grace: SERVER_GRACE });
        Ok(url)
    }

    fn start_worker(
        &mut self,
        number: u32,
        args: &UpArgs,
        nats: &str,
        http: &str,
    ) -> anyhow::Result<()> {
        let name = format!("worker-{number}");
        say::note(format_args!("starting {name} ..."));
        let base = self.data.private(&format!("workers/{number}"))?;
        let cores =
            std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        let slots = args.slots.unwrap_or_else(|| (cores / args.workers).max(2));
        let spec = ChildSpec {
            name: name.clone(),
            program: self.programs.worker.clone(),
            arguments: [
                "--name",
                &name,
                "--server-url",
                nats,
                "--server-token-file",
                &self.data.secret("nats-token")?.to_string_lossy(),
                "--cache-url",
                http,
                "--base-dir",
                &base.to_string_lossy(),
                "--store",
                "private",
                "--nix-bin",
                &self.programs.nix.to_string_lossy(),
                "--sandbox-shell",
                &self.programs.busybox.to_string_lossy(),
                "--system-features",
                &features(number),
                "--capabilities-fetch",
                "--capabilities-eval",
                "--capabilities-build",
                "--build-max-concurrent",
                &slots.to_string(),
                "--eval-fork-workers",
                &cores.min(4).to_string(),
                "--stop-with-stdin",
            ]
            .map(str::to_owned)
            .to_vec(),
            environment: Vec::new(),
            log_file: self.log_file(&name)?,
        };
        let child = spec.start()?;
        self.workers.add(&name, Own { child, grace: WORKER_GRACE });
        Ok(())
    }
}

/// System features of a local worker. Only the first takes `big-parallel`, so that a fleet on one
/// machine has members that differ.
fn features(number: u32) -> String {
    let mut features = vec!["benchmark", "nixos-test"];
    if number == 1 {
        features.push("big-parallel");
    }
    if Path::new("/dev/kvm").exists() {
        features.push("kvm");
    }
    features.join(",")
}

fn go_on_unless(stop: &CancellationToken) -> Result<(), Failure> {
    if stop.is_cancelled() { Err(stopped_while_starting()) } else { Ok(()) }
}

fn stopped_while_starting() -> Failure {
    Failure::new(Code::Interrupted, anyhow::anyhow!("stopped while starting"))
}

async fn wait_until_ready(child: &mut RunningChild, ready: &Path) -> Result<String, Failure> {
    let started = Instant::now();
    while started.elapsed() < READY_TIMEOUT {
        if let Some(url) = std::fs::read_to_string(ready).ok().filter(|text| text.ends_with('\n')) {
            return Ok(url.trim().to_owned());
        }
        let ended = tokio::time::timeout(Duration::from_millis(20), child.wait()).await;
        if let Ok(status) = ended {
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let words = child.spec.last_lines(3);
            return Err(Failure::unavailable(anyhow::anyhow!(
                "the services ended while starting ({how}): {words}"
            ))
            .hint(format!("the whole log is in {}", child.spec.log_file.display())));
        }
    }
    let error = anyhow::anyhow!("the services were not ready within {} s", READY_TIMEOUT.as_secs());
    Err(Failure::unavailable(error)
        .hint(format!("the log is in {}", child.spec.log_file.display())))
}

/// A program of ours under watch.
struct Own {
    child: RunningChild,
    grace: Duration,
}

impl Watched for Own {
    async fn again(&self) -> anyhow::Result<Self> {
        Ok(Self { child: self.child.spec.start()?, grace: self.grace })
    }

    async fn ended(&mut self) -> String {
        self.child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    async fn stop(self) {
        self.child.stop(self.grace).await;
    }

    fn last_words(&self) -> String {
        self.child.spec.last_lines(3)
    }
}

struct Nats {
    server: LocalServer,
    settings: LocalSettings,
}

impl Watched for Nats {
    async fn again(&self) -> anyhow::Result<Self> {
        let server = LocalServer::start(&self.settings).await.context("nats-server")?;
        Ok(Self { server, settings: self.settings.clone() })
    }

    async fn ended(&mut self) -> String {
        self.server.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    async fn stop(self) {
        self.server.stop().await;
    }

    fn last_words(&self) -> String {
        String::new()
    }
}

struct Postgres {
    server: LocalPostgres,
    settings: LocalPostgresSettings,
}

impl Watched for Postgres {
    async fn again(&self) -> anyhow::Result<Self> {
        let server = LocalPostgres::start(&self.settings).await.context("PostgreSQL")?;
        Ok(Self { server, settings: self.settings.clone() })
    }

    async fn ended(&mut self) -> String {
        self.server.wait().await
    }

    async fn stop(self) {
        self.server.stop().await;
    }

    fn last_words(&self) -> String {
        String::new()
    }
}
