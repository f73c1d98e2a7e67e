//! One subprocess: started with a clean environment, greeted, asked one thing at a time, and killed
//! when its handle goes.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gradient_domain::AttrPath;
use gradient_ipc::codec::{self, EVAL_IPC_VERSION, FrameError, HEADER_LEN, Message};
use gradient_ipc::discovery::Crash;
use gradient_ipc::marks::Marks;
use gradient_ipc::message::{
    BuildDone, Request, Response, Source, Start, Stats, real_store_dir, with_store_names,
};
use gradient_ipc::warnings::warning_blocks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::memory::{Guard, Listed};
use crate::process::{KillSwitch, Spawner, supervise};
use crate::settings::{PoolSettings, SUBPROCESS_ARGUMENT};
use crate::stderr::StderrLog;

/// How long to wait for the exit status of a child that closed its pipe.
const EXIT_WAIT: Duration = Duration::from_secs(2);
/// How long a child may take to end after `Shutdown`.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);
/// How long a child may take to load Nix and open the store.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long an idle child may take to say that it is there.
const PING_LIMIT: Duration = Duration::from_secs(5);
const MIB: u64 = 1024 * 1024;

/// Why there is no subprocess.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program does not start.
    #[error("cannot start the evaluator '{exe}'")]
    Start {
        /// The program.
        exe: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nothing came in time.
    #[error("eval worker sent no version within {seconds} s")]
    NoGreeting {
        /// The wait.
        seconds: u64,
    },
    /// The program speaks another version.
    #[error(
        "eval worker IPC version mismatch: parent {EVAL_IPC_VERSION}, subprocess {version} \
         (binary replaced mid-run?)"
    )]
    Version {
        /// The byte that came.
        version: u8,
    },
    /// It ended, or did not answer, before it was ready.
    #[error("{cause}")]
    Ended {
        /// How.
        cause: String,
    },
    /// Nix cannot be loaded, or the store not opened.
    #[error("evaluator not initialized: {message}")]
    NotInitialized {
        /// What the child said.
        message: String,
    },
}

/// A response with what came beside it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response,
    pub(crate) stats: Option<Stats>,
    pub(crate) warnings: Vec<Warning>,
}

/// Something that Nix warned of, and where.
#[derive(Debug)]
pub(crate) struct Warning {
    pub(crate) path: Option<AttrPath>,
    pub(crate) text: String,
}

/// A running subprocess that has said hello.
pub(crate) struct Transport {
    pid: u32,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: Arc<StderrLog>,
    drain: JoinHandle<()>,
    switch: Arc<KillSwitch>,
    exit: watch::Receiver<Option<ExitStatus>>,
    requests: u64,
    /// The limit of memory that is in force in the middle of a call, in bytes.
    rss_limit: u64,
    real_store_dir: Option<String>,
    guard: Arc<Guard>,
    pub(crate) listed: Listed,
    /// Version of Nix that it loaded.
    pub(crate) nix_version: String,
    /// What this child has open.
    pub(crate) warm: Option<Arc<Source>>,
}

