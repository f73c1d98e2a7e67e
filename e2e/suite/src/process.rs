//! The processes of the machine, as `/proc` tells them.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// The process that started it, or took it over.
    pub parent: i32,
    /// Its arguments, joined with spaces.
    pub command_line: String,
}

impl Process {
    /// Name of the program that it runs.
    #[must_use]
    pub fn program(&self) -> &str {
        let first = self.command_line.split(' ').next().unwrap_or_default();
        first.rsplit('/').next().unwrap_or_default()
    }
}

/// Everything that runs now.
#[must_use]
pub fn all() -> Vec<Process> {
    with_state(|state| !is_over(state))
}

/// Everything that ended and waits for its parent to notice.
#[must_use]
pub fn zombies() -> Vec<Process> {
    with_state(|state| state == "Z")
}

fn with_state(wanted: impl Fn(&str) -> bool) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let processes = entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?));
    processes.filter(|(state, _)| wanted(state)).map(|(_, process)| process).collect()
}

fn is_over(state: &str) -> bool {
    matches!(state, "Z" | "X")
}

/// A process with its state.
fn read(pid: i32) -> Option<(String, Process)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // "pid (name, with anything in it) state parent ..."
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let (state, parent) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command_line = String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned();
    Some((state, Process { pid, parent, command_line }))
}

/// Whether it runs.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    read(pid).is_some_and(|(state, _)| !is_over(&state))
}

/// Everything below a process, without itself.
#[must_use]
pub fn descendants(pid: i32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = Vec::new();
    let mut level = vec![pid];
    while let Some(parent) = level.pop() {
        for child in all.iter().filter(|child| child.parent == parent) {
            level.push(child.pid);
            found.push(child.clone());
        }
    }
    found
}

/// Every process but this one that has to do with a folder: by its arguments, its environment, its
/// folder, its root, its mounts or its open files. A builder in its sandbox shows in its mounts.
#[must_use]
pub fn touching(folder: &Path) -> Vec<Process> {
    let needle = folder.to_str().expect("a plain path");
    let me = i32::try_from(std::process::id()).expect("a process id");
    all().into_iter().filter(|one| one.pid != me && touches(one, needle)).collect()
}

fn touches(process: &Process, needle: &str) -> bool {
    let base = format!("/proc/{}", process.pid);
    let text_has = |file: &str| {
        let text = std::fs::read(format!("{base}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(needle)
    };
    let link_has = |link: &Path| {
        std::fs::read_link(link).is_ok_and(|target| target.to_string_lossy().contains(needle))
    };
    let files = std::fs::read_dir(format!("{base}/fd")).into_iter().flatten().flatten();
    process.command_line.contains(needle)
        || text_has("environ")
        || text_has("mountinfo")
        || ["cwd", "root"].iter().any(|link| link_has(Path::new(&format!("{base}/{link}"))))
        || files.map(|entry| entry.path()).any(|link| link_has(&link))
}

/// Sends a signal; a process that is gone already is fine.
pub fn signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}
