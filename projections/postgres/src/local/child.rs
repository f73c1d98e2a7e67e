//! The server process: ends with its parent, and is waited for by a thread of its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch;

use super::LocalPostgresError;
use super::account::Account;
use super::programs::last_lines;

/// A running server process.
#[derive(Debug)]
pub(super) struct Child {
    pid: u32,
    ended: watch::Receiver<Option<String>>,
    log: PathBuf,
    written_before: u64,
}

impl Child {
    /// Starts the server. The signal at the death of the parent belongs to the *thread* that started
    /// it, so that thread stays until the server ended.
    pub(super) fn spawn(
        program: &Path,
        arguments: &[OsString],
        account: Account,
        log: &Path,
    ) -> Result<Self, LocalPostgresError> {
        let cannot_write = || LocalPostgresError::io("cannot write", log);
        let output = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(cannot_write())?;
        let written_before = output.metadata().map_or(0, |meta| meta.len());
        let errors = output.try_clone().map_err(cannot_write())?;
        let mut command = command(program, account);
        command.args(arguments).current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let (tell_ended, ended) = watch::channel(None);
        let (tell_started, started) = std::sync::mpsc::sync_channel(1);
        let parent = move || {
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => return drop(tell_started.send(Err(error))),
            };
            let _ = tell_started.send(Ok(child.id()));
            let status = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            tell_ended.send_replace(Some(status));
        };
        let cannot_start = || LocalPostgresError::io("cannot start", program);
        std::thread::Builder::new()
            .name("postgres-parent".into())
            .spawn(parent)
            .map_err(cannot_start())?;
        let gone = || std::io::Error::other("the thread that starts it ended");
        let pid = started.recv().unwrap_or_else(|_| Err(gone())).map_err(cannot_start())?;
        Ok(Self { pid, ended, log: log.to_owned(), written_before })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it did.
    pub(super) fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    pub(super) async fn wait(&mut self) -> String {
        let ended = self.ended.wait_for(Option::is_some).await;
        ended.ok().and_then(|status| status.clone()).unwrap_or_default()
    }

    pub(super) fn signal(&self, signal: Signal) {
        if self.ended().is_none()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// The last lines it wrote.
    pub(super) fn output(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let from = usize::try_from(self.written_before).unwrap_or(usize::MAX).min(text.len());
        last_lines(&text[from..])
    }
}

/// The last resort, for a server nobody stopped. One that is still starting may not hear any other
/// signal yet; its own processes end when it is gone.
impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// The program under its user. `setpriv` adds that it stops when its parent dies, which plain
/// process creation does not offer.
fn command(program: &Path, account: Account) -> Command {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let setpriv =
        std::env::split_paths(&search).map(|dir| dir.join("setpriv")).find(|path| path.is_file());
    let Some(setpriv) = setpriv else {
        tracing::debug!("setpriv is missing: the database would outlive a killed parent");
        let mut command = Command::new(program);
        if let Some((uid, gid)) = account.ids() {
            command.uid(uid).gid(gid);
        }
        return command;
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "INT"]);
    if let Some((uid, gid)) = account.ids() {
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).arg("--clear-groups");
    }
    command.arg("--").arg(program);
    command
}
