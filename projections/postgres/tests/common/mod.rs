//! One private PostgreSQL per test binary and a database per test; real histories of the scheduler.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test binary uses its part"
)]

pub mod compare;
pub mod history;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gradient_events::{Entry, EntryBatch};
use gradient_log::EventLog;
use gradient_postgres::local::{LocalPostgres, LocalPostgresSettings};
use gradient_postgres::{Database, Projector, ProjectorError, ProjectorSettings};
use gradient_runtime::health::Health;
use gradient_runtime::shutdown::CancellationToken;
use tokio::sync::OnceCell;

/// Longest wait for a condition.
pub const LIMIT: Duration = Duration::from_secs(60);

static SERVER: OnceCell<LocalPostgres> = OnceCell::const_new();

pub fn bin_dir() -> Option<PathBuf> {
    std::env::var_os("GRADIENT_POSTGRES_BIN").map(PathBuf::from)
}

fn prefix() -> PathBuf {
    std::env::temp_dir().join("gradient-test-postgres-")
}

/// Folders of test runs that are over.
fn sweep() {
    let prefix = prefix();
    let (parent, name) = (prefix.parent().unwrap(), prefix.file_name().unwrap().to_str().unwrap());
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let pid = file_name.to_str().and_then(|found| found.strip_prefix(name));
        let is_over = pid.is_some_and(|pid| {
            let pid = pid.split('-').next().unwrap_or_default();
            !Path::new("/proc").join(pid).exists()
        });
        if is_over {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A server of its own, for a test that kills it.
pub async fn own_server(name: &str) -> (LocalPostgresSettings, LocalPostgres) {
    sweep();
    let dir = PathBuf::from(format!("{}{}-{name}", prefix().display(), std::process::id()));
    let settings = LocalPostgresSettings {
        bin_dir: bin_dir(),
        dir,
        socket_dir: None,
        log_file: None,
        durable: false,
    };
    let server = LocalPostgres::start(&settings).await;
    let server = server.unwrap_or_else(|error| panic!("PostgreSQL does not start: {error}"));
    (settings, server)
}

/// A fresh database on the server of this test binary.
pub async fn database(name: &str) -> Database {
    let url = database_url(name).await;
    Database::new(&url).expect("a good address")
}

pub async fn database_url(name: &str) -> String {
    let server = SERVER.get_or_init(|| async { own_server("shared").await.1 }).await;
    let admin = client(server.url()).await;
    admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    server.url().replace("dbname=gradient", &format!("dbname={name}"))
}

pub async fn client(url: &str) -> tokio_postgres::Client {
    let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("PostgreSQL accepts connections");
    tokio::spawn(connection);
    client
}

/// A client that sees the read models.
pub async fn reader(url: &str) -> tokio_postgres::Client {
    let client = client(url).await;
    client.batch_execute("SET search_path = gradient").await.unwrap();
    client
}

/// Appends a history, some entries to a message.
pub async fn append(log: &impl EventLog, entries: &[Entry], per_message: usize) -> u64 {
    let mut last = log.last_sequence().await.expect("readable");
    for chunk in entries.chunks(per_message) {
        let batch = EntryBatch { entries: chunk.to_vec() };
        last = log.append(last, uuid::Uuid::now_v7(), &batch).await.expect("appended");
    }
    last
}

/// A projector that runs as a task.
pub struct Running {
    pub position: tokio::sync::watch::Receiver<u64>,
    pub health: Health,
    pub stop: CancellationToken,
    pub task: tokio::task::JoinHandle<Result<(), ProjectorError>>,
}

impl Running {
    pub fn start(database: &Database, log: impl EventLog, settings: ProjectorSettings) -> Self {
        let health = Health::default();
        let projector = Projector::new(database.clone(), settings, health.clone());
        let (position, stop) = (projector.position(), CancellationToken::new());
        let token = stop.clone();
        let task = tokio::spawn(async move { projector.run(log, token).await });
        Self { position, health, stop, task }
    }

    pub async fn reach(&mut self, position: u64) {
        let started = std::time::Instant::now();
        while *self.position.borrow_and_update() < position {
            let changed = tokio::time::timeout(Duration::from_millis(200), self.position.changed());
            let _ = changed.await;
            let (health, at) = (format!("{:?}", self.health), *self.position.borrow());
            assert!(
                at >= position || (started.elapsed() < LIMIT && !health.contains("stuck")),
                "the projector is at {at}, not at {position}: {health}"
            );
        }
    }

    pub async fn stop(self) -> Result<(), ProjectorError> {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.task).await.expect("it stops").expect("it does not panic")
    }
}

/// Projects a whole log with default settings.
pub async fn project_all(database: &Database, log: &impl EventLog) {
    let last = log.last_sequence().await.expect("readable");
    let mut running = Running::start(database, log.clone(), ProjectorSettings::default());
    running.reach(last).await;
    running.stop().await.expect("it was not stuck");
}

/// Waits for a condition.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waited = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waited).await.is_ok(), "never happened: {what}");
}
