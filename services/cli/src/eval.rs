//! `gradient eval`: a local evaluation with the fleet's own pool of evaluators, without a server. One
//! JSON line per attribute, as it is found.

mod aggregates;
mod args;
mod cache_status;
mod daemons;
mod glob;
mod line;
mod lock;
mod output;
mod progress;
mod report;
mod request;
mod roots;
mod stats;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use gradient_domain::flake::LockPolicy;
use gradient_domain::pattern::PatternSet;
use gradient_fetch::{LockedFlake, Retry, remove_damaged_cache};
use gradient_pool::{
    DiscoverError, DiscoverySummary, Evaluation, EvaluationCache, Pool, PoolSettings, Source,
};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use args::EvalArgs;
use cache_status::Graph;
use daemons::{AtDaemon, Daemons};
use line::Wanted;
use output::Reader;
use progress::Progress;
use report::{Report, Reported};
use request::{Request, Tree};
use roots::Roots;
pub(crate) use store::{Store, Vanishing};

use crate::exit::{Code, Failure};
use crate::say;
use crate::up::programs;

/// Most results that wait to be printed.
const FOUND_WAITING_MAX: usize = 1_024;

pub(crate) async fn run(data_dir: &Path, args: EvalArgs) -> Result<(), Failure> {
    let request = Request::new(&args)?;
    let worker = worker()?;
    let stop = gradient_runtime::shutdown::on_signal()
        .map_err(|error| Failure::unavailable(anyhow::Error::from(error)))?;
    let (store, _vanishes) = match args.no_instantiate {
        true => Store::throw_away().map(|(store, folder)| (store, Some(folder)))?,
        false => (Store::open(data_dir, args.store.as_deref())?, None),
    };
    let done = tokio::select! {
        done = evaluate(data_dir, &args, &request, worker, Arc::new(store)) => done,
        () = stop.cancelled() => Ok(()),
    };
    match stop.is_cancelled() {
        // Whatever failed failed because of the signal, which programs that we started got, too.
        true => Err(Failure::new(Code::Interrupted, anyhow::anyhow!("stopped"))),
        false => done,
    }
}

/// The program that becomes an evaluator.
fn worker() -> Result<PathBuf, Failure> {
    programs::worker().ok_or_else(|| {
        Failure::unavailable(anyhow::anyhow!("gradient-worker is not beside this program"))
            .hint("build it with `make build`")
    })
}

/// The cache that an evaluation of a flake has.
pub(crate) async fn cache_of(
    data_dir: &Path,
    flake: &str,
    store: Option<&str>,
) -> Result<EvaluationCache, Failure> {
    let worker = worker()?;
    let store = Store::open(data_dir, store)?;
    store.make(data_dir).await?;
    let locked = lock::lock(data_dir, flake, Vec::new(), LockPolicy::Complete, &store).await?;
    let everything = PatternSet::from_texts(["*"]).map_err(Failure::usage)?;
    let evaluation =
        Evaluation { locks: locked.locks, ..Evaluation::of_flake(&locked.url, everything) };
    let mut settings = PoolSettings::new(worker, store.uri, data_dir.join("eval-cache"));
    settings.eval_cache = Some(crate::eval_cache::folder(data_dir));
    let pool = Pool::new(settings).context("the evaluators cannot be started")?;
    let cache = pool.cache_of(&evaluation).await.map_err(Failure::unavailable)?;
    pool.shutdown().await;
    cache.ok_or_else(|| {
        Failure::new(
            Code::Failed,
            anyhow::anyhow!("nothing is kept of this flake: it is not locked"),
        )
    })
}

