//! The pool against subprocesses that crash, hang, grow, tear frames and lie. No Nix needed.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use common::{Run, attributes, discover, errors};
use gradient_ipc::memory::Reading;
use gradient_pool::{DiscoverError, Evaluation, MemoryProbe, Pool, PoolSettings, SpawnError};
use tempfile::TempDir;
use tokio::sync::mpsc;

const PATTERN: &str = "packages.x86_64-linux.*";
const MIB: u64 = 1024 * 1024;

/// The misbehaving program under the name of its mode.
fn program(dir: &TempDir, mode: &str) -> PathBuf {
    let link = dir.path().join(mode);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_misbehaving-child"), &link).expect("link");
    }
    link
}

fn settings(dir: &TempDir, mode: &str, children: usize) -> PoolSettings {
    let mut settings = PoolSettings::new(program(dir, mode), "dummy".into(), dir.path().to_owned());
    settings.children = children;
    settings
}

async fn run(mode: &str, children: usize) -> (Run, u64) {
    let dir = TempDir::new().expect("temp dir");
    let pool = Pool::new(settings(&dir, mode, children)).expect("pool");
    let run = discover(&pool, "flake", PATTERN).await;
    (run, pool.children_started())
}

/// All names but the bad one, and one error for that.
fn assert_one_lost((found, summary): &Run, cause: &str) {
    assert!(summary.is_ok(), "{summary:?}");
    let attributes = attributes(found);
    assert_eq!(attributes.len(), 15, "{attributes:?}");
    assert!(!attributes.iter().any(|line| line.contains("p09")));
    let errors = errors(found);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("packages.x86_64-linux.p09: "), "{}", errors[0]);
    assert!(errors[0].contains(cause), "{}", errors[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_costs_one_attribute_and_few_starts() {
    for children in [1, 3] {
        let (run, started) = run("crash", children).await;
        assert_one_lost(
            &run,
            "evaluator crashed while listing this attribute: \
             eval worker closed pipe: signal: 6 (SIGABRT)",
        );
        let crashes = run.1.expect("summary").crashes;
        assert!(crashes <= 3, "{crashes}");
        assert!(started <= crashes + children as u64, "{started} starts, {crashes} crashes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_that_does_not_repeat_costs_nothing() {
    let (run, _) = run("crash-once", 2).await;
    assert_eq!(attributes(&run.0).len(), 16);
    assert_eq!(errors(&run.0), Vec::<String>::new());
    assert_eq!(run.1.expect("summary").crashes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_frames_cost_one_attribute() {
    let (torn, _) = run("torn", 2).await;
    assert_one_lost(&torn, "eval worker closed pipe: exit status: 3");
    let (junk, _) = run("junk", 2).await;
    assert_one_lost(&junk, "undecodable response: frame holds no valid message");
    let (huge, _) = run("huge", 2).await;
    assert_one_lost(&huge, "frame length 4294967295 exceeds 67108864");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_nobody_builds_is_refused_by_name() {
    let (run, _) = run("imports", 2).await;
    assert_one_lost(&run, "import from derivation is not available during list");
    assert_eq!(run.1.expect("summary").crashes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_call_ends_with_the_time_limit() {
    let dir = TempDir::new().expect("temp dir");
    let mut settings = settings(&dir, "hang", 4);
    settings.call_limit = Duration::from_millis(400);
    let pool = Pool::new(settings).expect("pool");
    let run = discover(&pool, "flake", PATTERN).await;
    assert_one_lost(&run, "evaluation of this attribute took too long: time limit of 0.4 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_greeting_is_no_conversation() {
    let cases = [("wrong-version", "subprocess 4"), ("chatty", "subprocess 87")];
    for (mode, text) in cases {
        let (run, _) = run(mode, 2).await;
        let Err(DiscoverError::Spawn(error @ SpawnError::Version { .. })) = run.1 else {
            panic!("{mode}: {:?}", run.1);
        };
        assert_eq!(
            error.to_string(),
            format!(
                "eval worker IPC version mismatch: parent 3, {text} (binary replaced mid-run?)"
            )
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_child_is_not_waited_for_for_ever() {
    let dir = TempDir::new().expect("temp dir");
    let mut settings = settings(&dir, "silent", 1);
    settings.greeting_limit = Duration::from_millis(200);
    let pool = Pool::new(settings).expect("pool");
    let (_, summary) = discover(&pool, "flake", PATTERN).await;
    assert!(matches!(summary, Err(DiscoverError::Spawn(SpawnError::NoGreeting { .. }))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_without_nix_says_why() {
    let (run, _) = run("no-nix", 1).await;
    let Err(DiscoverError::Spawn(error)) = run.1 else { panic!("{:?}", run.1) };
    assert_eq!(error.to_string(), "evaluator not initialized: no libnixutilc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_named() {
    let dir = TempDir::new().expect("temp dir");
    let mut settings = settings(&dir, "crash", 1);
    settings.exe = dir.path().join("not-there");
    let pool = Pool::new(settings).expect("pool");
    let (_, summary) = discover(&pool, "flake", PATTERN).await;
    let Err(DiscoverError::Spawn(error)) = summary else { panic!("{summary:?}") };
    assert!(error.to_string().contains("not-there"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_died_idle_is_not_handed_out() {
    let (run, started) = run("dies-idle", 1).await;
    assert_eq!(attributes(&run.0).len(), 16, "{:?}", run.1);
    assert_eq!(run.1.expect("summary").crashes, 0);
    assert_eq!(started, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_over_its_limit_is_replaced_after_the_call() {
    let dir = TempDir::new().expect("temp dir");
    let mut settings = settings(&dir, "well-behaved", 1);
    settings.max_rss_bytes = 1;
    let pool = Pool::new(settings).expect("pool");
    let (found, summary) = discover(&pool, "flake", PATTERN).await;
    assert_eq!(attributes(&found).len(), 16);
    let summary = summary.expect("summary");
    assert_eq!((summary.crashes, pool.children_started()), (0, summary.calls));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_evaluations_share_the_pool() {
    let dir = TempDir::new().expect("temp dir");
    let pool = Pool::new(settings(&dir, "well-behaved", 2)).expect("pool");
    let (one, two) = tokio::join!(discover(&pool, "one", PATTERN), discover(&pool, "two", PATTERN));
    assert_eq!((attributes(&one.0).len(), attributes(&two.0).len()), (16, 16));
    assert!(pool.children_started() <= 4);
    assert_eq!(pool.children_idle(), 0);
    pool.shutdown().await;
    let (_, refused) = discover(&pool, "one", PATTERN).await;
    assert!(matches!(refused, Err(DiscoverError::Cancelled)));
}

/// Says that memory is short by what the children hold over 64 MiB, and remembers whom it saw.
#[derive(Default)]
struct Grown {
    pids: Mutex<Vec<u32>>,
}

fn rss(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

impl MemoryProbe for Grown {
    fn machine(&self) -> Option<Reading> {
        let pids = self.pids.lock().expect("lock").clone();
        let held: u64 = pids.into_iter().filter_map(rss).sum();
        Some(Reading { total: 8192 * MIB, available: (1064 * MIB).saturating_sub(held) })
    }

    fn rss_bytes(&self, pid: u32) -> Option<u64> {
        let mut pids = self.pids.lock().expect("lock");
        if !pids.contains(&pid) {
            pids.push(pid);
        }
        rss(pid)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growing_child_is_reaped_and_costs_one_attribute() {
    let dir = TempDir::new().expect("temp dir");
    let mut settings = settings(&dir, "grow", 4);
    settings.min_free_ram_bytes = 1000 * MIB;
    let pool = Pool::with_probe(settings, Box::<Grown>::default()).expect("pool");
    let run = discover(&pool, "flake", PATTERN).await;
    assert_one_lost(&run, "signal: 9 (SIGKILL), killed to keep 1000 MiB of memory free");
    assert_one_lost(&run, ", limit 2048 MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_over_a_hard_limit_is_killed_though_memory_is_plenty() {
    let dir = TempDir::new().expect("temp dir");
    let mut settings = settings(&dir, "grow", 4);
    settings.kill_rss_bytes = Some(96 * MIB);
    let pool = Pool::with_probe(settings, Box::new(Plenty)).expect("pool");
    let run = discover(&pool, "flake", PATTERN).await;
    assert_one_lost(&run, "signal: 9 (SIGKILL), killed for its memory: it held ");
    assert_one_lost(&run, " MiB, and one evaluator may have 96 MiB");
    assert_one_lost(&run, ", limit 96 MiB");
}

/// A machine that is never short of memory.
struct Plenty;

impl MemoryProbe for Plenty {
    fn machine(&self) -> Option<Reading> {
        Some(Reading { total: 8192 * MIB, available: 8192 * MIB })
    }

    fn rss_bytes(&self, pid: u32) -> Option<u64> {
        rss(pid)
    }
}

/// Folders in `/proc` of the processes of this program.
fn processes_of(program: &Path) -> Vec<PathBuf> {
    let same = |path: &PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        line.starts_with(program.as_os_str().as_encoded_bytes())
    };
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.map(|entry| entry.path()).filter(same).collect()
}

/// Names of the variables in the environment of a process.
fn variables_of(process: &Path) -> Vec<String> {
    let bytes = std::fs::read(process.join("environ")).expect("environ");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split('\0').filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_ends_the_children_at_work() {
    let dir = TempDir::new().expect("temp dir");
    let settings = settings(&dir, "hang", 4);
    let program = settings.exe.clone();
    let pool = Pool::new(settings).expect("pool");
    let (sink, mut results) = mpsc::channel(1);
    let patterns = PATTERN.parse().expect("pattern");
    let evaluation = tokio::spawn({
        let pool = pool.clone();
        async move { pool.discover(&Evaluation::of_flake("flake", patterns), sink).await }
    });
    // Everything but the hanging name arrives, then nothing: the evaluation is in the middle.
    for _ in 0..15 {
        results.recv().await.expect("result");
    }
    let processes = processes_of(&program);
    assert!(!processes.is_empty());
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the parent has this variable");
    for process in &processes {
        let variables = variables_of(process);
        assert!(variables.iter().any(|name| name == "NIX_CONFIG"));
        assert!(!variables.iter().any(|name| name.starts_with("CARGO")), "{variables:?}");
    }
    drop(results);
    let ended = evaluation.await.expect("task");
    assert!(matches!(ended, Err(DiscoverError::Cancelled)));
    while !processes_of(&program).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(pool.children_idle(), 0);
}
