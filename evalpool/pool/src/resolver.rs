//! One evaluation over the pool: plan, list in batches, defer, survive crashes, stream results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gradient_domain::pattern::{Pattern, PatternSet, ROOTS, Segment};
use gradient_domain::{AttrPath, StorePath};
use gradient_evalcache::{Evaluated, Warned};
use gradient_ipc::discovery::{Call, Crash, Discovery, Merge, Work};
use gradient_ipc::message::{CacheFile, List, ListOk, Plan, PlanOk, Request, Response, Source};
use gradient_ipc::shard::Recursion;
use gradient_ipc::tree::{AttrError, Extra, Job};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cache::EvaluationCache;
use crate::eval_stats::{EntryPoints, Usage};
use crate::pool::{Inner, Pool};
use crate::transport::{Answer, SpawnError, Warning, unexpected};

/// What is to be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The tree of attributes. Its cache is the pool's matter.
    pub source: Source,
    /// What of it.
    pub patterns: PatternSet,
    /// How far below the patterns.
    pub recursion: Recursion,
    /// The complete lock file of the flake, if it is not the one in its locked tree.
    pub locks: String,
}

impl Evaluation {
    /// The jobs of a locked flake that patterns match, by a fleet's rules.
    #[must_use]
    pub fn of_flake(locked_url: &str, patterns: PatternSet) -> Evaluation {
        let source = Source::flake(locked_url);
        Evaluation { source, patterns, recursion: Recursion::Pattern, locks: String::new() }
    }
}

/// Something that an evaluation found, as soon as it is known. Nothing is told twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// A derivation.
    Attribute {
        /// Where.
        path: AttrPath,
        /// Its `.drv` file, which exists in the store.
        drv_path: StorePath,
        /// What else was asked for.
        extra: Option<Extra>,
    },
    /// Something that could not be evaluated. The evaluation goes on, and fails in the end.
    Error {
        /// Where, if it has a place.
        path: Option<AttrPath>,
        /// Nix's message, or ours; without the path.
        message: String,
    },
    /// Something worth telling.
    Warning {
        /// The attribute that brought it up, if it was one.
        path: Option<AttrPath>,
        /// All its lines.
        text: String,
    },
}

/// Why an evaluation failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The flake cannot be fetched, parsed, or its outputs not evaluated.
    #[error("{message}")]
    Flake {
        /// What Nix says.
        message: String,
    },
    /// There is no evaluator to work with.
    #[error("no evaluator")]
    Spawn(#[from] SpawnError),
    /// A subprocess broke the rules of the conversation.
    #[error("{reason}")]
    Protocol {
        /// How.
        reason: String,
    },
    /// Nobody listens to the results any more, or the pool was shut down.
    #[error("evaluation cancelled")]
    Cancelled,
}

/// What an evaluation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoverySummary {
    /// Derivations found.
    pub attributes: u64,
    /// Errors told.
    pub errors: u64,
    /// Warnings told.
    pub warnings: u64,
    /// Whether the evaluation cache had the whole answer, so that nothing was evaluated.
    pub is_cached: bool,
    /// Whether the evaluation cache can answer this evaluation from now on, and could not before.
    pub is_cache_completed: bool,
    /// Calls to subprocesses.
    pub calls: u64,
    /// Calls that a subprocess did not survive.
    pub crashes: u64,
    /// Time from begin to end.
    pub wall: Duration,
    /// What the calls used.
    pub usage: Usage,
    /// What of that each pattern used.
    pub entry_points: EntryPoints,
}

impl Pool {
    /// The cache of an evaluation; `None` if nothing of it can be kept.
    ///
    /// # Errors
    /// If a child has to be asked for its version of Nix, and there is none.
    pub async fn cache_of(
        &self,
        evaluation: &Evaluation,
    ) -> Result<Option<EvaluationCache>, SpawnError> {
        self.inner.cache_of(evaluation).await
    }

    /// Evaluates and streams what the patterns match. Dropping the future, or the
    /// receiver of the results, cancels: children at work are killed.
    ///
    /// # Errors
    /// If the evaluation fails as a whole. What was streamed before stays valid.
    pub async fn discover(
        &self,
        evaluation: &Evaluation,
        sink: mpsc::Sender<Found>,
    ) -> Result<DiscoverySummary, DiscoverError> {
        let begin = Instant::now();
        let running = self.inner.enter();
        let mut resolver = Resolver::new(&self.inner, evaluation, sink);
        let cache = self.inner.cache_of(evaluation).await?;
        let answer = match &cache {
            Some(cache) => cache.replay().await,
            None => None,
        };
        if let Some(evaluated) = answer {
            resolver.replayed(evaluated).await?;
        } else {
            resolver.set_cache(cache.as_ref().map(EvaluationCache::file));
            resolver.run().await?;
            if let Some(cache) = cache {
                let warnings = std::mem::take(&mut resolver.warnings);
                resolver.summary.is_cache_completed = cache.complete(warnings).await;
            }
        }
        resolver.report_unmatched(&evaluation.patterns).await?;
        running.finish().await;
        resolver.summary.wall = begin.elapsed();
        Ok(resolver.summary)
    }
}

