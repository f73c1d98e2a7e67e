//! Starting processes and ending them, apart from what is said to them.

use std::io;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::{Child, Command};
use tokio::sync::{Notify, oneshot, watch};

/// Ends a child from anywhere, once, with a reason.
pub(crate) struct KillSwitch {
    reason: Mutex<Option<String>>,
    pulled: Notify,
    rss_peak: AtomicU64,
}

impl KillSwitch {
    pub(crate) fn new() -> Arc<KillSwitch> {
        Arc::new(KillSwitch {
            reason: Mutex::default(),
            pulled: Notify::new(),
            rss_peak: AtomicU64::new(0),
        })
    }

    /// Asks for SIGKILL. The first reason stays.
    pub(crate) fn kill(&self, reason: String) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.pulled.notify_one();
    }

    /// Notes resident memory that somebody saw; gives the most seen so far, in bytes.
    pub(crate) fn note_rss(&self, rss: u64) -> u64 {
        self.rss_peak.fetch_max(rss, Ordering::Relaxed).max(rss)
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct SpawnJob {
    command: Command,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// A thread that starts the children. A child ends with the *thread* that started it, so this must
/// be one that lives as long as the pool, which threads of the runtime do not promise.
pub(crate) struct Spawner {
    jobs: std_mpsc::Sender<SpawnJob>,
}

impl Spawner {
    /// Starts the thread. Must be called within a tokio runtime.
    pub(crate) fn start() -> io::Result<Spawner> {
        let (jobs, queue) = std_mpsc::channel::<SpawnJob>();
        let runtime = tokio::runtime::Handle::current();
        let serve = move || {
            let _context = runtime.enter();
            for mut job in queue {
                let _ = job.reply.send(job.command.spawn());
            }
        };
        std::thread::Builder::new().name("eval-spawner".to_owned()).spawn(serve)?;
        Ok(Spawner { jobs })
    }

    /// Starts a child.
    pub(crate) async fn spawn(&self, command: Command) -> io::Result<Child> {
        let (reply, child) = oneshot::channel();
        let gone = || io::Error::other("the spawner thread has ended");
        self.jobs.send(SpawnJob { command, reply }).map_err(|_| gone())?;
        child.await.map_err(|_| gone())?
    }
}

/// Waits for the end of the process, its own or the one asked for.
pub(crate) async fn supervise(
    mut child: Child,
    switch: Arc<KillSwitch>,
    exit: watch::Sender<Option<ExitStatus>>,
) {
    let early = tokio::select! {
        status = child.wait() => Some(status),
        () = switch.pulled.notified() => None,
    };
    let status = match early {
        Some(status) => status,
        None => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    exit.send_replace(status.ok());
}
