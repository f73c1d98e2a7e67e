//! What the subprocess does to itself before Nix is loaded.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// The kernel's last resort takes an evaluator before anything else.
const OOM_SCORE_ADJ: &str = "600";

/// Moves the pipes away from descriptors 0 and 1, so that nothing Nix or its children read or print
/// touches the frames: 0 becomes `/dev/null`, 1 the same as 2.
pub(crate) fn take_over_stdio() -> io::Result<(File, File)> {
    let input = move_away(0)?;
    let output = move_away(1)?;
    let null = File::open("/dev/null")?;
    replace(null.as_raw_fd(), 0)?;
    replace(2, 1)?;
    Ok((input, output))
}

fn move_away(descriptor: i32) -> io::Result<File> {
    // SAFETY: duplicates a descriptor; no memory is involved.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(copy) })
}

fn replace(from: i32, to: i32) -> io::Result<()> {
    // SAFETY: makes `to` a copy of `from`; no memory is involved.
    match unsafe { libc::dup2(from, to) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Ends with the parent, and before anybody else when memory is short. Neither is worth failing
/// for: a parent that is gone also shows as the end of the input.
pub(crate) fn subordinate() {
    // SAFETY: sets an attribute of this process; no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // A dump of an evaluator's heap helps nobody and may be larger than the disk.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads the structure that it is given.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
}

/// Ends the process without running destructors: Nix's threads and settings do not like them.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(code) }
}

/// The CPU clock of one thread, readable from every thread while that one lives.
pub(crate) struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    pub(crate) fn of_this_thread() -> ThreadClock {
        let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: names the clock of the calling thread; fills the number that it is given.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        ThreadClock(clock)
    }

    /// CPU time so far, in microseconds; 0 if the thread is gone.
    pub(crate) fn read_us(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: fills the structure that it is given.
        unsafe { libc::clock_gettime(self.0, &raw mut time) };
        let micros = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000);
        u64::try_from(micros).unwrap_or(0)
    }
}

/// Tells git, which Nix starts, how to reach a private repository. Called before anything else of
/// Nix runs in this process, which evaluates nothing afterwards.
pub(crate) fn set_git_ssh_command(command: &str) {
    // SAFETY: the only other thread of this process, the ticker, reads no environment.
    unsafe { std::env::set_var("GIT_SSH_COMMAND", command) };
}

/// Highest resident memory of this process, in bytes.
pub(crate) fn rss_peak_bytes() -> Option<u64> {
    // SAFETY: a structure of integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills the structure that it is given.
    let code = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    (code == 0).then(|| u64::try_from(usage.ru_maxrss).ok()?.checked_mul(1024))?
}

/// Keeps the heaps of a long-lived process few and small. Many threads that come and go would otherwise
/// leave a heap each, of which a little stays touched for ever.
pub fn keep_heaps_small() {
    const ARENAS: libc::c_int = 2;
    // What is as large has pages of its own, and as much may lie free at the end of a heap. By itself
    // the allocator raises both, up to 32 MiB and twice that, as soon as something large is freed: then
    // large pieces lie among small ones, and the holes that they leave stay resident.
    const LARGE_BYTES: libc::c_int = 128 << 10;
    let settings = [
        (libc::M_ARENA_MAX, ARENAS),
        (libc::M_MMAP_THRESHOLD, LARGE_BYTES),
        (libc::M_TRIM_THRESHOLD, LARGE_BYTES),
    ];
    for (setting, value) in settings {
        // SAFETY: sets a number of the allocator; called before other threads allocate.
        unsafe { libc::mallopt(setting, value) };
    }
}
