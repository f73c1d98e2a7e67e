//! `gradient-worker`: evaluates and builds for a fleet. With `--eval-subprocess` it is one of its own
//! evaluators instead.

mod drive;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use gradient_daemon::{ClientOptions, Pool as Store, PublicKey};
use gradient_domain::is_trusted_way;
use gradient_fetch::Fetcher;
use gradient_log::jetstream::{Broker, ConnectError, ConnectSettings};
use gradient_pool::settings::EVAL_CACHE_FOLDER;
use gradient_pool::{Pool, PoolSettings};
use gradient_runtime::shutdown::CancellationToken;
use gradient_runtime::telemetry::{self, LogFormat};
use gradient_worker::agent::{Agent, AgentSettings};
use gradient_worker::cache_client::CacheClient;
use gradient_worker::config::{StoreKind, WorkerArgs};
use gradient_worker::daemon_process::{DaemonProcess, DaemonSettings};
use gradient_worker::evaluate::Evaluator;
use gradient_worker::execute::Executor;
use gradient_worker::outbox::Outbox;
use gradient_worker::store::LocalPaths;
use gradient_worker::{detect, identity};

/// Connections to the daemon that one build may use, and those that are always there.
const CONNECTIONS: (usize, usize) = (9, 16);
/// First and longest pause between two attempts to connect.
const CONNECT_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Where the machine's own daemon listens.
const DAEMON_SOCKET: &str = "/nix/var/nix/daemon-socket/socket";

fn main() -> ExitCode {
    let args = WorkerArgs::parse();
    if args.eval_subprocess {
        gradient_nix::subprocess::run();
    }
    gradient_nix::keep_heaps_small();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the worker cannot start its threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let work = async {
        match args.eval_driver.clone() {
            Some(file) => drive::drive(&args, &file).await,
            None => run(args).await,
        }
    };
    match runtime.block_on(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: WorkerArgs) -> anyhow::Result<()> {
    let _telemetry = telemetry::init("gradient-worker", &args.log_level_default, LogFormat::Text)?;
    let stop = gradient_runtime::shutdown::on_signal()?;
    if args.stop_with_stdin {
        gradient_runtime::shutdown::with_stdin(stop.clone());
    }
    let id = identity::worker_id(&args.base_dir, args.id)?;
    let name = args.name.clone().unwrap_or_else(host_name);
    let server_url =
        args.server_url.clone().context("--server-url is missing: the NATS server of the fleet")?;
    let cache_url =
        args.cache_url.clone().context("--cache-url is missing: the cache service of the fleet")?;
    anyhow::ensure!(
        args.cache_public_key.is_some() || is_trusted_way(&cache_url),
        "the key of the cache at {cache_url} cannot be asked for without TLS: anybody on the way could \
         answer; give --cache-public-key, or an https:// address"
    );
    let token = args.server_token_file.as_deref().map(read_token).transpose()?;
    let settings =
        ConnectSettings { url: server_url, token, name: format!("gradient-worker {name}") };
    let Some(broker) = connect(&settings, &stop).await? else { return Ok(()) };
    let key = match &args.cache_public_key {
        Some(key) => PublicKey::parse(key).context("--cache-public-key is not a key")?,
        None => CacheClient::ask_public_key(&cache_url)
            .await
            .context("the cache does not tell its key")?,
    };
    let cache = CacheClient::new(&cache_url, key)?;
    let (store, daemon) = open_store(&args, &cache).await?;
    let environment = match &store.socket {
        Some(socket) => vec![("NIX_REMOTE".to_owned(), format!("unix://{}", socket.display()))],
        None => Vec::new(),
    };
    let capabilities = detect::capabilities(&args, &environment).await;
    let evaluator =
        args.capabilities_eval.then(|| evaluator(&args, &store, &cache, &broker)).transpose()?;
    let executor = Executor::new(evaluator, store.pool, cache, args.build_max_cores, daemon);
    let settings = AgentSettings {
        worker: id,
        name,
        flags: (args.capabilities_fetch, args.capabilities_eval, args.capabilities_build),
        capabilities,
        evaluations_max: args.eval_max_concurrent,
    };
    let outbox = Outbox::open(&args.base_dir)?;
    Agent::new(settings, broker, outbox, executor).run(stop).await
}

/// Connects, and tries again for as long as it takes: 1 s, doubling up to 60 s (reference 1.5).
/// `None` if the worker is stopped meanwhile. A server that is too old is no matter of waiting.
async fn connect(
    settings: &ConnectSettings,
    stop: &CancellationToken,
) -> Result<Option<Broker>, ConnectError> {
    let (mut pause, longest) = CONNECT_PAUSE;
    loop {
        match stop.run_until_cancelled(Broker::connect(settings)).await {
            None => return Ok(None),
            Some(Ok(broker)) => return Ok(Some(broker)),
            Some(Err(error @ (ConnectError::TooOld { .. } | ConnectError::NoJetStream { .. }))) => {
                return Err(error);
            }
            Some(Err(error @ ConnectError::Connect { .. })) => {
                let chain = format!("{:#}", anyhow::Error::from(error));
                tracing::warn!(
                    error = chain,
                    pause_secs = pause.as_secs(),
                    "not connected; trying again"
                );
            }
        }
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return Ok(None);
        }
        pause = (pause * 2).min(longest);
    }
}

