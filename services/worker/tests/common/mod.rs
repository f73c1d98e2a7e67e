//! Private daemons and a cache service in this process. Without Nix the tests fail and say so; they
//! are never skipped.

#![allow(dead_code, clippy::allow_attributes, reason = "every test binary uses another part of it")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use gradient_cache::{CacheSettings, CacheState, Scope, UploadToken, router, token};
use gradient_daemon::Pool;
use gradient_domain::StorePath;
use gradient_worker::build::{BuildFailure, BuildOutcome, BuildRequest, Builder, Stage};
use gradient_worker::cache_client::CacheClient;
use gradient_worker::daemon_process::{DaemonProcess, DaemonSettings};
use tokio_util::sync::CancellationToken;

const SECRET: &[u8] = b"0123456789abcdef";
pub(crate) const CLUSTER_TOKEN: &str = "the token of the cluster";

pub(crate) fn nix_bin_dir() -> PathBuf {
    let prefix = std::env::var("GRADIENT_NIX_PREFIX").unwrap_or("/opt/gradient-nix".into());
    Path::new(&prefix).join("bin")
}

/// A temporary folder with a short path: sockets are made below it.
pub(crate) fn short_folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("gw-").tempdir_in("/tmp").expect("temporary folder")
}

pub(crate) struct Cache {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) client: CacheClient,
}

impl Cache {
    pub(crate) async fn start() -> Cache {
        let dir = short_folder();
        let mut settings = CacheSettings::new(dir.path(), "test-1", SECRET.to_vec());
        settings.cluster_token = Some(CLUSTER_TOKEN.into());
        settings.is_synced = false;
        let state = CacheState::open(settings).expect("opens");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(async move { axum::serve(listener, router(state)).await });
        let key = CacheClient::ask_public_key(&url).await.expect("a key");
        let client = CacheClient::new(&url, key).expect("client");
        Cache { dir, url, client }
    }

    /// The only NAR file of a path.
    pub(crate) async fn nar_file(&self, path: &StorePath) -> PathBuf {
        let narinfo = self.client.narinfo(path).await.expect("answers").expect("there");
        self.dir.path().join("cache").join(narinfo.url)
    }

    pub(crate) fn narinfo_file(&self, path: &StorePath) -> PathBuf {
        self.dir.path().join("cache").join(format!("{}.narinfo", path.hash_part()))
    }
}

pub(crate) fn upload_token(assignment: &str) -> String {
    token_of("build:00000001", assignment)
}

pub(crate) fn token_of(job: &str, assignment: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let token = UploadToken {
        job: job.into(),
        assignment: assignment.into(),
        expires_at_ms: u64::try_from(now.as_millis()).expect("fits") + 600_000,
        scope: Scope::Upload,
    };
    token::mint(SECRET, &token)
}

/// A machine with a store of its own.
pub(crate) struct Machine {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) daemon: DaemonProcess,
    pub(crate) pool: Pool,
    pub(crate) builder: Builder,
    pub(crate) client: CacheClient,
}

impl Machine {
    pub(crate) async fn start(cache: &Cache) -> Machine {
        Self::start_with(cache, |_| {}).await
    }

    pub(crate) async fn start_with(
        cache: &Cache,
        change: impl FnOnce(&mut DaemonSettings),
    ) -> Machine {
        let dir = short_folder();
        let mut settings = DaemonSettings::new(nix_bin_dir(), dir.path());
        settings.trusted_public_keys = vec![cache.client.public_key().to_string()];
        settings.max_jobs = 4;
        change(&mut settings);
        let daemon = DaemonProcess::start(settings).await.expect("the daemon starts");
        let pool = daemon.pool(16);
        let builder = Builder::new(pool.clone(), cache.client.clone());
        Machine { dir, daemon, pool, builder, client: cache.client.clone() }
    }

    /// Runs a program of Nix against this store.
    pub(crate) fn try_nix(&self, name: &str, args: &[&str]) -> Output {
        Command::new(nix_bin_dir().join(name))
            .args(args)
            .args(["--store", &self.daemon.store_uri()])
            .env("NIX_CONFIG", "experimental-features = nix-command\nsubstituters =\n")
            .env("HOME", self.dir.path())
            .output()
            .expect("Nix starts")
    }

    pub(crate) fn nix(&self, name: &str, args: &[&str]) -> String {
        let output = self.try_nix(name, args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {args:?}: {errors}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// Instantiates an expression; `mk name script attrs` is in scope.
    pub(crate) fn instantiate(&self, expression: &str) -> StorePath {
        let prelude = "let mk = name: script: more: derivation ({ inherit name; \
            system = \"x86_64-linux\"; builder = \"/bin/sh\"; args = [ \"-c\" script ]; } // more); in ";
        let path = self.nix("nix-instantiate", &["-E", &format!("{prelude}{expression}")]);
        path.parse().expect("a store path")
    }

    pub(crate) async fn build(
        &self,
        drv_path: &StorePath,
    ) -> (Result<BuildOutcome, BuildFailure>, String) {
        let request = request(drv_path);
        let mut log = Vec::new();
        let cancel = CancellationToken::new();
        let result = self.builder.build(&request, &mut log, &|_: Stage| {}, &cancel).await;
        (result, String::from_utf8(log).expect("UTF-8"))
    }

    pub(crate) async fn upload(&self, outcome: &BuildOutcome) {
        let cancel = CancellationToken::new();
        let token = upload_token("a1");
        self.builder.upload(outcome, &token, &|_| {}, &cancel).await.expect("uploads");
    }

    pub(crate) async fn upload_drv(&self, path: &StorePath) {
        let paths = BTreeSet::from([path.clone()]);
        self.client.upload_closure(&self.pool, &paths, CLUSTER_TOKEN).await.expect("uploads");
    }

    pub(crate) async fn is_valid(&self, path: &StorePath) -> bool {
        let mut connection = self.pool.get().await.expect("connection");
        connection.is_valid_path(path).await.expect("answers")
    }
}

pub(crate) fn request(drv_path: &StorePath) -> BuildRequest {
    BuildRequest { drv_path: drv_path.clone(), timeout_secs: None, max_silent_secs: None, cores: 0 }
}
