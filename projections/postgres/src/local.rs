//! A private PostgreSQL as a child process, for the local cluster and for tests: its own data
//! directory, a Unix socket and no port, an unprivileged user.
//!
//! This module starts and stops programs; it sends no SQL of its own but for the one line that makes
//! the database when the directory is new.

mod account;
mod child;
mod programs;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use account::Account;
use child::Child;
use programs::Programs;

/// Longest path of a Unix socket, in bytes (`sun_path` without its end).
const SOCKET_PATH_MAX: usize = 107;
/// Name of the socket that PostgreSQL makes in its directory.
const SOCKET_NAME: &str = ".s.PGSQL.5432";
/// How long a start may take; a crash recovery is part of it.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server may take to stop by itself before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);
/// How often is looked whether it accepts.
const POLL: Duration = Duration::from_millis(20);

/// How to start the server.
#[derive(Clone, Debug)]
pub struct LocalPostgresSettings {
    /// Folder of `postgres` and `initdb`; `None` takes the newest of `/usr/lib/postgresql/*/bin`, or
    /// else those on the search path.
    pub bin_dir: Option<PathBuf>,
    /// Its state, made if it is missing.
    pub dir: PathBuf,
    /// Folder of its socket; `None` takes `run` in `dir`. Give one if `dir` is a long path.
    pub socket_dir: Option<PathBuf>,
    /// Where its output goes; `None` takes `postgres.log` in `dir`.
    pub log_file: Option<PathBuf>,
    /// Whether writes reach the disk before they count. Off for tests only.
    pub durable: bool,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum LocalPostgresError {
    /// PostgreSQL is not installed.
    #[error(
        "PostgreSQL is missing: neither {looked_at} nor a folder of the search path holds both \
         `postgres` and `initdb`; run `make setup`, or install the package postgresql"
    )]
    Missing {
        /// Where it was looked for.
        looked_at: String,
    },
    /// Root may not run PostgreSQL, and there is nobody else to run it.
    #[error("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`")]
    NoUser,
    /// The user that runs it cannot come to its directory.
    #[error(
        "PostgreSQL runs as user {user}, who may not enter {folder} on the way to {dir}; choose another \
         data directory, such as one below /var/lib"
    )]
    NotPassable {
        /// The directory.
        dir: PathBuf,
        /// The folder that is closed.
        folder: PathBuf,
        /// The user.
        user: &'static str,
    },
    /// The path of the socket is too long for the system.
    #[error(
        "the socket {path} has {} bytes, Unix sockets allow {SOCKET_PATH_MAX}; choose a shorter data \
         directory", path.as_os_str().len()
    )]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The data was written by another major version.
    #[error(
        "{dir} was made by PostgreSQL {have}, but {bin_dir} is version {want}; install version {have}, or \
         remove the directory: every table is rebuilt from the log"
    )]
    OtherVersion {
        /// The data directory.
        dir: PathBuf,
        /// Its major version.
        have: String,
        /// Where the programs are.
        bin_dir: PathBuf,
        /// Their major version.
        want: String,
    },
    /// A file or program could not be used.
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
    /// A program ended with an error.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// Which.
        program: &'static str,
        /// How.
        status: String,
        /// The last lines it wrote.
        output: String,
    },
    /// It did not accept connections in time.
    #[error("PostgreSQL did not accept connections within {} s; see {log}", START_TIMEOUT.as_secs())]
    Timeout {
        /// Its output.
        log: PathBuf,
    },
}

impl LocalPostgresError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// A running server. It dies with this value, and with the process that holds it.
#[derive(Debug)]
pub struct LocalPostgres {
    child: Child,
    url: String,
    version: String,
}