/// The local store as each part needs it.
struct LocalStore {
    pool: Store,
    /// As Nix's programs and the evaluator name it.
    uri: String,
    /// Where its `/nix/store` really is.
    dir: PathBuf,
    /// Set for a private store.
    socket: Option<PathBuf>,
}

async fn open_store(
    args: &WorkerArgs,
    cache: &CacheClient,
) -> anyhow::Result<(LocalStore, Option<DaemonProcess>)> {
    let slots = args.build_max_concurrent as usize;
    let connections = slots * CONNECTIONS.0 + CONNECTIONS.1;
    if args.store == StoreKind::Daemon {
        let pool = Store::new(DAEMON_SOCKET, ClientOptions::default(), connections);
        pool.get().await.with_context(|| {
            format!("the Nix daemon at {DAEMON_SOCKET} does not answer; start it, or use --store private")
        })?;
        let store =
            LocalStore { pool, uri: "daemon".into(), dir: "/nix/store".into(), socket: None };
        return Ok((store, None));
    }
    let nix_bin_dir = args.nix_bin.parent().filter(|dir| !dir.as_os_str().is_empty());
    let nix_bin_dir =
        nix_bin_dir.context("--store private needs the full path of nix in --nix-bin")?;
    let mut settings = DaemonSettings::new(nix_bin_dir, args.base_dir.join("store"));
    settings.trusted_public_keys = vec![cache.public_key().to_string()];
    settings.system_features = args.system_features.clone().unwrap_or_default();
    settings.extra_platforms = args.system_architectures.clone().unwrap_or_default();
    settings.max_jobs = args.build_max_concurrent.max(1);
    settings.sandbox_shell = Some(args.sandbox_shell.clone());
    let daemon =
        DaemonProcess::start(settings).await.context("the private Nix daemon cannot be started")?;
    let store = LocalStore {
        pool: daemon.pool(connections),
        uri: daemon.store_uri(),
        dir: daemon.root().join("nix/store"),
        socket: Some(daemon.socket()),
    };
    Ok((store, Some(daemon)))
}

/// What evaluators may use, as the options say.
fn set_limits(settings: &mut PoolSettings, args: &WorkerArgs) {
    if let Some(children) = args.eval_fork_workers {
        settings.children = children.max(1);
    }
    settings.max_rss_bytes = args.eval_max_rss;
    settings.kill_rss_bytes = args.eval_kill_rss;
    settings.call_limit = Duration::from_secs(args.eval_call_timeout_secs);
    settings.min_free_ram_bytes = args.system_min_free_ram_mb << 20;
}

fn evaluator(
    args: &WorkerArgs,
    store: &LocalStore,
    cache: &CacheClient,
    broker: &Broker,
) -> anyhow::Result<Evaluator> {
    let exe = std::env::current_exe().context("the worker does not find its own program")?;
    let cache_home = args.base_dir.join("eval-cache");
    std::fs::create_dir_all(&cache_home)
        .with_context(|| format!("cannot create {}", cache_home.display()))?;
    gradient_fetch::remove_left_keys(&cache_home)
        .with_context(|| format!("cannot remove old keys in {}", cache_home.display()))?;
    let mut settings = PoolSettings::new(exe, store.uri.clone(), cache_home.clone());
    settings.eval_cache = Some(cache_home.join(EVAL_CACHE_FOLDER));
    settings.known_paths = Some(Arc::new(LocalPaths(store.pool.clone())));
    settings.remote_only = true;
    set_limits(&mut settings, args);
    let (children, max_rss) = (settings.children, settings.max_rss_bytes);
    let pool = Pool::new(settings).context("the pool of evaluators cannot be started")?;
    if pool.is_overcommitted() {
        tracing::warn!(
            children,
            max_rss,
            "evaluators may grow beyond 75 % of memory; fewer work then"
        );
    }
    Ok(Evaluator {
        pool,
        store: store.pool.clone(),
        store_dir: store.dir.clone(),
        fetcher: Fetcher::new(
            args.nix_bin.clone(),
            store.uri.clone(),
            store.dir.clone(),
            cache_home,
        ),
        cache: cache.clone(),
        is_sharing: args.eval_cache_share,
        queries: broker.queries(),
    })
}

fn read_token(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read the token in {}", file.display()))?;
    Ok(text.trim().to_owned())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "worker".into(),
        name => name.chars().take(64).collect(),
    }
}
