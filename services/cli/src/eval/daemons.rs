//! A few connections to whoever manages the store: its daemon, or one that is started for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use gradient_daemon::{ClientOptions, Connection, Error};
use gradient_domain::StorePath;
use gradient_pool::{Known, KnownPaths};
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::store::Store;
use crate::exit::Failure;
use crate::up::programs;

/// Most connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 4;

/// Longest time of what needs nobody else than the daemon.
pub(super) const LOCAL_MAX: Duration = Duration::from_secs(60);

/// What the daemon answers, if it does so in time.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answered) => answered.map_err(Failure::unavailable),
        Err(_elapsed) => {
            let seconds = limit.as_secs();
            let text = format!("the Nix daemon did not answer within {seconds} s");
            Err(Failure::unavailable(anyhow::anyhow!(text)))
        }
    }
}

/// Connections to the manager of one store.
pub(super) struct Daemons {
    store: Arc<Store>,
    /// Settings of Nix, for a daemon of our own.
    settings: BTreeMap<String, String>,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Open>>,
}

struct Open {
    connection: Connection,
    /// A daemon of our own speaks over its standard input and output; it ends when we do.
    _process: Option<Child>,
}

/// A borrowed connection. Given back only if all went well with it.
pub(super) struct Borrowed<'a> {
    open: Open,
    daemons: &'a Daemons,
    _permit: OwnedSemaphorePermit,
}

impl Daemons {
    pub(super) fn new(store: Arc<Store>, settings: BTreeMap<String, String>) -> Daemons {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Daemons { store, settings, permits, idle: Mutex::default() }
    }

    /// Borrows a connection.
    pub(super) async fn get(&self) -> Result<Borrowed<'_>, Failure> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.context("the connections are closed")?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let open = match idle {
            Some(open) => open,
            None => self.open().await?,
        };
        Ok(Borrowed { open, daemons: self, _permit: permit })
    }

    async fn open(&self) -> Result<Open, Failure> {
        let options = ClientOptions { substitute: true, ..ClientOptions::default() };
        if let Some(socket) = self.store.socket() {
            let connection = within(LOCAL_MAX, Connection::open(&socket, &options)).await?;
            return Ok(Open { connection, _process: None });
        }
        let nix = programs::find_nix().context("nix is missing")?;
        let mut command = Command::new(nix.with_file_name("nix-daemon"));
        command.args(["--stdio", "--store", &self.store.uri, "--option", "build-users-group", ""]);
        for (name, value) in &self.settings {
            command.args(["--option", name, value]);
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("nix-daemon cannot be started")?;
        let pipes = process.stdout.take().zip(process.stdin.take());
        let (from, to) = pipes.context("nix-daemon has no pipes")?;
        let connection = within(LOCAL_MAX, Connection::over(from, to, &options)).await?;
        Ok(Open { connection, _process: Some(process) })
    }
}

/// What a store knows, asked at its daemon.
pub(super) struct AtDaemon(pub(super) Arc<Daemons>);

impl fmt::Debug for AtDaemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtDaemon").field(&self.0.store.uri).finish()
    }
}

impl KnownPaths for AtDaemon {
    fn known<'a>(&'a self, paths: &'a BTreeSet<StorePath>) -> Known<'a> {
        Box::pin(async move {
            let mut daemon = self.0.get().await.ok()?;
            let asked = daemon.connection().query_valid_paths(paths);
            let known = within(LOCAL_MAX, asked).await.ok()?;
            daemon.give_back();
            Some(known)
        })
    }
}

impl Borrowed<'_> {
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.open.connection
    }

    pub(super) fn give_back(self) {
        let mut idle = self.daemons.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(self.open);
    }
}
