//! A few connections to one daemon, shared.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::Connection;
use crate::error::Error;
use crate::options::ClientOptions;

/// How long a daemon at which nobody listens is waited for: one that died is started again within
/// seconds.
const AWAY_MAX: Duration = Duration::from_secs(5);
/// Pause before the next look.
const AWAY_PAUSE: Duration = Duration::from_millis(100);

/// A pool of connections. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    options: ClientOptions,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    /// A pool of at most `connections_max` connections to the daemon at `socket`. Nothing is
    /// opened yet.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>, options: ClientOptions, connections_max: usize) -> Self {
        Pool {
            shared: Arc::new(Shared {
                socket: socket.into(),
                options,
                permits: Arc::new(Semaphore::new(connections_max.max(1))),
                idle: Mutex::default(),
            }),
        }
    }

    /// The daemon's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.shared.socket
    }

    /// A connection that is idle, or a new one; waits while all are in use.
    ///
    /// # Errors
    /// If a new connection cannot be opened; nobody listening is tried again for 5 s.
    pub async fn get(&self) -> Result<PooledConnection, Error> {
        let permit = self.permit().await;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.open(&self.shared.options).await?,
        };
        Ok(self.lend(connection, permit))
    }

    /// A connection of one's own with other options. It is neither counted nor kept: who holds one
    /// while others wait for the pool cannot block them.
    ///
    /// # Errors
    /// If it cannot be opened; nobody listening is tried again for 5 s.
    pub async fn dedicated(&self, options: &ClientOptions) -> Result<Connection, Error> {
        self.open(options).await
    }

    /// A daemon that is being started again is waited for.
    async fn open(&self, options: &ClientOptions) -> Result<Connection, Error> {
        let started = Instant::now();
        loop {
            match Connection::open(&self.shared.socket, options).await {
                Err(Error::Connect { .. }) if started.elapsed() < AWAY_MAX => {
                    tokio::time::sleep(AWAY_PAUSE).await;
                }
                opened => return opened,
            }
        }
    }

    /// Closes the idle connections, for instance because the daemon was restarted.
    pub fn close_idle(&self) {
        self.idle().clear();
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.shared.permits)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&self, connection: Connection, permit: OwnedSemaphorePermit) -> PooledConnection {
        PooledConnection { connection: Some(connection), pool: self.clone(), _permit: permit }
    }
}

/// A borrowed connection. It goes back when dropped, unless an operation on it was interrupted:
/// then it is closed, and the idle ones with it.
#[derive(Debug)]
pub struct PooledConnection {
    connection: Option<Connection>,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl Deref for PooledConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("taken only by drop")
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("taken only by drop")
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(connection) if connection.is_clean() => self.pool.idle().push(connection),
            // Perhaps the daemon died, and the idle ones with it; opening anew costs little.
            Some(_) => self.pool.close_idle(),
            None => {}
        }
    }
}
