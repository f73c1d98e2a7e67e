//! The course of one evaluation over the pool: plan, list in batches, defer, survive crashes, stream
//! results.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use gradient_domain::AttrPath;
use gradient_evalcache::{Evaluated, Warned};
use gradient_ipc::discovery::{Call, Discovery, Merge, WARNINGS_MAX, Work};
use gradient_ipc::message::{CacheFile, ListOk, PlanOk, Response, Source};
use gradient_ipc::tree::{AttrError, Job};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cache::EvaluationCache;
use crate::call::{Outcome, perform};
use crate::eval_stats::EntryPoints;
use crate::evaluation::{DiscoverError, DiscoverySummary, Evaluation, Found};
use crate::pool::{Inner, Pool};
use crate::transport::{SpawnError, Warning, unexpected};

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
                resolver.recall(&cache).await?;
                let warnings = std::mem::take(&mut resolver.warnings).into_iter().collect();
                resolver.summary.is_cache_completed = cache.complete(warnings).await;
            }
        }
        resolver.report_unmatched(&evaluation.patterns).await?;
        running.finish().await;
        resolver.summary.wall = begin.elapsed();
        Ok(resolver.summary)
    }
}

/// An evaluation that runs.
pub(crate) struct Resolver {
    inner: Arc<Inner>,
    source: Arc<Source>,
    excludes: Arc<[AttrPath]>,
    pub(crate) discovery: Discovery,
    pub(crate) merge: Merge,
    sink: mpsc::Sender<Found>,
    /// The warnings of the evaluators, for the cache.
    warnings: BTreeSet<Warned>,
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
            warnings: BTreeSet::new(),
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

    /// Tells what evaluations before warned of where this one found something: an attribute that the
    /// cache knows warns no more.
    async fn recall(&mut self, cache: &EvaluationCache) -> Result<(), DiscoverError> {
        let warnings = cache.warnings().await;
        for (path, text) in cache.concerning(warnings, self.merge.paths()) {
            self.warning(Warning { path, text }).await?;
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

    pub(crate) async fn error(&mut self, error: AttrError) -> Result<(), DiscoverError> {
        if !self.merge.is_new_error(&error) {
            return Ok(());
        }
        self.summary.errors += 1;
        self.tell(Found::Error { path: Some(error.attr), message: error.message }).await
    }

    pub(crate) async fn warning(&mut self, warning: Warning) -> Result<(), DiscoverError> {
        if self.warnings.len() < WARNINGS_MAX {
            // Whoever asks for another attribute with the same text is told it of that one.
            self.warnings.insert((warning.path.clone(), warning.text.clone()));
        }
        if !self.merge.is_new_warning(&warning.text) {
            return Ok(());
        }
        self.summary.warnings += 1;
        self.tell(Found::Warning { path: warning.path, text: warning.text }).await
    }

    async fn tell(&self, found: Found) -> Result<(), DiscoverError> {
        self.sink.send(found).await.map_err(|_| DiscoverError::Cancelled)
    }
}
