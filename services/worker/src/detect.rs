//! What this machine offers (reference 1.3, 1.4).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use gradient_domain::{Capabilities, Feature, System};
use procfs::Current;
use tokio::process::Command;

use crate::config::WorkerArgs;

/// Longest that `nix config show` may take.
const NIX_TIMEOUT: Duration = Duration::from_secs(20);
/// Rounds of the micro-benchmark.
const ROUNDS: u64 = 5_000_000;

/// Capabilities of this machine, where flags do not replace them. Features come from the daemon's own
/// configuration, so `environment` must reach the same one.
pub async fn capabilities(args: &WorkerArgs, environment: &[(String, String)]) -> Capabilities {
    let architectures = match &args.system_architectures {
        Some(listed) => names(listed),
        None => BTreeSet::from([host_system()]),
    };
    let system_features = match &args.system_features {
        Some(listed) => names(listed),
        None => system_features(&args.nix_bin, environment).await,
    };
    let label = |text: &Option<String>| {
        text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    Capabilities {
        architectures: architectures.into_iter().map(System).collect(),
        system_features: system_features.into_iter().map(Feature).collect(),
        max_concurrent_builds: if args.capabilities_build { args.build_max_concurrent } else { 0 },
        cpu_count: std::thread::available_parallelism()
            .map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        ram_total_mb: procfs::Meminfo::current()
            .map_or(1, |memory| (memory.mem_total >> 20).max(1)),
        cpu_core_score: args.system_cpu_core_score.unwrap_or_else(core_score),
        zone: label(&args.zone),
        endpoint: label(&args.endpoint),
    }
}

fn names(listed: &[String]) -> BTreeSet<String> {
    listed.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The Nix name of the system that this program was compiled for.
fn host_system() -> String {
    let os = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    let arch = if std::env::consts::ARCH == "x86" { "i686" } else { std::env::consts::ARCH };
    format!("{arch}-{os}")
}

async fn system_features(nix: &Path, environment: &[(String, String)]) -> BTreeSet<String> {
    let mut command = Command::new(nix);
    command
        .args(["--extra-experimental-features", "nix-command", "config", "show", "system-features"])
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    match tokio::time::timeout(NIX_TIMEOUT, command.output()).await {
        Ok(Ok(output)) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            let value = text.split_once('=').map_or(text.as_ref(), |(_, value)| value);
            value.split_whitespace().map(str::to_owned).collect()
        }
        outcome => {
            let problem = match outcome {
                Err(_) => "it did not answer in time".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            };
            tracing::warn!(nix = %nix.display(), problem, "system features are unknown; advertising none");
            BTreeSet::new()
        }
    }
}

/// Speed of one core, relative: a core that takes 1 ns per round gets 10,000.
fn core_score() -> u32 {
    let started = Instant::now();
    let hash = (0..ROUNDS).fold(0xcbf2_9ce4_8422_2325_u64, |hash, n| {
        (hash ^ std::hint::black_box(n)).wrapping_mul(0x0100_0000_01b3)
    });
    std::hint::black_box(hash);
    score_of(started.elapsed())
}

fn score_of(elapsed: Duration) -> u32 {
    let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    if elapsed_us == 0 {
        return 100_000;
    }
    // rounds per millisecond, in hundreds, rounded
    let hundreds = (ROUNDS * 10 + elapsed_us / 2) / elapsed_us;
    u32::try_from(hundreds.clamp(1, 100_000)).unwrap_or(100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_follow_the_formula() {
        assert_eq!(score_of(Duration::from_millis(5)), 10_000);
        assert_eq!(score_of(Duration::from_millis(50)), 1_000);
        assert_eq!(score_of(Duration::ZERO), 100_000);
        assert_eq!(score_of(Duration::from_secs(100_000)), 1);
    }

    #[test]
    fn lists_are_sets_without_blanks() {
        let listed = ["kvm", " big-parallel ", "", "kvm"].map(str::to_owned);
        assert_eq!(names(&listed), BTreeSet::from(["big-parallel".to_owned(), "kvm".to_owned()]));
    }
}
