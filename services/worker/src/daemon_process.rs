//! A Nix daemon of one's own: private store, private socket, watched and restarted.
//!
//! The daemon runs in a process group of its own under a shell that waits for the end of its
//! standard input. Only this process has the other end, so the group is killed however this process
//! ends, even by `SIGKILL`; no signal has to be delivered and no thread has to stay alive for it.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gradient_daemon::{ClientOptions, Connection, Pool};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

mod processes;

/// Longest path of a socket that is used, in bytes; the system's limit is 107, and Nix needs a
/// little more for itself.
const SOCKET_LEN_MAX: usize = 100;

/// Time that a daemon has to answer its first handshake.
const START_MAX: Duration = Duration::from_secs(30);
/// Time that a daemon has to end by itself.
const STOP_MAX: Duration = Duration::from_secs(3);
/// Pause before a daemon that died is started again; doubled up to the second.
const RESTART_PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// The shell that guards the daemon: when standard input ends, the whole group dies.
const GUARD: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
daemon=$!
{ read -r _ <&3; kill -KILL 0; } &
watcher=$!
wait "$daemon"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"
"#;

/// How builders are kept apart from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sandbox {
    /// In a sandbox, or not at all. A store below another root needs it.
    #[default]
    Required,
    /// In a sandbox where the kernel allows one.
    IfPossible,
    /// Without; for tests on machines that allow no sandbox.
    Off,
}

/// Settings of a private daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSettings {
    /// Folder of Nix's programs.
    pub nix_bin_dir: PathBuf,
    /// Folder for the socket (`d.sock`), the store (`root`) and the daemon's own log (`daemon.log`).
    pub base_dir: PathBuf,
    /// Keys whose signatures are trusted, `name:base64`.
    pub trusted_public_keys: Vec<String>,
    /// System features of the builds.
    pub system_features: Vec<String>,
    /// Further systems that this machine builds for.
    pub extra_platforms: Vec<String>,
    /// Builds at the same time.
    pub max_jobs: u32,
    /// A static shell that builders find as `/bin/sh`.
    pub sandbox_shell: Option<PathBuf>,
    /// How builders are kept apart.
    pub sandbox: Sandbox,
    /// Whether even this process is not trusted (tests of the way without trust).
    pub force_untrusted: bool,
}

impl DaemonSettings {
    /// Settings for a daemon below `base_dir` with the programs in `nix_bin_dir`: one job, sandbox
    /// required, `/bin/busybox` as the builders' shell.
    #[must_use]
    pub fn new(nix_bin_dir: impl Into<PathBuf>, base_dir: impl Into<PathBuf>) -> Self {
        DaemonSettings {
            nix_bin_dir: nix_bin_dir.into(),
            base_dir: base_dir.into(),
            trusted_public_keys: Vec::new(),
            system_features: Vec::new(),
            extra_platforms: Vec::new(),
            max_jobs: 1,
            sandbox_shell: Some("/bin/busybox".into()),
            sandbox: Sandbox::default(),
            force_untrusted: false,
        }
    }

    fn socket(&self) -> PathBuf {
        self.base_dir.join("d.sock")
    }

    fn root(&self) -> PathBuf {
        self.base_dir.join("root")
    }

    /// The text of `NIX_CONFIG`.
    fn config(&self) -> String {
        let (sandbox, fallback) = match self.sandbox {
            Sandbox::Required => ("true", "false"),
            Sandbox::IfPossible => ("true", "true"),
            Sandbox::Off => ("false", "true"),
        };
        let mut lines = vec![
            format!("sandbox = {sandbox}"),
            format!("sandbox-fallback = {fallback}"),
            "build-users-group =".into(),
            "substitute = false".into(),
            "substituters =".into(),
            "builders =".into(),
            format!("trusted-public-keys = {}", self.trusted_public_keys.join(" ")),
            format!("system-features = {}", self.system_features.join(" ")),
            format!("extra-platforms = {}", self.extra_platforms.join(" ")),
            format!("max-jobs = {}", self.max_jobs),
            "experimental-features = nix-command flakes daemon-trust-override".into(),
            "keep-build-log = false".into(),
        ];
        if let Some(shell) = &self.sandbox_shell {
            lines.push(format!("sandbox-paths = /bin/sh={}", shell.display()));
        }
        lines.join("\n") + "\n"
    }
}