impl Transport {
    /// Starts a subprocess and loads Nix in it.
    pub(crate) async fn open(
        settings: &PoolSettings,
        spawner: &Spawner,
        guard: &Arc<Guard>,
        id: u64,
    ) -> Result<Transport, SpawnError> {
        // Nothing that the child evaluates learns of this: it travels in a frame only.
        let nonce = format!("{:032x}", rand::random::<u128>());
        let mut transport = Self::spawn(settings, spawner, guard, id, &nonce).await?;
        let start = Request::Start(Start {
            nix_lib_dir: settings.nix_lib_dir.as_ref().map(|dir| dir.display().to_string()),
            store_uri: settings.store_uri.clone(),
            show_trace: settings.show_trace,
            nonce,
        });
        let greeted =
            tokio::time::timeout(settings.greeting_limit, transport.stdout.read_u8()).await;
        match greeted {
            Err(_elapsed) => {
                let seconds = settings.greeting_limit.as_secs();
                return Err(SpawnError::NoGreeting { seconds });
            }
            Ok(Err(_closed)) => {
                let cause = transport.closed_pipe().await;
                return Err(SpawnError::Ended { cause });
            }
            Ok(Ok(EVAL_IPC_VERSION)) => {}
            Ok(Ok(version)) => return Err(SpawnError::Version { version }),
        }
        match transport.call(&start, START_LIMIT).await {
            Err(crash) => Err(SpawnError::Ended { cause: crash.cause }),
            Ok(Answer { response: Response::Started(started), .. }) => {
                tracing::debug!(
                    pid = transport.pid,
                    nix = started.nix_version,
                    "evaluator started"
                );
                transport.nix_version = started.nix_version;
                Ok(transport)
            }
            Ok(Answer { response: Response::Err(failure), .. }) => {
                Err(SpawnError::NotInitialized { message: failure.message })
            }
            Ok(answer) => Err(SpawnError::Ended { cause: unexpected(&answer.response) }),
        }
    }