enum Outcome {
    Answered(Answer),
    Crashed(Crash),
    Unavailable(SpawnError),
    ShutDown,
}

struct Resolver {
    inner: Arc<Inner>,
    source: Arc<Source>,
    excludes: Arc<[AttrPath]>,
    discovery: Discovery,
    merge: Merge,
    sink: mpsc::Sender<Found>,
    /// The warnings of the evaluators, for the cache.
    warnings: Vec<Warned>,
    summary: DiscoverySummary,
}

impl Resolver {
    fn new(inner: &Arc<Inner>, evaluation: &Evaluation, sink: mpsc::Sender<Found>) -> Resolver {
        let Evaluation { source, patterns, recursion, locks: _ } = evaluation;
        let includes = patterns.includes.iter().map(|include| include.segments.clone()).collect();
        Resolver {
            inner: inner.clone(),
            source: Arc::new(source.clone()),
            excludes: patterns.excludes.as_slice().into(),
            discovery: Discovery::new(inner.settings.children.max(1), includes, *recursion),
            merge: Merge::new(patterns.excludes.iter().cloned().collect()),
            sink,
            warnings: Vec::new(),
            summary: DiscoverySummary {
                entry_points: EntryPoints::new(&patterns.includes),
                ..DiscoverySummary::default()
            },
        }
    }

    /// Lets the children read and write this cache.
    fn set_cache(&mut self, cache: Option<CacheFile>) {
        self.source = Arc::new(Source { cache, ..(*self.source).clone() });
    }

    /// Tells what the cache knows.
    async fn replayed(&mut self, evaluated: Evaluated) -> Result<(), DiscoverError> {
        self.summary.is_cached = true;
        for (path, text) in evaluated.warnings {
            self.warning(Warning { path, text }).await?;
        }
        for (attr, job) in evaluated.jobs {
            self.job(attr, job).await?;
        }
        for error in evaluated.errors {
            self.error(error).await?;
        }
        Ok(())
    }

    /// Works until the queue is empty. Dropping the set of calls kills the children at work.
    async fn run(&mut self) -> Result<(), DiscoverError> {
        let mut calls = JoinSet::new();
        loop {
            while calls.len() < self.inner.settings.children.max(1) {
                let Some(call) = self.discovery.next_call() else {
                    break;
                };
                self.summary.calls += 1;
                calls.spawn(perform(
                    self.inner.clone(),
                    self.source.clone(),
                    self.excludes.clone(),
                    self.discovery.recursion(),
                    call,
                ));
            }
            let sink = self.sink.clone();
            let done = tokio::select! {
                done = calls.join_next() => done,
                () = sink.closed() => return Err(DiscoverError::Cancelled),
            };
            match done {
                None => return Ok(()),
                Some(Ok((call, outcome))) => self.take(call, outcome).await?,
                Some(Err(lost)) => {
                    return Err(DiscoverError::Protocol { reason: format!("call lost: {lost}") });
                }
            }
        }
    }

    async fn take(&mut self, call: Call, outcome: Outcome) -> Result<(), DiscoverError> {
        let answer = match outcome {
            Outcome::Answered(answer) => answer,
            Outcome::Crashed(crash) => {
                tracing::warn!(cause = crash.cause, "evaluator crashed");
                self.summary.crashes += 1;
                match self.discovery.crashed(call, &crash) {
                    Some(error) => return self.error(error).await,
                    None => return Ok(()),
                }
            }
            Outcome::Unavailable(error) => return Err(error.into()),
            Outcome::ShutDown => return Err(DiscoverError::Cancelled),
        };
        if let Some(stats) = &answer.stats {
            self.summary.usage.add(stats);
            if let Work::List(shard) = &call.work {
                self.summary.entry_points.add(shard, stats);
            }
        }
        for warning in answer.warnings {
            self.warning(warning).await?;
        }
        if answer.response == Response::TooLong {
            return match self.discovery.answer_too_long(call) {
                Some(error) => self.error(error).await,
                None => Ok(()),
            };
        }
        match (&call.work, answer.response) {
            (Work::Plan(_), Response::PlanOk(planned)) => self.planned(planned).await,
            (Work::List(_), Response::ListOk(listed)) => self.listed(listed).await,
            (Work::List(_), Response::Err(_)) if self.discovery.failed_once(&call) => Ok(()),
            (_, Response::Err(failure)) => Err(DiscoverError::Flake { message: failure.message }),
            (_, response) => Err(DiscoverError::Protocol { reason: unexpected(&response) }),
        }
    }

    async fn planned(&mut self, planned: PlanOk) -> Result<(), DiscoverError> {
        self.discovery.add_shards(planned.shards);
        for error in planned.errors {
            self.error(error).await?;
        }
        Ok(())
    }

