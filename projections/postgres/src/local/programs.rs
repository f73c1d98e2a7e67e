//! The programs of PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::LocalPostgresError;
use super::account::Account;

/// Where Debian keeps one folder per major version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Where they are.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) bin_dir: PathBuf,
}

impl Programs {
    pub(super) fn find(bin_dir: Option<&Path>) -> Result<Self, LocalPostgresError> {
        let is_whole =
            |dir: &PathBuf| dir.join("postgres").is_file() && dir.join("initdb").is_file();
        if let Some(dir) = bin_dir {
            let dir = dir.to_owned();
            let looked_at = dir.display().to_string();
            let found = Some(dir).filter(is_whole);
            return found
                .map(|bin_dir| Self { bin_dir })
                .ok_or(LocalPostgresError::Missing { looked_at });
        }
        let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(DEBIAN)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let major = entry.file_name().to_str()?.parse().ok()?;
                Some((major, entry.path().join("bin")))
            })
            .collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        let search = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            versions.into_iter().map(|(_, dir)| dir).chain(std::env::split_paths(&search));
        let looked_at = format!("{DEBIAN}/*/bin");
        folders
            .into_iter()
            .find(is_whole)
            .map(|bin_dir| Self { bin_dir })
            .ok_or(LocalPostgresError::Missing { looked_at })
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.bin_dir.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.bin_dir.join("initdb")
    }

    /// Such as `15`, from `postgres (PostgreSQL) 15.8 (Debian 15.8-0)`.
    pub(super) async fn major_version(&self) -> Result<String, LocalPostgresError> {
        let program = self.postgres();
        let output = Command::new(&program)
            .arg("--version")
            .output()
            .await
            .map_err(LocalPostgresError::io("cannot run", &program))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
        let digits = |w: &str| w.chars().take_while(char::is_ascii_digit).collect();
        version.map(digits).ok_or_else(|| LocalPostgresError::Failed {
            program: "postgres --version",
            status: output.status.to_string(),
            output: text.trim().to_owned(),
        })
    }
}

/// Runs a program to its end and expects it to do well.
pub(super) async fn run(
    program: &'static str,
    account: Account,
    mut command: Command,
    input: &'static str,
) -> Result<(), LocalPostgresError> {
    account.applied(&mut command);
    let path = PathBuf::from(command.as_std().get_program());
    let io = || LocalPostgresError::io("cannot run", &path);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(io())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ended early closed its side; its output says why.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(io())?;
    if output.status.success() {
        return Ok(());
    }
    let status = output.status.to_string();
    let output = last_lines(&output.stderr);
    Err(LocalPostgresError::Failed { program, status, output })
}

pub(super) fn last_lines(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