    async fn spawn(
        settings: &PoolSettings,
        spawner: &Spawner,
        guard: &Arc<Guard>,
        id: u64,
        nonce: &str,
    ) -> Result<Transport, SpawnError> {
        let mut command = Command::new(&settings.exe);
        command
            .arg(SUBPROCESS_ARGUMENT)
            .env_clear()
            .envs(settings.child_environment(std::env::vars_os()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let failed = |source| {
            let exe = settings.exe.display().to_string();
            SpawnError::Start { exe, source }
        };
        let mut child = spawner.spawn(command).await.map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take(), child.id());
        let (Some(stdin), Some(stdout), Some(stderr), Some(pid)) = pipes else {
            return Err(failed(io::Error::other("it has no pipes")));
        };
        let log = StderrLog::new(Marks::new(nonce));
        let drain = tokio::spawn(log.clone().drain(stderr));
        let switch = KillSwitch::new();
        let (status, exit) = watch::channel(None);
        tokio::spawn(supervise(child, switch.clone(), status));
        Ok(Transport {
            pid,
            stdin,
            stdout,
            stderr: log,
            drain,
            listed: guard.register(id, pid, switch.clone()),
            switch,
            exit,
            requests: 0,
            rss_limit: settings.kill_rss_bytes.unwrap_or(settings.max_rss_bytes),
            real_store_dir: real_store_dir(&settings.store_uri),
            guard: guard.clone(),
            nix_version: String::new(),
            warm: None,
        })
    }

    /// Asks one thing. After an error the child is of no use.
    pub(crate) async fn call(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> Result<Answer, Crash> {
        let crashed = |cause| Crash { cause, timed_out: false };
        let frame = request.to_frame().map_err(|error| crashed(error.to_string()))?;
        self.requests += 1;
        // Should the child die before the next sample, this is what is known of its memory.
        self.measure();
        match tokio::time::timeout(limit, self.exchange(&frame, request.call())).await {
            Ok(Ok((response, stats))) => {
                let lines = self.stderr.take_until(self.requests).await;
                self.measure();
                let warnings = warning_blocks(lines)
                    .into_iter()
                    .map(|(about, text)| Warning {
                        path: about.map(Arc::unwrap_or_clone),
                        text: with_store_names(&text, self.real_store_dir.as_deref()),
                    })
                    .collect();
                Ok(Answer { response, stats, warnings })
            }
            Ok(Err(FrameError::Io(_) | FrameError::Torn)) => Err(crashed(self.closed_pipe().await)),
            Ok(Err(error)) => {
                let source = std::error::Error::source(&error);
                let detail = source.map(|source| format!(": {source}")).unwrap_or_default();
                let cause = format!("eval worker sent an undecodable response: {error}{detail}");
                self.switch.kill(cause.clone());
                Err(crashed(cause))
            }
            Err(_elapsed) => {
                self.measure();
                let cause =
                    format!("time limit of {} s{}", limit.as_secs_f64(), self.memory_words());
                self.switch.kill(cause.clone());
                Err(Crash { cause, timed_out: true })
            }
        }
    }

    async fn exchange(
        &mut self,
        frame: &[u8],
        call: &str,
    ) -> Result<(Response, Option<Stats>), FrameError> {
        self.stdin.write_all(frame).await?;
        let mut last_stats = None;
        loop {
            match self.read_response().await? {
                Response::Stats(stats) => {
                    self.switch.note_rss(stats.rss_peak_bytes.unwrap_or(0));
                    last_stats = Some(stats);
                }
                Response::NeedsBuild(_) => {
                    let error = format!("import from derivation is not available during {call}");
                    let answer = Request::BuildDone(BuildDone { error: Some(error) });
                    self.stdin.write_all(&answer.to_frame()?).await?;
                }
                response => return Ok((response, last_stats)),
            }
        }
    }

    async fn read_response(&mut self) -> Result<Response, FrameError> {
        let mut header = [0; HEADER_LEN];
        self.stdout.read_exact(&mut header).await?;
        let len = codec::payload_len(header)?;
        let mut payload = Vec::new();
        let mut limited = (&mut self.stdout).take(len as u64);
        limited.read_to_end(&mut payload).await?;
        if payload.len() < len {
            return Err(FrameError::Torn);
        }
        Response::from_payload(&payload)
    }

    /// Resident memory now, noted as a peak.
    pub(crate) fn measure(&mut self) -> u64 {
        let rss = self.guard.rss_bytes(self.pid).unwrap_or(0);
        self.switch.note_rss(rss);
        rss
    }

    /// Whether an idle child still answers.
    pub(crate) async fn is_alive(&mut self) -> bool {
        self.exit.borrow().is_none()
            && self.switch.reason().is_none()
            && matches!(
                self.call(&Request::Ping, PING_LIMIT).await,
                Ok(Answer { response: Response::Pong, .. })
            )
    }

    /// Lets an idle child end by itself.
    pub(crate) async fn shutdown(mut self) {
        let Ok(frame) = Request::Shutdown.to_frame() else {
            return;
        };
        if self.stdin.write_all(&frame).await.is_ok() {
            let ended = self.exit.wait_for(Option::is_some);
            let _ = tokio::time::timeout(SHUTDOWN_WAIT, ended).await;
        }
    }

    fn memory_words(&self) -> String {
        match self.switch.note_rss(0) {
            0 => String::new(),
            peak => format!(", peak memory {} MiB, limit {} MiB", peak / MIB, self.rss_limit / MIB),
        }
    }

    /// Words for a pipe that closed: the exit status, who killed it, what it said last.
    async fn closed_pipe(&mut self) -> String {
        let ended = self.exit.wait_for(Option::is_some);
        let status = match tokio::time::timeout(EXIT_WAIT, ended).await {
            Ok(Ok(status)) => (*status).map(|status| status.to_string()),
            Ok(Err(_)) | Err(_) => None,
        };
        let mut cause = match status {
            Some(status) => format!("eval worker closed pipe: {status}"),
            None => "eval worker closed pipe, but has not ended".to_owned(),
        };
        if let Some(reason) = self.switch.reason() {
            cause = format!("{cause}, {reason}");
        }
        let lines = self.stderr.take_until(u64::MAX).await;
        if lines.iter().any(|(_, line)| line.contains("has overflowed its stack")) {
            cause.push_str(", stack overflow (possible infinite recursion)");
        } else if let Some((_, last)) = lines.iter().rev().find(|(_, line)| !line.trim().is_empty())
        {
            let short: String = last.chars().take(200).collect();
            cause = format!("{cause}, last words: {short}");
        }
        cause + &self.memory_words()
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.switch.kill("no longer needed".to_owned());
        self.drain.abort();
    }
}

pub(crate) fn unexpected(response: &Response) -> String {
    format!("eval worker answered with an unexpected {}", response.kind())
}
