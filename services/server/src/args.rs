//! Flags and environment of the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// The services of a Gradient fleet in one process, or some of them.
#[derive(Debug, Parser)]
#[command(name = "gradient-server", version, about)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServerCommand>,

    /// Services to run, comma separated
    #[arg(
        long,
        env = "GRADIENT_SERVICES",
        value_delimiter = ',',
        default_value = "all",
        value_name = "LIST"
    )]
    pub(crate) services: Vec<Service>,
    /// Address of the HTTP listener; port 0 takes a free one
    #[arg(long, env = "GRADIENT_HTTP", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub(crate) http: SocketAddr,
    /// File that is written with the address once everything runs
    #[arg(long, env = "GRADIENT_READY_FILE", value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Stop when standard input ends: for supervisors
    #[arg(long, hide = true)]
    pub(crate) stop_with_stdin: bool,

    /// NATS server, nats://HOST:PORT
    #[arg(
        long,
        global = true,
        env = "GRADIENT_NATS_URL",
        default_value = "nats://127.0.0.1:4222",
        value_name = "URL"
    )]
    pub(crate) nats_url: String,
    /// File with the token for the NATS server
    #[arg(long, global = true, env = "GRADIENT_NATS_TOKEN_FILE", value_name = "FILE")]
    pub(crate) nats_token_file: Option<PathBuf>,
    /// Copies of each stream, 1 or 3
    #[arg(long, env = "GRADIENT_NATS_REPLICAS", default_value_t = 1, value_name = "N")]
    pub(crate) nats_replicas: usize,
    /// PostgreSQL, such as `host=/run/postgresql user=gradient dbname=gradient`
    #[arg(
        long,
        global = true,
        env = "GRADIENT_DATABASE_URL",
        default_value = "host=/run/postgresql user=gradient dbname=gradient",
        value_name = "URL"
    )]
    pub(crate) database_url: String,

    /// Folder of the binary cache, of build logs and of evaluation caches
    #[arg(
        long,
        env = "GRADIENT_CACHE_DIR",
        default_value = "/var/lib/gradient/cache",
        value_name = "DIR"
    )]
    pub(crate) cache_dir: PathBuf,
    /// Name of the cache's signing key, used when the key is made
    #[arg(
        long,
        env = "GRADIENT_CACHE_KEY_NAME",
        default_value = "gradient-1",
        value_name = "NAME"
    )]
    pub(crate) cache_key_name: String,
    /// Most bytes of all evaluation caches; those unused for longest go first
    #[arg(
        long,
        env = "GRADIENT_EVAL_CACHE_MAX_TOTAL_BYTES",
        default_value_t = 10 << 30,
        value_name = "BYTES"
    )]
    pub(crate) eval_cache_max_total_bytes: u64,
    /// Folder where keys for SSH are kept while their evaluations run, readable for this user alone
    #[arg(
        long,
        env = "GRADIENT_KEY_DIR",
        default_value = "/var/lib/gradient/keys",
        value_name = "DIR"
    )]
    pub(crate) key_dir: PathBuf,
    /// File with the secret that signs upload tokens, at least 16 bytes
    #[arg(long, env = "GRADIENT_UPLOAD_SECRET_FILE", value_name = "FILE")]
    pub(crate) upload_secret_file: Option<PathBuf>,
    /// File with the token that users show
    #[arg(long, env = "GRADIENT_API_TOKEN_FILE", value_name = "FILE")]
    pub(crate) api_token_file: Option<PathBuf>,

    /// Seconds of silence after which a worker is lost; 0 = never
    #[arg(
        long,
        env = "GRADIENT_PROTO_WORKER_HEARTBEAT_TIMEOUT_SECS",
        default_value_t = 120,
        value_name = "SECS"
    )]
    pub(crate) worker_heartbeat_timeout_secs: u64,
    /// Scoring policy
    #[arg(
        long,
        env = "GRADIENT_SCHEDULER_SCORING_POLICY",
        default_value = "simple",
        value_name = "NAME"
    )]
    pub(crate) scoring_policy: String,
    /// Executions of a build before a retryable failure is permanent
    #[arg(long, env = "GRADIENT_BUILD_MAX_ATTEMPTS", default_value_t = 3, value_name = "N")]
    pub(crate) build_max_attempts: u32,
    /// First pause before a retry, in seconds; doubles with each
    #[arg(
        long,
        env = "GRADIENT_BUILD_RETRY_BACKOFF_SECS",
        default_value_t = 30,
        value_name = "SECS"
    )]
    pub(crate) build_retry_backoff_secs: u64,
    /// Wall-clock limit of a build in seconds; 0 = off
    #[arg(
        long,
        env = "GRADIENT_BUILD_DEFAULT_TIMEOUT_SECS",
        default_value_t = 14_400,
        value_name = "SECS"
    )]
    pub(crate) build_default_timeout_secs: u64,
    /// Longest silence of a builder in seconds; 0 = off
    #[arg(
        long,
        env = "GRADIENT_BUILD_DEFAULT_MAX_SILENT_SECS",
        default_value_t = 3_600,
        value_name = "SECS"
    )]
    pub(crate) build_default_max_silent_secs: u64,

    /// Log filter, such as info or gradient_scheduler=debug
    #[arg(long, env = "GRADIENT_LOG_LEVEL", default_value = "info", value_name = "FILTER")]
    pub(crate) log_level: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Drop all tables and fold the log into new ones
    RebuildProjections {
        /// Print a digest of every table afterwards
        #[arg(long)]
        digest: bool,
    },
    /// Print a digest of every table
    DigestProjections,
}

/// A service of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// All of them.
    All,
    /// Decides and assigns.
    Scheduler,
    /// Folds the log into PostgreSQL.
    Projector,
    /// HTTP/JSON for users.
    Api,
    /// Binary cache, build logs and evaluation caches.
    Cache,
}

impl ServerArgs {
    pub(crate) fn runs(&self, service: Service) -> bool {
        self.services.contains(&Service::All) || self.services.contains(&service)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_flags_are_well_formed() {
        <super::ServerArgs as clap::CommandFactory>::command().debug_assert();
    }
}
