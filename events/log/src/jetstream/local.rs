//! A `nats-server` child on loopback: for the local cluster and for tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

/// How long the server may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take to stop by itself before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// How to start the server.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// The program.
    pub program: PathBuf,
    /// Its state, made if it is missing.
    pub dir: PathBuf,
    /// Login token.
    pub token: String,
    /// Port on 127.0.0.1; `None` takes a free one.
    pub port: Option<u16>,
    /// Where its output goes; `None` throws it away.
    pub log_file: Option<PathBuf>,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A file or the program could not be used.
    #[error("{what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What happened.
        #[source]
        source: std::io::Error,
    },
    /// It ended while it was starting.
    #[error("nats-server ended while it was starting ({status}); its output: {output}")]
    Ended {
        /// How.
        status: String,
        /// The last lines it wrote.
        output: String,
    },
    /// It did not listen in time.
    #[error("nats-server did not listen within {} s", START_TIMEOUT.as_secs())]
    Timeout,
}

/// A running server. It dies with this value.
#[derive(Debug)]
pub struct LocalServer {
    child: Child,
    port: u16,
}

impl LocalServer {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// If it cannot be started, ends, or does not listen in time.
    pub async fn start(settings: &LocalSettings) -> Result<Self, LocalError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| LocalError::Io { what, path, source }
        };
        std::fs::create_dir_all(&settings.dir).map_err(io("cannot create", &settings.dir))?;
        let config = settings.dir.join("nats.conf");
        write_secret(&config, &config_text(settings)).map_err(io("cannot write", &config))?;
        let log = settings.dir.join("start.log");
        let log_path = settings.log_file.as_ref().unwrap_or(&log);
        let output = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log_path)
            .map_err(io("cannot write", log_path))?;
        let written_before = output.metadata().map_or(0, |meta| meta.len());
        let errors = output.try_clone().map_err(io("cannot write", log_path))?;
        let mut child = dying_with_us(&settings.program)
            .arg("-c")
            .arg(&config)
            .arg("--ports_file_dir")
            .arg(&settings.dir)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .map_err(io("cannot start", &settings.program))?;
        let pid = child.id().unwrap_or_default();
        let ports = settings.dir.join(format!("nats-server_{pid}.ports"));
        let started = tokio::time::Instant::now();
        loop {
            if let Some(port) = std::fs::read_to_string(&ports).ok().as_deref().and_then(port_of) {
                return Ok(Self { child, port });
            }
            if let Ok(Some(status)) = child.try_wait() {
                let output = tail(log_path, written_before);
                return Err(LocalError::Ended { status: status.to_string(), output });
            }
            if started.elapsed() > START_TIMEOUT {
                return Err(LocalError::Timeout);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// `nats://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it ends by itself.
    pub async fn wait(&mut self) -> std::io::Result<std::process::ExitStatus> {
        self.child.wait().await
    }

    /// Stops it and waits for its end; killed after 8 s.
    pub async fn stop(mut self) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid),
                nix::sys::signal::Signal::SIGTERM,
            );
        }
        if tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// The program: `$GRADIENT_NATS_SERVER`, the prefix of the set-up, then the search path.
#[must_use]
pub fn find_program(from_environment: Option<PathBuf>, prefix: &Path) -> Option<PathBuf> {
    if let Some(program) = from_environment {
        return Some(program);
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(prefix.join("bin"))
        .chain(std::env::split_paths(&search))
        .map(|folder| folder.join("nats-server"))
        .find(|program| program.is_file())
}

/// The program under `setpriv`, where there is one, so that the kernel ends it when we die.
fn dying_with_us(program: &Path) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if !Path::new(SETPRIV).is_file() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

fn config_text(settings: &LocalSettings) -> String {
    let port = settings.port.map_or(-1, i32::from);
    let store = settings.dir.join("jetstream");
    format!(
        "listen: \"127.0.0.1:{port}\"\n\
         max_payload: 1MB\n\
         ping_interval: \"15s\"\n\
         ping_max: 2\n\
         authorization {{ token: \"{}\" }}\n\
         jetstream {{ store_dir: \"{}\", sync_interval: 5s, max_memory_store: 256MB, max_file_store: 1TB }}\n",
        settings.token,
        store.display()
    )
}

/// Writes a file that only its owner reads.
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// The port in a ports file such as `{"nats":["nats://127.0.0.1:4222"]}`.
fn port_of(text: &str) -> Option<u16> {
    let after = text.split("nats://127.0.0.1:").nth(1)?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn tail(path: &Path, from: u64) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(text.len());
    let text = String::from_utf8_lossy(&text[from..]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_port_is_read_from_the_ports_file() {
        assert_eq!(super::port_of(r#"{"nats":["nats://127.0.0.1:34567"]}"#), Some(34567));
        assert_eq!(super::port_of(r#"{"nats":["#), None);
    }
}
