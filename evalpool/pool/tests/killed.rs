//! Children of a real Nix that are killed in the middle of their work.

mod common;
mod host;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use common::{attributes, discover, errors};
use gradient_ipc::memory::Reading;
use gradient_pool::{Found, MemoryProbe, Pool, PoolSettings};
use host::NixHost;

const CHILD: &str = env!("CARGO_BIN_EXE_gradient-eval-child");
const PACKAGES: &str = "packages.x86_64-linux.*";
/// Names of which a pool of one gets batches of 16.
const NAMES: usize = 64;
const MIB: u64 = 1024 * 1024;
/// An expression that takes some 100 MiB a second, and far more than is allowed anywhere here.
const BOMB: &str = r#"mk (builtins.deepSeq (builtins.genList
  (n: { inherit n; s = builtins.hashString "sha512" (builtins.hashString "sha512" (toString n)); })
  20000000) "p15")"#;

/// A flake of [`NAMES`] names, of which the last of the first batch is this expression.
fn flake(host: &NixHost, name: &str, special: &str) -> String {
    let text = r#"{ outputs = { self }: { packages.x86_64-linux = let
        mk = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; };
        digits = n: if n < 10 then "0${toString n}" else toString n;
        names = builtins.genList (n: "p${digits n}") COUNT;
      in builtins.listToAttrs (map (name: { inherit name; value = mk name; }) names) // {
        p15 = SPECIAL;
      }; }; }"#;
    host.flake(name, &text.replace("COUNT", &NAMES.to_string()).replace("SPECIAL", special))
}

/// The child of this process that has used processor time for so long, in ticks of 10 ms.
fn busy_child(ticks: u64) -> Option<i32> {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.into_iter().find(|pid| {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        let fields: Vec<&str> = match stat.rsplit_once(')') {
            Some((_, rest)) => rest.split_whitespace().collect(),
            None => return false,
        };
        let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
        let is_ours = number(1) == Some(u64::from(std::process::id()));
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_ours && command.contains("--eval-subprocess") && number(11) >= Some(ticks)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_of_a_batch_loses_nothing() {
    let host = NixHost::start();
    let fib =
        r#"let f = n: if n < 2 then n else f (n - 1) + f (n - 2); in mk "p15-${toString (f 34)}""#;
    let flake = flake(&host, "slow", fib);
    let mut settings = host.settings(CHILD, 1);
    settings.eval_cache = Some(host.path().join("eval-caches"));
    let pool = Pool::new(settings).expect("pool");
    let kill = async {
        let pid = loop {
            // Far more than the start takes, far less than the slow attribute.
            match busy_child(60) {
                Some(pid) => break pid,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.expect("kill").success());
    };
    let evaluation = discover(&pool, &flake, PACKAGES);
    tokio::pin!(evaluation);
    tokio::select! {
        () = kill => {}
        ended = &mut evaluation => panic!("over before anything was killed: {:?}", ended.1),
    }
    let (found, summary) = evaluation.await;
    assert_eq!(errors(&found), Vec::<String>::new());
    assert_eq!(attributes(&found).len(), NAMES);
    for found in &found {
        let Found::Attribute { drv_path, .. } = found else { panic!("{found:?}") };
        assert!(host.real_store().join(drv_path.base_name()).exists(), "{drv_path}");
    }
    let summary = summary.expect("evaluated");
    assert!(summary.is_cache_completed, "what the killed child had not written was written later");
    assert_eq!((summary.crashes, summary.attributes), (1, NAMES as u64));
    assert_eq!(pool.children_started(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attribute_that_kills_its_child_costs_itself_and_is_named() {
    let host = NixHost::start();
    let endless = "mk (builtins.toJSON (let s = { inherit s; }; in s))";
    let flake = flake(&host, "deadly", endless);
    let pool = Pool::new(host.settings(CHILD, 1)).expect("pool");
    let (found, summary) = discover(&pool, &flake, PACKAGES).await;
    assert_eq!(attributes(&found).len(), NAMES - 1);
    let errors = errors(&found);
    assert_eq!(errors.len(), 1, "{errors:?}");
    for words in [
        "packages.x86_64-linux.p15: evaluator crashed while listing this attribute",
        "signal: ",
        "stack overflow (possible infinite recursion)",
        "peak memory ",
        " MiB, limit 2048 MiB",
    ] {
        assert!(errors[0].contains(words), "{words} is not in {}", errors[0]);
    }
    // The batch of 16, of 4, of 1, and that once more; each on a new child.
    assert_eq!(summary.expect("evaluated").crashes, 4);
    assert!(pool.children_started() <= 5);
}

/// A machine that has 8 GiB in all, and so much less available as the children hold, of this.
struct Machine {
    available: u64,
    pids: Mutex<BTreeSet<u32>>,
}

impl Machine {
    fn new(available: u64) -> Box<Machine> {
        Box::new(Machine { available, pids: Mutex::default() })
    }
}

fn rss(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

impl MemoryProbe for Machine {
    fn machine(&self) -> Option<Reading> {
        let pids = self.pids.lock().expect("lock").clone();
        let held: u64 = pids.into_iter().filter_map(rss).sum();
        Some(Reading { total: 8192 * MIB, available: self.available.saturating_sub(held) })
    }

    fn rss_bytes(&self, pid: u32) -> Option<u64> {
        self.pids.lock().expect("lock").insert(pid);
        rss(pid)
    }
}

/// What a bomb comes to on this machine with these settings: one error, whose text this is, and
/// so many derivations.
async fn bombed(mut settings: PoolSettings, available: u64, of: (&str, &str)) -> (String, usize) {
    let (flake, patterns) = of;
    // Should nobody kill the bomb, the test has to.
    settings.call_limit = Duration::from_secs(120);
    let pool = Pool::with_probe(settings, Machine::new(available)).expect("pool");
    let (found, summary) = discover(&pool, flake, patterns).await;
    summary.expect("evaluated");
    let mut errors = errors(&found);
    assert_eq!(errors.len(), 1, "{errors:?}");
    (errors.remove(0), attributes(&found).len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_dies_before_the_machine_is_out_of_memory() {
    let host = NixHost::start();
    let mut settings = host.settings(CHILD, 1);
    settings.min_free_ram_bytes = 1024 * MIB;
    let flake = flake(&host, "bomb", BOMB);
    let of = (flake.as_str(), "packages.x86_64-linux.p15");
    let (error, _) = bombed(settings, 1324 * MIB, of).await;
    for words in [
        "packages.x86_64-linux.p15: evaluator crashed while listing this attribute",
        "signal: 9 (SIGKILL), killed to keep 1024 MiB of memory free: ",
        ", peak memory ",
        " MiB, limit 2048 MiB",
    ] {
        assert!(error.contains(words), "{words} is not in {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_dies_at_the_limit_of_one_evaluator() {
    let host = NixHost::start();
    let mut settings = host.settings(CHILD, 1);
    settings.kill_rss_bytes = Some(400 * MIB);
    let flake = flake(&host, "bomb", BOMB);
    let (error, jobs) = bombed(settings, 8192 * MIB, (&flake, PACKAGES)).await;
    assert_eq!(jobs, NAMES - 1);
    for words in [
        "packages.x86_64-linux.p15: evaluator crashed while listing this attribute",
        "signal: 9 (SIGKILL), killed for its memory: it held ",
        " MiB, and one evaluator may have 400 MiB",
        ", peak memory ",
        " MiB, limit 400 MiB",
    ] {
        assert!(error.contains(words), "{words} is not in {error}");
    }
}