/// Why a private daemon cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonProcessError {
    /// The socket's path is too long for the system.
    #[error(
        "the socket path {path} has {length} bytes, at most {SOCKET_LEN_MAX} fit; \
         choose a shorter base directory"
    )]
    SocketTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// Nix or the builders' shell is not there.
    #[error("{path} is missing; {advice}")]
    Missing {
        /// What is missing.
        path: PathBuf,
        /// What to do about it.
        advice: &'static str,
    },
    /// A setting holds what would become another setting.
    #[error("the setting {name} may hold no line break")]
    Setting {
        /// The name of the setting.
        name: &'static str,
    },
    /// A file cannot be made or a program cannot be started.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It did not answer in time.
    #[error("the daemon did not answer within {START_MAX:?}: {reason}; see {log}")]
    Silent {
        /// The last answer.
        reason: String,
        /// Where it writes its own messages.
        log: PathBuf,
    },
}

/// A running private daemon. Stop it with [`DaemonProcess::stop`]; dropped, it is killed.
#[derive(Debug)]
pub struct DaemonProcess {
    settings: DaemonSettings,
    stop: CancellationToken,
    watcher: Option<JoinHandle<()>>,
    group: Arc<AtomicU32>,
    restarts: Arc<AtomicU32>,
}

impl DaemonProcess {
    /// Starts the daemon and waits until it answers a handshake.
    ///
    /// # Errors
    /// If something is missing, the socket's path is too long, or the daemon does not answer
    /// within 30 s.
    pub async fn start(settings: DaemonSettings) -> Result<Self, DaemonProcessError> {
        check(&settings)?;
        let made = std::fs::create_dir_all(&settings.base_dir);
        made.map_err(at(&settings.base_dir))?;
        let group = Arc::new(AtomicU32::new(0));
        let restarts = Arc::new(AtomicU32::new(0));
        let guarded = spawn(&settings, &group)?;
        let stop = CancellationToken::new();
        let watcher = tokio::spawn(watch_over(
            settings.clone(),
            guarded,
            stop.clone(),
            Arc::clone(&group),
            Arc::clone(&restarts),
        ));
        let process = DaemonProcess { settings, stop, watcher: Some(watcher), group, restarts };
        match answers(&process.settings.socket(), START_MAX).await {
            Ok(()) => Ok(process),
            Err(reason) => {
                let log = process.settings.base_dir.join("daemon.log");
                process.stop().await;
                Err(DaemonProcessError::Silent { reason, log })
            }
        }
    }

    /// The daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.settings.socket()
    }

    /// The folder below which `/nix/store` of this store really is.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.settings.root()
    }

    /// The store as Nix's programs name it.
    #[must_use]
    pub fn store_uri(&self) -> String {
        format!("unix://{}?root={}", self.socket().display(), self.root().display())
    }

    /// A pool of connections to it.
    #[must_use]
    pub fn pool(&self, connections_max: usize) -> Pool {
        Pool::new(self.socket(), ClientOptions::default(), connections_max)
    }

    /// How often it died and was started again.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Stops the daemon, its workers and their builders.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.await; // it has nothing to tell
        }
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            watcher.abort();
            processes::kill_all(self.group.load(Ordering::Relaxed));
        }
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> DaemonProcessError + '_ {
    move |source| DaemonProcessError::File { path: path.to_owned(), source }
}

fn check(settings: &DaemonSettings) -> Result<(), DaemonProcessError> {
    let path = settings.socket();
    let length = path.as_os_str().as_bytes().len();
    if length > SOCKET_LEN_MAX {
        return Err(DaemonProcessError::SocketTooLong { path, length });
    }
    let program = settings.nix_bin_dir.join("nix-daemon");
    if !program.exists() {
        let advice = "run setup.sh, or set GRADIENT_NIX_PREFIX to a prefix with Nix";
        return Err(DaemonProcessError::Missing { path: program, advice });
    }
    if let Some(shell) = settings.sandbox_shell.as_ref().filter(|shell| !shell.exists()) {
        let advice = "install a static busybox (Debian: busybox-static)";
        return Err(DaemonProcessError::Missing { path: shell.clone(), advice });
    }
    let lists = [
        ("trusted_public_keys", &settings.trusted_public_keys),
        ("system_features", &settings.system_features),
        ("extra_platforms", &settings.extra_platforms),
    ];
    for (name, list) in lists {
        if list.iter().any(|item| item.contains(['\n', '\r'])) {
            return Err(DaemonProcessError::Setting { name });
        }
    }
    Ok(())
}

