//! Wiring: the services that run, on one HTTP listener.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use axum::Router;
use gradient_api::{ApiSettings, ApiState};
use gradient_cache::token::{Scope, UploadToken, mint, verify};
use gradient_cache::{CacheSettings, CacheState};
use gradient_events::Settings;
use gradient_log::jetstream::{Broker, ConnectError, ConnectSettings, StreamLimits};
use gradient_postgres::{Database, Projector, ProjectorSettings};
use gradient_runtime::health::Health;
use gradient_runtime::shutdown::CancellationToken;
use gradient_scheduler::{MintToken, SchedulerSettings};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::{ServerArgs, Service};
use crate::secret;

/// How long the streams' server is waited for at the start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(250);
/// How long an upload token is valid, in milliseconds: 7 days. A hand-out that takes longer cannot
/// upload its results and fails; wall-clock limits of builds are 4 hours unless they are set otherwise.
const TOKEN_VALID_MS: u64 = 7 * 24 * 3600 * 1000;

/// Runs the chosen services until a signal, or until one of them fails.
pub(crate) async fn run(args: ServerArgs) -> anyhow::Result<()> {
    let stop = gradient_runtime::shutdown::on_signal()?;
    if args.stop_with_stdin {
        gradient_runtime::shutdown::with_stdin(stop.clone());
    }
    let health = Health::default();
    let listener = gradient_runtime::http::bind(args.http).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let Some(broker) = connect(&args, &stop).await? else { return Ok(()) };
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let mut router = Router::new();
    if args.runs(Service::Cache) {
        let cache = open_cache(&args)?;
        router = router.merge(gradient_cache::router(cache.clone()));
        let stop = stop.clone();
        tasks.spawn(async move {
            stop.run_until_cancelled(cache.keep_sweeping()).await;
            Ok(())
        });
        health.good("cache", "open");
    }
    if args.runs(Service::Scheduler) {
        broker.ensure_streams(&stream_limits(&args)).await?;
    }
    let position = if args.runs(Service::Projector) {
        Some(start_projector(&args, &broker, &health, &stop, &mut tasks).await?)
    } else {
        None
    };
    if args.runs(Service::Api) {
        let state = api_state(&args, &broker, position, &stop)?;
        router = router.merge(gradient_api::router(state.clone()));
        let stop = stop.clone();
        tasks.spawn(async move {
            gradient_api::sweep_keys(state, stop).await;
            Ok(())
        });
    }
    if args.runs(Service::Scheduler) {
        let settings = scheduler_settings(&args)?;
        tasks.spawn(gradient_scheduler::run(
            broker.clone(),
            settings,
            health.clone(),
            stop.clone(),
        ));
    }
    tasks.spawn(gradient_runtime::http::serve(listener, router, health, stop.clone()));
    if let Some(file) = &args.ready_file {
        write_ready(file, &format!("http://{address}\n"))?;
    }
    tracing::info!(%address, "ready");
    let ended = tasks.join_next().await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    match ended {
        Some(Ok(result)) => result,
        Some(Err(error)) => Err(error).context("a service panicked: a fault of ours"),
        None => Ok(()),
    }
}

