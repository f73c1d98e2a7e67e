//! A child of the local cluster: started, watched, started again, stopped.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};

/// How to start a child.
#[derive(Clone, Debug)]
pub(crate) struct ChildSpec {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) log_file: PathBuf,
}

/// A running child, in a process group of its own. Its standard input is a pipe that ends with us.
#[derive(Debug)]
pub(crate) struct RunningChild {
    pub(crate) spec: ChildSpec,
    child: Child,
    /// Held apart: waiting for a child would close it.
    _stdin: Option<ChildStdin>,
}

impl ChildSpec {
    pub(crate) fn start(&self) -> anyhow::Result<RunningChild> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log_file);
        let log = log.with_context(|| format!("cannot write {}", self.log_file.display()))?;
        let errors = log.try_clone().context("cannot share a log file")?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {} ({})", self.name, self.program.display()))?;
        let _stdin = child.stdin.take();
        Ok(RunningChild { spec: self.clone(), child, _stdin })
    }

    /// The last lines of its log, for the report of a crash.
    pub(crate) fn last_lines(&self, count: usize) -> String {
        let text = std::fs::read(&self.log_file).unwrap_or_default();
        let text =
            String::from_utf8_lossy(&text[text.len().saturating_sub(8 * 1024)..]).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n  ")
    }
}

impl RunningChild {
    pub(crate) async fn wait(&mut self) -> std::io::Result<std::process::ExitStatus> {
        self.child.wait().await
    }

    /// SIGTERM, then after `grace` SIGKILL for the whole group.
    pub(crate) async fn stop(mut self, grace: Duration) {
        let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()) else { return };
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            tracing::warn!(child = self.spec.name, "it did not stop in time and is killed");
        }
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        let _ = self.child.wait().await;
    }
}