/// Everything from the lock to the last line. Dropped, it takes the evaluators with it.
async fn evaluate(
    data_dir: &Path,
    args: &EvalArgs,
    request: &Request,
    worker: PathBuf,
    store: Arc<Store>,
) -> Result<(), Failure> {
    store.make(data_dir).await?;
    let locked = match &request.tree {
        Tree::Flake(flake) => {
            let (overrides, policy) = (request.overrides.clone(), request.lock_policy);
            Some(lock::lock(data_dir, flake, overrides, policy, &store).await?)
        }
        Tree::Text(_) => None,
    };
    let source = Source {
        expression: request.expression(locked.as_ref())?,
        fragment: request.fragment.clone(),
        select: args.select.clone(),
        extras: request.extras.clone(),
        cache: None,
    };
    let (patterns, recursion) = (request.patterns.clone(), request.recursion);
    let locks = locked.as_ref().map(|flake| flake.locks.clone()).unwrap_or_default();
    let evaluation = Evaluation { source, patterns, recursion, locks };
    let daemons = Arc::new(Daemons::new(store.clone(), request.options.clone()));
    let mut settings = settings(data_dir, args, request, worker, &store)?;
    if store.socket().is_some() {
        // Starting a daemon only to ask it would cost more than most answers.
        settings.known_paths = Some(Arc::new(AtDaemon(daemons.clone())));
    }
    let pool = Pool::new(settings).context("the evaluators cannot be started")?;
    let known = locked.clone();
    let report = Report {
        daemons,
        store,
        locked,
        wanted: Wanted {
            input_drvs: args.show_input_drvs,
            constituents: args.constituents,
            features: !args.no_instantiate,
        },
        graph: args.check_cache_status.then(Graph::default),
        roots: args.gc_roots_dir.as_deref().map(Roots::open).transpose()?,
    };
    let (sink, found) = mpsc::channel(FOUND_WAITING_MAX);
    let reporting = AbortOnDropHandle::new(tokio::spawn(report.run(found, Progress::new())));
    let discovered = pool.discover(&evaluation, sink).await;
    let reported = reporting.await.context("the results cannot be printed")??;
    pool.shutdown().await;
    if let (true, Ok(summary)) = (args.stats, &discovered) {
        say::note(stats::line(summary)?);
    }
    end(discovered, reported, known.as_ref())
}

fn settings(
    data_dir: &Path,
    args: &EvalArgs,
    request: &Request,
    worker: PathBuf,
    store: &Store,
) -> Result<PoolSettings, Failure> {
    let home = data_dir.join("eval-cache");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    remove_damaged_cache(&home).with_context(|| format!("cannot use {}", home.display()))?;
    let mut settings = PoolSettings::new(worker, store.uri.clone(), home);
    // What a store elsewhere has is known to nobody here.
    settings.eval_cache = store.is_at_hand().then(|| crate::eval_cache::folder(data_dir));
    settings.children = args.workers.unwrap_or(settings.children).max(1);
    settings.max_rss_bytes = args.max_memory_size << 20;
    settings.kill_rss_bytes = args.kill_memory_size.map(|mib| mib << 20);
    settings.pure = request.pure;
    settings.show_trace = args.show_trace;
    settings.options = request.options.clone();
    Ok(settings)
}

/// The end that the command comes to.
fn end(
    discovered: Result<DiscoverySummary, DiscoverError>,
    reported: Reported,
    flake: Option<&LockedFlake>,
) -> Result<(), Failure> {
    if reported.reader == Reader::Gone {
        return Ok(());
    }
    match discovered {
        Ok(_) if reported.failed > 0 => {
            Err(Failure::new(Code::Failed, anyhow::anyhow!("some attributes failed to evaluate")))
        }
        Ok(_) => Ok(()),
        Err(DiscoverError::Flake { message }) => {
            // A text with its trace begins as the line that it becomes.
            let text = message.strip_prefix("error:").map_or(&*message, str::trim_start);
            let missing = flake.and_then(|flake| flake.missing_for(&message));
            let code = match missing.map(|missing| missing.retry) {
                Some(Retry::Backoff) => Code::Unavailable,
                Some(Retry::Never) | None => Code::Failed,
            };
            Err(match flake.and_then(|flake| flake.hint_on(&message)) {
                Some(hint) => Failure::new(code, anyhow::anyhow!("{hint}\n{text}")),
                None => Failure::new(code, anyhow::anyhow!("{text}")),
            })
        }
        Err(error) => Err(Failure::unavailable(error)),
    }
}
