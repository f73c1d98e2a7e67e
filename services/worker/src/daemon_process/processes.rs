//! Processes by their group and their descent: what a daemon starts leaves its group (each
//! connection has a session of its own), so descent is what finds it.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::signal::{Signal, kill as send_signal, killpg};
use nix::unistd::Pid;

/// A process and when it started, so that a reused number is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pid: i32,
    start: u64,
}

/// The process with this id and all that descend from it.
pub(super) fn tree(root: u32) -> Vec<Identity> {
    let Ok(root) = i32::try_from(root) else {
        return Vec::new();
    };
    let Ok(all) = procfs::process::all_processes() else {
        return Vec::new();
    };
    let mut children: BTreeMap<i32, Vec<Identity>> = BTreeMap::new();
    let mut found = Vec::new();
    for stat in all.flatten().filter_map(|process| process.stat().ok()) {
        let identity = Identity { pid: stat.pid, start: stat.starttime };
        if stat.pid == root {
            found.push(identity);
        }
        children.entry(stat.ppid).or_default().push(identity);
    }
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        at += 1;
        if seen.insert(parent.pid) {
            found.extend(children.remove(&parent.pid).unwrap_or_default());
        }
    }
    found
}

/// Kills those that still are who they were.
pub(super) fn kill(processes: &[Identity]) {
    for identity in processes {
        let is_same = procfs::process::Process::new(identity.pid)
            .and_then(|process| process.stat())
            .is_ok_and(|stat| stat.starttime == identity.start);
        if is_same {
            let _ = send_signal(Pid::from_raw(identity.pid), Signal::SIGKILL);
        }
    }
}

/// Kills a group whose leader we started, and all that descend from it.
pub(super) fn kill_all(group: u32) {
    let leader = i32::try_from(group).unwrap_or(0);
    if leader <= 1 {
        return;
    }
    let all = tree(group);
    let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
    kill(&all);
}
