//! One run of a command: how long it took, how much memory its processes held, what it said.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gradient_suite::process;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::time::{TimeVal, TimeValLike as _};
use serde::Serialize;

/// Pause between two looks at the memory.
const LOOK: Duration = Duration::from_millis(10);
/// Looks between two searches for new processes; a search reads all of `/proc`.
const SEARCH_EVERY: u32 = 5;
/// Longest time that one run may take.
const RUN_LIMIT: Duration = Duration::from_secs(600);
const KIB: u64 = 1024;

/// What one run used.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    /// Start to end, in seconds.
    pub(crate) wall_secs: f64,
    /// Processor time of it and all processes that it waited for, in seconds: what a busy machine
    /// changes least.
    pub(crate) cpu_secs: f64,
    /// Most resident memory of all its processes together at one look, in bytes. Pages that
    /// processes share count once for each.
    pub(crate) rss_sum_bytes: u64,
    /// Most resident memory of one process, in bytes, as the system counted it.
    pub(crate) rss_largest_bytes: u64,
    /// Exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output.
    #[serde(skip)]
    pub(crate) stdout: String,
    /// Standard error.
    #[serde(skip)]
    pub(crate) stderr: String,
}

/// Runs a command to its end and watches its processes.
pub(crate) fn run(command: Command, files: &Path) -> anyhow::Result<Run> {
    run_seen(command, files, |_| {})
}

/// As [`run`]; tells each look at the memory.
fn run_seen(
    mut command: Command,
    files: &Path,
    seen: impl FnMut(&Memory) + Send,
) -> anyhow::Result<Run> {
    let (out, err) = (files.join("out"), files.join("err"));
    let file = |path: &Path| {
        std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))
    };
    command.stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
    let words = format!("{command:?}");
    let (begin, cpu_before) = (Instant::now(), cpu_of_children()?);
    let mut child = command.spawn().with_context(|| format!("cannot start {words}"))?;
    let (pid, over) = (child.id(), AtomicBool::new(false));
    let (status, wall, memory) = std::thread::scope(|scope| {
        let memory = scope.spawn(|| watch(pid, begin, &over, seen));
        let status = child.wait();
        let wall = begin.elapsed();
        over.store(true, Ordering::Relaxed);
        (status, wall, memory.join())
    });
    let memory = memory.map_err(|_| anyhow::anyhow!("the watch of the memory failed"))?;
    anyhow::ensure!(wall < RUN_LIMIT, "{words} took more than {} s", RUN_LIMIT.as_secs());
    let text = |path: &Path| {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Run {
        wall_secs: wall.as_secs_f64(),
        cpu_secs: cpu_of_children()? - cpu_before,
        rss_sum_bytes: memory.sum,
        rss_largest_bytes: memory.largest,
        code: status?.code(),
        stdout: text(&out)?,
        stderr: text(&err)?,
    })
}

/// Processor time of all processes that were waited for.
fn cpu_of_children() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let duration = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    Ok((duration(usage.user_time()) + duration(usage.system_time())).as_secs_f64())
}

/// Looks at the memory until the process is over. One that takes too long is killed.
fn watch(pid: u32, begin: Instant, over: &AtomicBool, mut seen: impl FnMut(&Memory)) -> Memory {
    let mut memory = Memory::of(pid);
    while !over.load(Ordering::Relaxed) {
        memory.look();
        seen(&memory);
        if begin.elapsed() > RUN_LIMIT {
            for one in process::descendants(memory.root) {
                process::signal(one.pid, Signal::SIGKILL);
            }
            process::signal(memory.root, Signal::SIGKILL);
        }
        std::thread::sleep(LOOK);
    }
    memory
}

/// The memory of a process and everything below it.
struct Memory {
    root: i32,
    looks: u32,
    pids: Vec<i32>,
    sum: u64,
    largest: u64,
}

impl Memory {
    fn of(pid: u32) -> Memory {
        let root = i32::try_from(pid).unwrap_or_default();
        Memory { root, looks: 0, pids: vec![root], sum: 0, largest: 0 }
    }

    fn look(&mut self) {
        if self.looks.is_multiple_of(SEARCH_EVERY) {
            let below = process::descendants(self.root);
            self.pids = below.into_iter().map(|one| one.pid).collect();
            self.pids.push(self.root);
        }
        self.looks += 1;
        let mut sum = 0;
        for pid in &self.pids {
            let Some(status) = status(*pid) else { continue };
            sum += status.get("VmRSS").copied().unwrap_or(0);
            self.largest = self.largest.max(status.get("VmHWM").copied().unwrap_or(0));
        }
        self.sum = self.sum.max(sum);
    }
}

/// The sizes in `/proc/PID/status`, in bytes.
pub(crate) fn status(pid: i32) -> Option<BTreeMap<String, u64>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let size = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some((name.to_owned(), kib * KIB))
    };
    Some(text.lines().filter_map(size).collect())
}

/// Least, middle and most of several values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The least.
    pub(crate) min: f64,
    /// The one in the middle, or halfway between the two there.
    pub(crate) median: f64,
    /// The most.
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let len = values.len();
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let median = if len.is_multiple_of(2) && len > 0 {
            f64::midpoint(at(len / 2 - 1), at(len / 2))
        } else {
            at(len / 2)
        };
        Spread { min: at(0), median, max: at(len.wrapping_sub(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even_counts() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn memory_of_processes_below_is_counted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let counted = folder.path().join("counted");
        // The one below ends when it was counted, or when it waited for long.
        let below = r#"n=0; until test -e "$0" -o $n = 3000; do n=$((n + 1)); sleep 0.01; done"#;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"/bin/sh -c "$1; echo below" "$0"; echo top"#]);
        command.arg(&counted).arg(below);
        let run = run_seen(command, folder.path(), |memory| {
            // One process never holds more than the most that it held.
            if memory.sum > memory.largest {
                std::fs::write(&counted, "").expect("written");
            }
        });
        let run = run.expect("it runs");
        assert_eq!(run.stdout, "below\ntop\n");
        assert_eq!(run.code, Some(0));
        assert!(counted.is_file() && run.rss_largest_bytes > 0);
        assert!(run.rss_sum_bytes > run.rss_largest_bytes);
    }
}