/// Written aside and renamed: whoever waits for the file reads it whole.
fn write_ready(file: &Path, text: &str) -> anyhow::Result<()> {
    let aside = file.with_extension("new");
    std::fs::write(&aside, text)
        .and_then(|()| std::fs::rename(&aside, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Connects, and tries again for a while; `None` if the server is stopped meanwhile. A NATS server
/// that is too old or lacks JetStream is no matter of waiting.
async fn connect(args: &ServerArgs, stop: &CancellationToken) -> anyhow::Result<Option<Broker>> {
    let token =
        secret::read_optional(args.nats_token_file.as_deref(), "the token for the NATS server")?;
    let settings =
        ConnectSettings { url: args.nats_url.clone(), token, name: "gradient-server".into() };
    Ok(connect_to(&settings, stop).await?)
}

async fn connect_to(
    settings: &ConnectSettings,
    stop: &CancellationToken,
) -> Result<Option<Broker>, ConnectError> {
    let started = tokio::time::Instant::now();
    loop {
        match stop.run_until_cancelled(Broker::connect(settings)).await {
            None => return Ok(None),
            Some(Ok(broker)) => return Ok(Some(broker)),
            Some(Err(error @ ConnectError::Connect { .. }))
                if started.elapsed() < CONNECT_TIMEOUT =>
            {
                tracing::debug!(%error, "the NATS server does not answer yet");
            }
            Some(Err(error)) => return Err(error),
        }
        if stop.run_until_cancelled(tokio::time::sleep(CONNECT_PAUSE)).await.is_none() {
            return Ok(None);
        }
    }
}

/// What a projector in this process tells of its position.
struct Positions {
    position: watch::Receiver<u64>,
    head: watch::Receiver<Option<u64>>,
}

async fn start_projector(
    args: &ServerArgs,
    broker: &Broker,
    health: &Health,
    stop: &CancellationToken,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<Positions> {
    let database = Database::new(&args.database_url).context("--database-url cannot be used")?;
    wait_for_database(&database, stop).await?;
    database.migrate().await.context("the tables cannot be made")?;
    let projector = Projector::new(database, ProjectorSettings::default(), health.clone());
    let positions = Positions { position: projector.position(), head: projector.head() };
    let (log, stop) = (broker.log(), stop.clone());
    tasks.spawn(async move { Ok(projector.run(log, stop).await?) });
    Ok(positions)
}

async fn wait_for_database(database: &Database, stop: &CancellationToken) -> anyhow::Result<()> {
    let started = tokio::time::Instant::now();
    loop {
        match database.ping().await {
            Ok(()) => return Ok(()),
            Err(error) if started.elapsed() < CONNECT_TIMEOUT && !stop.is_cancelled() => {
                tracing::debug!(%error, "the database does not answer yet");
                tokio::time::sleep(CONNECT_PAUSE).await;
            }
            Err(error) => return Err(error).context("the database does not answer"),
        }
    }
}

fn api_state(
    args: &ServerArgs,
    broker: &Broker,
    positions: Option<Positions>,
    stop: &CancellationToken,
) -> anyhow::Result<ApiState> {
    let token = secret::read(args.api_token_file.as_deref(), "the users' token")?;
    anyhow::ensure!(!token.is_empty(), "the users' token is empty");
    let database = Database::new(&args.database_url).context("--database-url cannot be used")?;
    // Without the secret no worker can be told from others, so no keys are kept.
    let secret =
        secret::read_optional(args.upload_secret_file.as_deref(), "the secret for upload tokens")?;
    let settings = ApiSettings {
        token,
        key_dir: secret.as_ref().map(|_| args.key_dir.clone()),
        assignment_of: Arc::new(move |text| {
            let token = verify(secret.as_ref()?.as_bytes(), now_ms(), text).ok()?;
            token.assignment.parse().ok()
        }),
    };
    Ok(match positions {
        Some(Positions { position, head }) => {
            ApiState::new(settings, database, broker.inbox(), position).with_head(head)
        }
        None => {
            let position = gradient_postgres::follow(database.clone(), stop.clone());
            ApiState::new(settings, database, broker.inbox(), position)
        }
    })
}

/// Drops all tables and folds the log into new ones.
pub(crate) async fn rebuild(args: &ServerArgs, digest: bool) -> anyhow::Result<()> {
    // Signals end this command as they end any other; nothing has to be put in order.
    let never = CancellationToken::new();
    let Some(broker) = connect(args, &never).await? else { return Ok(()) };
    let database = Database::new(&args.database_url).context("--database-url cannot be used")?;
    let position = gradient_postgres::rebuild(&broker.log(), &database, |progress| {
        tracing::info!(position = progress.position, target = progress.target, "folding");
    })
    .await
    .context("the tables cannot be rebuilt; the old ones stay")?;
    println!("rebuilt up to message {position}");
    if digest { print_digest(args).await } else { Ok(()) }
}

/// Prints a digest of every table.
pub(crate) async fn print_digest(args: &ServerArgs) -> anyhow::Result<()> {
    let database = Database::new(&args.database_url).context("--database-url cannot be used")?;
    let digest = gradient_postgres::digest(&database).await.context("the tables cannot be read")?;
    for (table, found) in &digest.tables {
        println!("{:<24} {:>9} rows  {}", table, found.rows, found.digest);
    }
    println!("{:<24} {:>9}       {}", "total", format!("at {}", digest.position), digest.total);
    Ok(())
}

fn open_cache(args: &ServerArgs) -> anyhow::Result<CacheState> {
    let upload_secret = upload_secret(args)?;
    let mut settings = CacheSettings::new(&args.cache_dir, &args.cache_key_name, upload_secret);
    settings.cluster_token =
        Some(secret::read(args.api_token_file.as_deref(), "the users' token")?);
    settings.eval_cache_total_max_bytes = args.eval_cache_max_total_bytes;
    CacheState::open(settings).context("the cache cannot be opened")
}

fn upload_secret(args: &ServerArgs) -> anyhow::Result<Vec<u8>> {
    Ok(secret::read(args.upload_secret_file.as_deref(), "the secret for upload tokens")?
        .into_bytes())
}

fn stream_limits(args: &ServerArgs) -> StreamLimits {
    StreamLimits { replicas: args.nats_replicas, ..StreamLimits::default() }
}

fn scheduler_settings(args: &ServerArgs) -> anyhow::Result<SchedulerSettings> {
    if !gradient_scheduler::policy_exists(&args.scoring_policy) {
        tracing::warn!(policy = args.scoring_policy, "no such scoring policy; `simple` is taken");
    }
    let core = Settings {
        policy: args.scoring_policy.clone(),
        build_max_attempts: args.build_max_attempts.max(1),
        build_retry_backoff_ms: args.build_retry_backoff_secs.saturating_mul(1_000),
        build_timeout_secs: args.build_default_timeout_secs,
        build_max_silent_secs: args.build_default_max_silent_secs,
        ..Settings::default()
    };
    let upload_secret = upload_secret(args)?;
    let mint_token: MintToken = Arc::new(move |job, assignment| {
        let token = UploadToken {
            job: job.to_string(),
            assignment: assignment.to_string(),
            expires_at_ms: now_ms() + TOKEN_VALID_MS,
            scope: Scope::Upload,
        };
        mint(&upload_secret, &token)
    });
    let heartbeat_timeout = Duration::from_secs(args.worker_heartbeat_timeout_secs);
    Ok(SchedulerSettings { core, heartbeat_timeout, mint_token, streams: stream_limits(args) })
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn settings(url: String) -> ConnectSettings {
        ConnectSettings { url, token: None, name: "test".into() }
    }

    /// Answers like a server of this version that says nothing more.
    async fn old_server(listener: TcpListener) {
        const INFO: &[u8] = b"INFO {\"server_id\":\"x\",\"server_name\":\"x\",\"version\":\"2.9.1\",\
            \"go\":\"go\",\"host\":\"127.0.0.1\",\"port\":1,\"headers\":true,\"max_payload\":1048576,\
            \"proto\":1}\r\n";
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = connection.write_all(INFO).await;
                let mut said = [0; 4096];
                while connection.read(&mut said).await.is_ok_and(|bytes| bytes > 0) {
                    let _ = connection.write_all(b"PONG\r\n").await;
                }
            });
        }
    }

    #[tokio::test]
    async fn an_old_server_is_refused_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("nats://{}", listener.local_addr().expect("bound"));
        tokio::spawn(old_server(listener));
        let (settings, stop) = (settings(url), CancellationToken::new());
        let connected = tokio::time::timeout(CONNECT_TIMEOUT / 3, connect_to(&settings, &stop));
        let refused = connected.await.expect("it does not wait").expect_err("too old");
        assert!(matches!(refused, ConnectError::TooOld { .. }), "{refused:?}");
    }

    #[tokio::test]
    async fn a_stop_ends_the_wait_for_a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("nats://{}", listener.local_addr().expect("bound"));
        drop(listener);
        let stop = CancellationToken::new();
        let (settings, cancel) = (settings(url), stop.clone());
        let wait = connect_to(&settings, &stop);
        let stopped = async move { cancel.cancel() };
        let (connected, ()) = tokio::join!(wait, stopped);
        assert!(connected.expect("no failure").is_none());
    }
}
