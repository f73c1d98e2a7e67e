//! `gradient eval`: a local evaluation with the fleet's own pool of evaluators, without a server. One
//! JSON line per attribute, as it is found.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gradient_domain::pattern::PatternSet;
use gradient_domain::{AttrPath, Derivation, StorePath};
use gradient_fetch::{Fetcher, Reach, Request, Source};
use gradient_pool::{DiscoverError, Found, Pool, PoolSettings};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::exit::{Code, Failure};
use crate::say;
use crate::up::programs;

/// Where the machine's own Nix daemon listens.
const DAEMON_SOCKET: &str = "/nix/var/nix/daemon-socket/socket";
/// Most results that wait to be printed.
const FOUND_WAITING_MAX: usize = 1_024;

/// Evaluate a flake here, without a server, and print its jobs as JSON lines
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// Patterns of attributes, such as packages.x86_64-linux.*
    #[arg(required = true, value_name = "PATTERN")]
    patterns: Vec<String>,
    /// The flake: a folder, path:DIR or any flake reference
    #[arg(long, default_value = ".", value_name = "REF")]
    flake: String,
    /// Evaluator processes; one per processor up to 16 if absent
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Recycle an evaluator above this many MiB after a call
    #[arg(long, default_value_t = 2_048, value_name = "MIB")]
    max_memory_size: u64,
    /// Store to instantiate into; the machine's daemon, or a store below the data directory
    #[arg(long, value_name = "URI")]
    store: Option<String>,
}

/// One line of the output; names and meanings as in nix-eval-jobs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    attr: String,
    attr_path: &'a AttrPath,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drv_path: Option<&'a StorePath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<std::collections::BTreeMap<String, Option<StorePath>>>,
}

struct Store {
    uri: String,
    /// Where its `/nix/store` really is.
    dir: PathBuf,
}

pub(crate) async fn run(data_dir: &Path, args: EvalArgs) -> Result<(), Failure> {
    let patterns = PatternSet::from_texts(&args.patterns).map_err(Failure::usage)?;
    let worker = programs::worker().ok_or_else(|| {
        Failure::unavailable(anyhow::anyhow!("gradient-worker is not beside this program"))
            .hint("build it with `make build`")
    })?;
    let store = open_store(data_dir, args.store.as_deref())?;
    let locked_url = lock(data_dir, &args.flake, &store).await?;
    let home = data_dir.join("eval-cache");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let mut settings = PoolSettings::new(worker, store.uri.clone(), home);
    settings.children = args.workers.unwrap_or(settings.children).max(1);
    settings.max_rss_bytes = args.max_memory_size << 20;
    let pool = Pool::new(settings).context("the evaluators cannot be started")?;
    let (sink, mut found) = mpsc::channel(FOUND_WAITING_MAX);
    let print = async {
        let mut failed = false;
        while let Some(found) = found.recv().await {
            failed |= print(&store, &found)?;
        }
        Ok::<bool, Failure>(failed)
    };
    let (discovered, printed) = tokio::join!(pool.discover(&locked_url, &patterns, sink), print);
    pool.shutdown().await;
    let failed = printed?;
    match discovered {
        Ok(_) if failed => {
            Err(Failure::new(Code::Failed, anyhow::anyhow!("some attributes failed to evaluate")))
        }
        Ok(_) => Ok(()),
        Err(error @ DiscoverError::Flake { .. }) => Err(Failure::new(Code::Failed, error)),
        Err(error) => Err(Failure::unavailable(error)),
    }
}

/// Prints one result; true for an error.
fn print(store: &Store, found: &Found) -> Result<bool, Failure> {
    let nowhere = AttrPath::default();
    let line = match found {
        Found::Warning(text) => {
            eprintln!("warning: {text}");
            return Ok(false);
        }
        Found::Error { path, message } => {
            let path = path.as_ref().unwrap_or(&nowhere);
            Line {
                attr: path.to_string(),
                attr_path: path,
                error: Some(message),
                name: None,
                system: None,
                drv_path: None,
                outputs: None,
            }
        }
        Found::Attribute { path, drv_path } => {
            let derivation = read(store, drv_path)?;
            let outputs = derivation.outputs.iter();
            Line {
                attr: path.to_string(),
                attr_path: path,
                error: None,
                name: Some(drv_path.name().trim_end_matches(".drv").to_owned()),
                system: Some(derivation.system.0.clone()),
                drv_path: Some(drv_path),
                outputs: Some(
                    outputs.map(|(name, output)| (name.clone(), output.path.clone())).collect(),
                ),
            }
        }
    };
    say::json(&line)?;
    Ok(line.error.is_some())
}

fn read(store: &Store, drv_path: &StorePath) -> Result<Derivation, Failure> {
    let file = store.dir.join(drv_path.base_name());
    let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let derivation = Derivation::parse(&text);
    Ok(derivation.with_context(|| format!("cannot parse {drv_path}"))?)
}

fn open_store(data_dir: &Path, given: Option<&str>) -> Result<Store, Failure> {
    if given.is_none() && Path::new(DAEMON_SOCKET).exists() {
        return Ok(Store { uri: "daemon".into(), dir: "/nix/store".into() });
    }
    let uri = match given {
        Some(uri) => uri.to_owned(),
        None => {
            let root = std::path::absolute(data_dir.join("eval-store"))
                .context("the data directory has no absolute path")?;
            std::fs::create_dir_all(&root)
                .with_context(|| format!("cannot create {}", root.display()))?;
            format!("local?root={}", root.display())
        }
    };
    let root = uri.split_once("root=").map(|(_, rest)| rest.split('&').next().unwrap_or(rest));
    let dir = root.map_or_else(|| "/nix/store".into(), |root| Path::new(root).join("nix/store"));
    Ok(Store { uri, dir })
}

/// What to evaluate, by the `nix` of the set-up.
async fn lock(data_dir: &Path, flake: &str, store: &Store) -> Result<String, Failure> {
    let nix = programs::nix_or_failure()?;
    let cache_home = std::path::absolute(data_dir.join("fetch-cache"))
        .context("the data directory has no absolute path")?;
    let fetcher = Fetcher::new(nix, store.uri.clone(), store.dir.clone(), cache_home);
    let request = Request::new(Source::Reference(flake.to_owned()), Reach::Local);
    let locked = fetcher.fetch(&request).await?;
    for warning in &locked.warnings {
        eprintln!("warning: {warning}");
    }
    if locked.is_dirty {
        eprintln!("warning: the checkout has changes that are not committed");
    }
    if let Some(folder) = locked.submodules.first() {
        eprintln!(
            "warning: git submodules such as '{folder}' are not fetched; ask for them with submodules=1"
        );
    }
    Ok(locked.url)
}