impl LocalPostgres {
    /// Starts the server and waits until it accepts connections. A new directory is set up first.
    ///
    /// # Errors
    /// If PostgreSQL is missing, its version does not fit the data, or it does not start in time.
    pub async fn start(settings: &LocalPostgresSettings) -> Result<Self, LocalPostgresError> {
        let programs = Programs::find(settings.bin_dir.as_deref())?;
        let account = Account::find()?;
        let version = programs.major_version().await?;
        let socket_dir = settings.socket_dir.clone().unwrap_or_else(|| settings.dir.join("run"));
        let socket = socket_dir.join(SOCKET_NAME);
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(LocalPostgresError::SocketPathTooLong { path: socket });
        }
        account.make_passable(&settings.dir)?;
        account.make_private(&socket_dir)?;
        let data = settings.dir.join("data");
        prepare(&programs, account, &data, &version, settings.durable).await?;
        let log = settings.log_file.clone().unwrap_or_else(|| settings.dir.join("postgres.log"));
        let mut arguments = vec![
            "-D".into(),
            data.clone().into_os_string(),
            "-k".into(),
            socket_dir.clone().into_os_string(),
        ];
        let options = ["listen_addresses=", "port=5432", "unix_socket_permissions=0700"];
        let fast = ["fsync=off", "synchronous_commit=off", "full_page_writes=off"];
        let chosen = options.iter().chain(if settings.durable { &[][..] } else { &fast[..] });
        arguments.extend(chosen.flat_map(|option| ["-c".into(), option.into()]));
        let child = Child::spawn(&programs.postgres(), &arguments, account, &log)?;
        let started = tokio::time::Instant::now();
        while !is_ready(&data, child.pid()) {
            if let Some(status) = child.ended() {
                let output = child.output();
                return Err(LocalPostgresError::Failed { program: "postgres", status, output });
            }
            if started.elapsed() > START_TIMEOUT {
                return Err(LocalPostgresError::Timeout { log });
            }
            tokio::time::sleep(POLL).await;
        }
        let url = format!("host={} user=gradient dbname=gradient", quote(&socket_dir));
        Ok(Self { child, url, version })
    }

    /// What a client connects to: `host=<socket directory> user=gradient dbname=gradient`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Major version of the server.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Process id of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Waits until it ends by itself; says how.
    pub async fn wait(&mut self) -> String {
        self.child.wait().await
    }

    /// Stops it: open connections are closed, data are written, at most 8 s; then it is killed.
    pub async fn stop(mut self) {
        self.child.signal(nix::sys::signal::Signal::SIGINT);
        if tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            self.child.signal(nix::sys::signal::Signal::SIGKILL);
            self.child.wait().await;
        }
    }
}

/// A data directory of the right version, made if there is none. It appears whole or not at all.
async fn prepare(
    programs: &Programs,
    account: Account,
    data: &Path,
    version: &str,
    durable: bool,
) -> Result<(), LocalPostgresError> {
    if let Ok(found) = std::fs::read_to_string(data.join("PG_VERSION")) {
        if found.trim() == version {
            return account.make_private(data);
        }
        return Err(LocalPostgresError::OtherVersion {
            dir: data.to_owned(),
            have: found.trim().to_owned(),
            bin_dir: programs.bin_dir.clone(),
            want: version.to_owned(),
        });
    }
    let fresh = data.with_extension("new");
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh)
            .map_err(LocalPostgresError::io("cannot remove the half-made", &fresh))?;
    }
    account.make_private(&fresh)?;
    let mut initdb = Command::new(programs.initdb());
    initdb.arg("-D").arg(&fresh).args(["-U", "gradient", "-E", "UTF8", "--no-locale"]);
    initdb.args(["--auth-local=trust", "--auth-host=reject", "--no-instructions"]);
    if !durable {
        initdb.arg("--no-sync");
    }
    programs::run("initdb", account, initdb, "").await?;
    let mut single = Command::new(programs.postgres());
    single.arg("--single").arg("-D").arg(&fresh).arg("postgres");
    programs::run("postgres --single", account, single, "CREATE DATABASE gradient\n").await?;
    std::fs::rename(&fresh, data).map_err(LocalPostgresError::io("cannot name", data))
}

/// Whether the server says of itself that it accepts connections: the eighth line of its lock file.
fn is_ready(data: &Path, pid: u32) -> bool {
    let lock = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = lock.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}

/// A value of a connection string.
fn quote(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
    if is_plain {
        return text;
    }
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_are_quoted() {
        assert_eq!(quote(Path::new("/run/gradient-1")), "/run/gradient-1");
        assert_eq!(quote(Path::new("/my dir/it's")), "'/my dir/it\\'s'");
    }

    #[tokio::test]
    async fn a_long_path_is_refused_with_its_length() {
        let settings = LocalPostgresSettings {
            bin_dir: None,
            dir: Path::new("/tmp").join("x".repeat(120)),
            socket_dir: None,
            log_file: None,
            durable: false,
        };
        let error = LocalPostgres::start(&settings).await.expect_err("too long").to_string();
        assert!(error.contains("has 143 bytes") && error.contains("107"), "{error}");
    }
}