    async fn listed(&mut self, listed: ListOk) -> Result<(), DiscoverError> {
        self.discovery.add_shards(listed.deferred);
        for item in listed.items {
            match item.result {
                Err(message) => self.error(AttrError { attr: item.attr, message }).await?,
                Ok(job) => self.job(item.attr, job).await?,
            }
        }
        for error in listed.errors {
            self.error(error).await?;
        }
        for text in listed.warnings {
            self.warning(Warning { path: None, text }).await?;
        }
        Ok(())
    }

    async fn job(&mut self, path: AttrPath, job: Job) -> Result<(), DiscoverError> {
        if !self.merge.is_new_attribute(&path) {
            return Ok(());
        }
        self.summary.attributes += 1;
        self.tell(Found::Attribute { path, drv_path: job.drv_path, extra: job.extra }).await
    }

    async fn error(&mut self, error: AttrError) -> Result<(), DiscoverError> {
        if !self.merge.is_new_error(&error) {
            return Ok(());
        }
        self.summary.errors += 1;
        self.tell(Found::Error { path: Some(error.attr), message: error.message }).await
    }

    async fn warning(&mut self, warning: Warning) -> Result<(), DiscoverError> {
        if !self.merge.is_new_warning(&warning.text) {
            return Ok(());
        }
        self.summary.warnings += 1;
        self.warnings.push((warning.path.clone(), warning.text.clone()));
        self.tell(Found::Warning { path: warning.path, text: warning.text }).await
    }

    async fn tell(&self, found: Found) -> Result<(), DiscoverError> {
        self.sink.send(found).await.map_err(|_| DiscoverError::Cancelled)
    }

    /// Whether something told about this path answers this pattern.
    fn is_of(&self, include: &Pattern, path: &AttrPath) -> bool {
        let is_deep = self.discovery.recursion() != Recursion::Pattern
            && include.segments.last() == Some(&Segment::Star);
        let depth = path.0.len().min(include.segments.len());
        include.reaches(path)
            || include.passes(path)
            || (is_deep && include.reaches(&AttrPath(path.0[..depth].to_vec())))
    }

    /// Whoever names an attribute wants it to be there; a wildcard may match nothing.
    async fn report_unmatched(&mut self, patterns: &PatternSet) -> Result<(), DiscoverError> {
        let whole_tree = |include: &Pattern| include.segments == [Segment::Star];
        if patterns.includes.iter().all(whole_tree) {
            // A local evaluation of a whole tree names nothing, so nothing of it is missing.
            return Ok(());
        }
        let unmatched: Vec<_> = patterns
            .includes
            .iter()
            .filter(|include| !self.merge.paths().any(|path| self.is_of(include, path)))
            .collect();
        let everything = ROOTS.map(|root| Pattern {
            exclude: false,
            segments: vec![Segment::Name(root.to_owned()), Segment::Star],
        });
        let wants_everything = everything.iter().all(|root| patterns.includes.contains(root));
        let nothing = everything.iter().all(|root| unmatched.contains(&root));
        if wants_everything && nothing {
            let text = "pattern '*' matched no derivations in the flake".to_owned();
            self.warning(Warning { path: None, text }).await?;
        }
        for include in unmatched {
            if let Some(path) = include.exact_path() {
                let message = format!("target '{path}' matched no derivations in the flake");
                self.error(AttrError { attr: path, message }).await?;
            } else if !(wants_everything && everything.contains(include)) {
                let text = format!("pattern '{include}' matched no derivations in the flake");
                self.warning(Warning { path: None, text }).await?;
            }
        }
        Ok(())
    }
}

/// One call on a borrowed child.
async fn perform(
    inner: Arc<Inner>,
    source: Arc<Source>,
    excludes: Arc<[AttrPath]>,
    recursion: Recursion,
    call: Call,
) -> (Call, Outcome) {
    let mut checkout = match inner.checkout(&source).await {
        Ok(Some(checkout)) => checkout,
        Ok(None) => return (call, Outcome::ShutDown),
        Err(error) => return (call, Outcome::Unavailable(error)),
    };
    // Nix was replaced while this process runs: the cache is named after the other one.
    let source = match inner.nix_version.get() {
        Some(version) if *version == checkout.transport.nix_version => source,
        Some(_) | None => Arc::new(Source { cache: None, ..(*source).clone() }),
    };
    let request = match call.work.clone() {
        Work::Plan(patterns) => {
            Request::Plan(Plan { source: (*source).clone(), patterns, recursion })
        }
        Work::List(shard) => {
            let excludes = excludes.to_vec();
            Request::List(List { source: (*source).clone(), shard, excludes })
        }
    };
    let outcome = match checkout.transport.call(&request, inner.settings.call_limit).await {
        Ok(answer) => {
            // A child that could not open the flake may be in any state: it is not kept.
            if !matches!(answer.response, Response::Err(_)) {
                checkout.transport.warm = Some(source);
                checkout.give_back();
            }
            Outcome::Answered(answer)
        }
        Err(crash) => Outcome::Crashed(crash),
    };
    (call, outcome)
}
