//! The pool: children are borrowed, tested, returned, and replaced.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gradient_ipc::memory::{self, must_recycle};
use gradient_ipc::message::Source;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};

use crate::memory::{Guard, Limits, MemoryProbe, Procfs, Turn};
use crate::process::Spawner;
use crate::settings::PoolSettings;
use crate::transport::{SpawnError, Transport};

/// A pool of evaluator subprocesses. Cheap to clone; the last clone takes the children with it.
#[derive(Clone)]
pub struct Pool {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: PoolSettings,
    spawner: Spawner,
    guard: Arc<Guard>,
    watch: AbortHandle,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Transport>>,
    started: AtomicU64,
    discoveries: AtomicUsize,
    pub(crate) nix_version: OnceLock<String>,
    asking: tokio::sync::Mutex<()>,
}

impl Pool {
    /// A pool without children yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the thread that starts the children cannot be started.
    pub fn new(settings: PoolSettings) -> io::Result<Pool> {
        Self::with_probe(settings, Box::new(Procfs))
    }

    /// As [`Pool::new`], with other numbers about memory.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with_probe(settings: PoolSettings, probe: Box<dyn MemoryProbe>) -> io::Result<Pool> {
        let limits = Limits {
            min_free: settings.min_free_ram_bytes,
            max_rss: settings.max_rss_bytes,
            kill_rss: settings.kill_rss_bytes,
        };
        let guard = Guard::new(probe, limits);
        let watch = tokio::spawn(guard.clone().watch()).abort_handle();
        let inner = Inner {
            spawner: Spawner::start()?,
            guard,
            watch,
            permits: Arc::new(Semaphore::new(settings.children.max(1))),
            idle: Mutex::default(),
            started: AtomicU64::new(0),
            discoveries: AtomicUsize::new(0),
            nix_version: OnceLock::new(),
            asking: tokio::sync::Mutex::default(),
            settings,
        };
        Ok(Pool { inner: Arc::new(inner) })
    }

    /// Whether the limits of all subprocesses together are more than three quarters of the machine's
    /// memory, so that fewer may work when they grow; `false` if that memory is not known.
    #[must_use]
    pub fn is_overcommitted(&self) -> bool {
        let settings = &self.inner.settings;
        self.inner.guard.total_bytes().is_some_and(|total| {
            memory::is_overcommitted(settings.children, settings.max_rss_bytes, total)
        })
    }

    /// How many subprocesses were started so far.
    #[must_use]
    pub fn children_started(&self) -> u64 {
        self.inner.started.load(Ordering::Relaxed)
    }

    /// How many subprocesses wait for work.
    #[must_use]
    pub fn children_idle(&self) -> usize {
        self.inner.idle().len()
    }

    /// Lets idle subprocesses end and refuses further work. Running evaluations end by their own
    /// cancellation.
    pub async fn shutdown(&self) {
        self.inner.permits.close();
        self.inner.release_idle().await;
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Vec<Transport>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all idle children together.
    pub(crate) async fn release_idle(&self) {
        let idle: Vec<_> = self.idle().drain(..).collect();
        let ending: JoinSet<()> = idle.into_iter().map(Transport::shutdown).collect();
        ending.join_all().await;
    }

    /// Notes that an evaluation runs, until the result is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Running {
        self.discoveries.fetch_add(1, Ordering::SeqCst);
        Running { inner: self.clone() }
    }

    /// Borrows a child, if possible one that has this source open. `None` after a shutdown.
    pub(crate) async fn checkout(
        self: &Arc<Self>,
        source: &Arc<Source>,
    ) -> Result<Option<Checkout>, SpawnError> {
        let Ok(permit) = self.permits.clone().acquire_owned().await else {
            return Ok(None);
        };
        let turn = self.guard.admit().await;
        let transport = loop {
            let Some(mut candidate) = self.take_idle(source) else {
                break self.open().await?;
            };
            if candidate.is_alive().await {
                break candidate;
            }
        };
        transport.listed.set_at_work(true);
        let inner = self.clone();
        Ok(Some(Checkout { transport, inner, _permit: permit, _turn: turn }))
    }

    pub(crate) async fn open(&self) -> Result<Transport, SpawnError> {
        let id = self.started.fetch_add(1, Ordering::Relaxed);
        let opened = Transport::open(&self.settings, &self.spawner, &self.guard, id).await?;
        self.nix_version.get_or_init(|| opened.nix_version.clone());
        Ok(opened)
    }

    /// Starts a child for its version of Nix, one for all who ask. It stays for the work that follows.
    pub(crate) async fn ask_version(&self) -> Result<String, SpawnError> {
        let _asking = self.asking.lock().await;
        if let Some(version) = self.nix_version.get() {
            return Ok(version.clone());
        }
        let _permit = self.permits.clone().acquire_owned().await.ok();
        let child = self.open().await?;
        let version = child.nix_version.clone();
        self.idle().push(child);
        Ok(version)
    }

    fn take_idle(&self, source: &Arc<Source>) -> Option<Transport> {
        let mut idle = self.idle();
        let warm = idle.iter().position(|child| child.warm.as_ref() == Some(source));
        match warm {
            Some(at) => Some(idle.swap_remove(at)),
            None => idle.pop(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// An evaluation that runs.
pub(crate) struct Running {
    inner: Arc<Inner>,
}

impl Running {
    /// Ends the evaluation; after the last one, idle children end too, and with them their heaps.
    pub(crate) async fn finish(self) {
        if self.inner.discoveries.load(Ordering::SeqCst) == 1 {
            self.inner.release_idle().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.inner.discoveries.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.inner.idle().clear();
        }
    }
}

/// A borrowed child. Dropped without [`Checkout::give_back`] it is killed: whoever was interrupted
/// in the middle of a call leaves a child that nobody can use.
pub(crate) struct Checkout {
    pub(crate) transport: Transport,
    inner: Arc<Inner>,
    _permit: OwnedSemaphorePermit,
    _turn: Turn,
}

impl Checkout {
    /// Returns the child, unless it has grown over its limit.
    pub(crate) fn give_back(self) {
        let Checkout { mut transport, inner, _permit, _turn } = self;
        let rss = transport.measure();
        if must_recycle(rss, inner.settings.max_rss_bytes, inner.settings.kill_rss_bytes) {
            let limit = inner.settings.max_rss_bytes;
            tracing::info!(rss, limit, "evaluator recycled");
            return;
        }
        transport.listed.set_at_work(false);
        inner.idle().push(transport);
    }
}