/// The guard, and the input whose end it waits for (waiting for a child would close it).
struct Guarded {
    child: Child,
    lifeline: Option<ChildStdin>,
}

fn spawn(settings: &DaemonSettings, group: &AtomicU32) -> Result<Guarded, DaemonProcessError> {
    let log = settings.base_dir.join("daemon.log");
    let log_file = std::fs::File::create(&log).map_err(at(&log))?;
    let program = settings.nix_bin_dir.join("nix-daemon");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", GUARD, "nix-daemon-guard"]).arg(&program);
    command.arg("--store").arg(settings.root());
    if settings.force_untrusted {
        command.arg("--force-untrusted");
    }
    command
        .env("NIX_DAEMON_SOCKET_PATH", settings.socket())
        .env("NIX_CONFIG", settings.config())
        .env("NIX_USER_CONF_FILES", "/dev/null")
        .env("HOME", &settings.base_dir)
        .env_remove("NIX_REMOTE")
        .env_remove("NIX_STORE")
        .env_remove("NIX_PATH")
        .current_dir(&settings.base_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log_file)
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(at(&program))?;
    group.store(child.id().unwrap_or(0), Ordering::Relaxed);
    let lifeline = child.stdin.take();
    Ok(Guarded { child, lifeline })
}

/// Waits for the daemon's end, again and again, until it shall stop.
async fn watch_over(
    settings: DaemonSettings,
    mut guarded: Guarded,
    stop: CancellationToken,
    group: Arc<AtomicU32>,
    restarts: Arc<AtomicU32>,
) {
    let mut pause = RESTART_PAUSE.0;
    loop {
        let started = Instant::now();
        tokio::select! {
            () = stop.cancelled() => {
                end(guarded, group.load(Ordering::Relaxed)).await;
                return;
            }
            status = guarded.child.wait() => {
                let status = status.map_or_else(|e| e.to_string(), |s| s.to_string());
                tracing::error!(%status, "the Nix daemon died; starting it again");
            }
        }
        processes::kill_all(group.load(Ordering::Relaxed));
        if started.elapsed() > RESTART_PAUSE.1 {
            pause = RESTART_PAUSE.0;
        }
        guarded = loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(RESTART_PAUSE.1);
            match spawn(&settings, &group) {
                Ok(started) => break started,
                Err(error) => tracing::error!(%error, "the Nix daemon cannot be started"),
            }
        };
        restarts.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the guard, the daemon and everything they started.
async fn end(guarded: Guarded, group: u32) {
    let Guarded { mut child, lifeline } = guarded;
    let all = processes::tree(group);
    drop(lifeline); // the guard kills its group
    if tokio::time::timeout(STOP_MAX, child.wait()).await.is_err() {
        tracing::warn!("the Nix daemon's guard did not end; killing it");
    }
    processes::kill(&all);
    processes::kill_all(group);
    let _ = child.wait().await; // it is dead
}

/// Waits until a handshake succeeds; the last error if none does.
async fn answers(socket: &Path, limit: Duration) -> Result<(), String> {
    let (started, options) = (Instant::now(), ClientOptions::default());
    loop {
        let attempt = Connection::open(socket, &options);
        let error = match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it accepts connections and says nothing".to_owned(),
        };
        if started.elapsed() > limit {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_work_is_told_before() {
        let long = DaemonSettings::new("/bin", format!("/tmp/{}", "x".repeat(100)));
        let error = DaemonProcess::start(long).await.expect_err("too long");
        assert!(error.to_string().contains("shorter base directory"), "{error}");
        let missing = DaemonSettings::new("/nonexistent", "/tmp");
        let error = DaemonProcess::start(missing).await.expect_err("missing");
        assert!(error.to_string().contains("setup.sh"), "{error}");
    }

    #[test]
    fn settings_stand_on_their_own_lines() {
        let mut settings = DaemonSettings::new("/n", "/b");
        settings.trusted_public_keys = vec!["a:b".into(), "c:d".into()];
        let config = settings.config();
        for line in ["sandbox = true", "trusted-public-keys = a:b c:d", "max-jobs = 1"] {
            assert!(config.lines().any(|l| l == line), "{line} in {config}");
        }
    }
}
