//! Flags and environment of the worker (reference 1.1): every flag `--a-b` has the variable
//! `GRADIENT_WORKER_A_B`.

use std::path::PathBuf;

use clap::Parser;
use uuid::Uuid;

/// Evaluates and builds for a Gradient fleet.
#[derive(Debug, Parser)]
#[command(name = "gradient-worker", version, about)]
pub struct WorkerArgs {
    /// NATS server of the fleet, nats://HOST:PORT
    #[arg(long, env = "GRADIENT_WORKER_SERVER_URL", value_name = "URL")]
    pub server_url: Option<String>,
    /// File with the token for the NATS server
    #[arg(long, env = "GRADIENT_WORKER_SERVER_TOKEN_FILE", value_name = "FILE")]
    pub server_token_file: Option<PathBuf>,
    /// Cache service, http://HOST:PORT
    #[arg(long, env = "GRADIENT_WORKER_CACHE_URL", value_name = "URL")]
    pub cache_url: Option<String>,
    /// Public key of the cache, NAME:BASE64; asked from the service if absent, over loopback or TLS only
    #[arg(long, env = "GRADIENT_WORKER_CACHE_PUBLIC_KEY", value_name = "KEY")]
    pub cache_public_key: Option<String>,
    /// State directory (worker-id, outbox, store, evaluator caches)
    #[arg(
        long,
        env = "GRADIENT_WORKER_BASE_DIR",
        value_name = "DIR",
        default_value = "/var/lib/gradient-worker"
    )]
    pub base_dir: PathBuf,
    /// UUID to use instead of the stored one
    #[arg(long, env = "GRADIENT_WORKER_ID", value_name = "UUID")]
    pub id: Option<Uuid>,
    /// Name shown to people; the host's name if absent
    #[arg(long, env = "GRADIENT_WORKER_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// Locality label for cluster placement
    #[arg(long, env = "GRADIENT_WORKER_ZONE", value_name = "LABEL")]
    pub zone: Option<String>,
    /// Address put into a cluster roster
    #[arg(long, env = "GRADIENT_WORKER_ENDPOINT", value_name = "ADDRESS")]
    pub endpoint: Option<String>,

    /// Fetch sources of flakes
    #[arg(long, env = "GRADIENT_WORKER_CAPABILITIES_FETCH")]
    pub capabilities_fetch: bool,
    /// Run evaluations
    #[arg(long, env = "GRADIENT_WORKER_CAPABILITIES_EVAL")]
    pub capabilities_eval: bool,
    /// Run builds
    #[arg(long, env = "GRADIENT_WORKER_CAPABILITIES_BUILD")]
    pub capabilities_build: bool,

    /// Nix systems to accept, comma separated; replaces detection
    #[arg(
        long,
        env = "GRADIENT_WORKER_SYSTEM_ARCHITECTURES",
        value_delimiter = ',',
        value_name = "SYSTEMS"
    )]
    pub system_architectures: Option<Vec<String>>,
    /// Nix system features to accept, comma separated; replaces detection
    #[arg(
        long,
        env = "GRADIENT_WORKER_SYSTEM_FEATURES",
        value_delimiter = ',',
        value_name = "FEATURES"
    )]
    pub system_features: Option<Vec<String>>,
    /// Relative single-core speed; skips the benchmark
    #[arg(long, env = "GRADIENT_WORKER_SYSTEM_CPU_CORE_SCORE", value_name = "N")]
    pub system_cpu_core_score: Option<u32>,
    /// Memory that evaluations leave free, in MiB; 0 = 10 % of RAM, from 128 MiB to 1 GiB
    #[arg(
        long,
        env = "GRADIENT_WORKER_SYSTEM_MIN_FREE_RAM_MB",
        value_name = "MIB",
        default_value_t = 0
    )]
    pub system_min_free_ram_mb: u64,

    /// The nix binary; nix-daemon is looked for beside it
    #[arg(long, env = "GRADIENT_WORKER_NIX_BIN", value_name = "FILE", default_value = "nix")]
    pub nix_bin: PathBuf,
    /// Store: `daemon` for the machine's own, `private` for a daemon and store below the base directory
    #[arg(long, env = "GRADIENT_WORKER_STORE", value_name = "KIND", default_value = "daemon")]
    pub store: StoreKind,
    /// Static shell that builders of a private store see as /bin/sh
    #[arg(
        long,
        env = "GRADIENT_WORKER_SANDBOX_SHELL",
        value_name = "FILE",
        default_value = "/bin/busybox"
    )]
    pub sandbox_shell: PathBuf,

    /// Evaluations at a time
    #[arg(
        long,
        env = "GRADIENT_WORKER_EVAL_MAX_CONCURRENT",
        value_name = "N",
        default_value_t = 1
    )]
    pub eval_max_concurrent: usize,
    /// Evaluator subprocesses; one per core up to 16 if absent
    #[arg(long, env = "GRADIENT_WORKER_EVAL_FORK_WORKERS", value_name = "N")]
    pub eval_fork_workers: Option<usize>,
    /// Recycle an evaluator subprocess above this many bytes after a call
    #[arg(long, env = "GRADIENT_WORKER_EVAL_MAX_RSS", value_name = "BYTES", default_value_t = 2 << 30)]
    pub eval_max_rss: u64,
    /// Kill an evaluator subprocess above this many bytes in the middle of a call, so that one
    /// attribute cannot take all memory; if absent, it may until memory runs short
    #[arg(
        long,
        env = "GRADIENT_WORKER_EVAL_KILL_RSS",
        value_name = "BYTES",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub eval_kill_rss: Option<u64>,
    /// Share evaluation caches with the fleet through the cache service, true or false
    #[arg(
        long,
        env = "GRADIENT_WORKER_EVAL_CACHE_SHARE",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub eval_cache_share: bool,

    /// Longest time of one call of an evaluator, in seconds; then the attribute at work fails
    #[arg(
        long,
        env = "GRADIENT_WORKER_EVAL_CALL_TIMEOUT_SECS",
        value_name = "SECS",
        default_value_t = 1_800,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub eval_call_timeout_secs: u64,

    /// Build slots
    #[arg(
        long,
        env = "GRADIENT_WORKER_BUILD_MAX_CONCURRENT",
        value_name = "N",
        default_value_t = 1
    )]
    pub build_max_concurrent: u32,
    /// Cores per build; 0 = all
    #[arg(long, env = "GRADIENT_WORKER_BUILD_MAX_CORES", value_name = "N", default_value_t = 0)]
    pub build_max_cores: u32,

    /// Log filter, such as info or gradient_worker=debug
    #[arg(
        long,
        env = "GRADIENT_WORKER_LOG_LEVEL_DEFAULT",
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log_level_default: String,

    /// Stop when standard input ends: for supervisors
    #[arg(long, env = "GRADIENT_WORKER_STOP_WITH_STDIN", hide = true)]
    pub stop_with_stdin: bool,
    /// Be an evaluator subprocess
    #[arg(long, env = "GRADIENT_WORKER_EVAL_SUBPROCESS", hide = true)]
    pub eval_subprocess: bool,
    /// Run JSONL requests of a file through a real subprocess
    #[arg(long, env = "GRADIENT_WORKER_EVAL_DRIVER", value_name = "FILE", hide = true)]
    pub eval_driver: Option<PathBuf>,
}

/// Which store the worker works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// The machine's own daemon.
    Daemon,
    /// A daemon and a store of the worker's own.
    Private,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_well_formed_and_each_has_its_variable() {
        let command = super::WorkerArgs::command();
        command.clone().debug_assert();
        for argument in command.get_arguments() {
            let Some(long) = argument.get_long().filter(|long| !["help", "version"].contains(long))
            else {
                continue;
            };
            let right = format!("GRADIENT_WORKER_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(right.as_str()));
        }
    }
}
