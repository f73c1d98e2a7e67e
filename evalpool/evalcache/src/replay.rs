//! A whole evaluation out of the cache alone.

use std::collections::BTreeSet;

use gradient_domain::pattern::{Pattern, PatternSet};
use gradient_domain::{AttrPath, StorePath};
use gradient_ipc::discovery::WARNINGS_MAX;
use gradient_ipc::message::{ListOk, PlanOk};
use gradient_ipc::shard::Recursion;
use gradient_ipc::tree::{AttrError, Job};
use gradient_ipc::walker;
use rusqlite::{OptionalExtension, params};
use sha2::{Digest, Sha256};

use crate::file::{CacheError, EvalCache, remove};
use crate::no_tree::NoTree;
use crate::rows::code;
use crate::tree::CachedTree;

/// What was asked of a flake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the tree begins; patterns and results count from there.
    pub fragment: AttrPath,
    /// The includes and excludes.
    pub patterns: PatternSet,
    /// How far below them.
    pub recursion: Recursion,
}

impl Request {
    /// Patterns over the whole tree.
    #[must_use]
    pub fn new(patterns: PatternSet, recursion: Recursion) -> Request {
        Request { fragment: AttrPath::default(), patterns, recursion }
    }

    /// The request as the file names it.
    #[must_use]
    pub fn key(&self) -> String {
        let mut texts: Vec<String> =
            Vec::<Pattern>::from(self.patterns.clone()).iter().map(Pattern::to_string).collect();
        texts.sort();
        let recursion = match self.recursion {
            Recursion::Pattern => "pattern",
            Recursion::Marked => "marked",
            Recursion::Tree => "tree",
            Recursion::WholeTree => "whole-tree",
        };
        let below = match self.fragment.is_empty() {
            true => String::new(),
            false => format!(" below {}", self.fragment),
        };
        format!("{recursion}{below} {}", texts.join(","))
    }

    /// A path as the flake has it.
    fn whole_path(&self, path: &AttrPath) -> AttrPath {
        AttrPath([self.fragment.0.as_slice(), path.0.as_slice()].concat())
    }

    /// Of warnings by the flake's own paths those about what was found, what leads there, and the flake
    /// as a whole; by the paths of this request.
    pub fn concerning<'a>(
        &'a self,
        warnings: Vec<Warned>,
        found: impl IntoIterator<Item = &'a AttrPath>,
    ) -> Vec<Warned> {
        let ways: BTreeSet<&[String]> = found
            .into_iter()
            .flat_map(|path| (0..=path.0.len()).map(|len| &path.0[..len]))
            .collect();
        let fragment = self.fragment.0.as_slice();
        let here = |attr: AttrPath| match attr.0.strip_prefix(fragment) {
            Some(below) => {
                let concerns = below.is_empty() || ways.contains(below);
                concerns.then(|| AttrPath(below.to_vec()))
            }
            // It leads to where the request begins.
            None => fragment.starts_with(&attr.0).then(AttrPath::default),
        };
        let concerns = |(attr, text): Warned| match attr {
            Some(attr) => Some((Some(here(attr)?), text)),
            None => Some((None, text)),
        };
        let mut concerning: Vec<Warned> = warnings.into_iter().filter_map(concerns).collect();
        // Of attributes with the same text, the same one is told each time.
        concerning.sort();
        concerning
    }
}

/// A warning, and the attribute that brought it up.
pub type Warned = (Option<AttrPath>, String);

/// Everything that an evaluation finds, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluated {
    /// The derivations.
    pub jobs: Vec<(AttrPath, Job)>,
    /// What could not be evaluated.
    pub errors: Vec<AttrError>,
    /// What the evaluator warned of, and where.
    pub warnings: Vec<Warned>,
}

impl Evaluated {
    /// Every path that something was found about.
    fn paths(&self) -> impl Iterator<Item = &AttrPath> {
        let jobs = self.jobs.iter().map(|(path, _)| path);
        jobs.chain(self.errors.iter().map(|error| &error.attr))
    }

    /// A digest of the derivations and errors.
    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        let mut part = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        for (path, job) in &self.jobs {
            part(path.to_string().as_bytes());
            part(job.drv_path.base_name().as_bytes());
            let extra = job.extra.as_ref();
            let name = extra.and_then(|extra| extra.name.as_deref());
            part(name.unwrap_or_default().as_bytes());
            if let Some(outline) = extra.and_then(|extra| extra.outline.as_ref()) {
                part(outline.system.0.as_bytes());
                for (name, path) in &outline.outputs {
                    part(name.as_bytes());
                    part(path.as_ref().map_or("", StorePath::base_name).as_bytes());
                }
                outline.required_system_features.iter().for_each(|name| part(name.as_bytes()));
            }
        }
        part(b"errors");
        for error in &self.errors {
            part(error.attr.to_string().as_bytes());
            part(error.message.as_bytes());
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What a cache says to a request.
#[derive(Debug)]
pub enum Replay {
    /// The whole answer.
    Complete(Evaluated),
    /// Something has to be evaluated.
    Incomplete,
}

/// Answers a request from the cache alone, if an evaluation of it was completed before and
/// everything that it found is still there. A cache whose answer is not what that evaluation found
/// is damaged: it is removed.
///
/// # Errors
/// If the file does not answer.
pub fn replay(
    cache: EvalCache,
    request: &Request,
    exists: impl Fn(&StorePath) -> bool + 'static,
) -> Result<Replay, CacheError> {
    let Some(digest) = cache.completed(request)? else {
        return Ok(Replay::Incomplete);
    };
    let warnings = cache.warnings()?;
    let path = cache.path().to_owned();
    let mut tree = tree_of(cache, request, exists)?;
    let mut outcome = walk(&mut tree, request);
    let is_whole = outcome.is_some();
    if !is_whole {
        let Some(cache) = tree.into_cache() else {
            return Ok(Replay::Incomplete);
        };
        // The answer was complete once: unless a derivation is gone, the file is not what it was, and
        // whoever evaluates must not go on with it.
        outcome = walk(&mut tree_of(cache, request, |_| true)?, request);
    }
    match outcome {
        Some(outcome) if outcome.digest() == digest => {
            let warnings = request.concerning(warnings, outcome.paths());
            let answer = Evaluated { warnings, ..outcome };
            Ok(if is_whole { Replay::Complete(answer) } else { Replay::Incomplete })
        }
        Some(_) | None => {
            remove(&path)?;
            Ok(Replay::Incomplete)
        }
    }
}

impl EvalCache {
    /// Keeps the warnings of an evaluation, and notes that it is complete if the file alone can answer
    /// it; then moves what was written into the main file. Called last, by the one that ran the
    /// evaluation. Says whether it was noted.
    ///
    /// # Errors
    /// If the file does not answer.
    pub fn complete(
        self,
        request: &Request,
        warnings: &[Warned],
        exists: impl Fn(&StorePath) -> bool + 'static,
    ) -> Result<bool, CacheError> {
        self.keep_warnings(request, warnings)?;
        let mut tree = tree_of(self, request, exists)?;
        let outcome = walk(&mut tree, request);
        let Some(cache) = tree.into_cache() else {
            return Ok(false);
        };
        if let Some(outcome) = &outcome {
            let one = "insert into GradientComplete(request, digest, attributes, errors)
                       values (?, ?, ?, ?)
                       on conflict(request) do update set
                         digest = excluded.digest,
                         attributes = excluded.attributes,
                         errors = excluded.errors";
            let counts = (outcome.jobs.len() as u64, outcome.errors.len() as u64);
            cache
                .connection
                .execute(one, params![request.key(), outcome.digest(), counts.0, counts.1])?;
        }
        cache.checkpoint()?;
        Ok(outcome.is_some())
    }

    /// Whether a derivation that the file names, for whatever request, is one that `is_wanted`.
    ///
    /// # Errors
    /// If the file does not answer.
    pub fn any_derivation(
        &self,
        is_wanted: impl Fn(&StorePath) -> bool,
    ) -> Result<bool, CacheError> {
        let all = "select value from Attributes where name = 'drvPath' and type = ?";
        let mut all = self.connection.prepare(all)?;
        let mut found = all.query([code::STRING])?;
        while let Some(row) = found.next()? {
            let text: Option<String> = row.get(0)?;
            if text.and_then(|text| text.parse().ok()).is_some_and(|path| is_wanted(&path)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the file says that it can answer a request alone.
    ///
    /// # Errors
    /// If the file does not answer.
    pub fn answers(&self, request: &Request) -> Result<bool, CacheError> {
        Ok(self.completed(request)?.is_some())
    }

    /// The digest of a completed evaluation.
    fn completed(&self, request: &Request) -> Result<Option<String>, CacheError> {
        let one = "select digest from GradientComplete where request = ?";
        let found = self.connection.query_row(one, [request.key()], |row| row.get(0)).optional();
        Ok(found?)
    }

    /// Keeps warnings for later evaluations, whatever those ask for: an attribute that is known is not
    /// evaluated again and warns no more.
    fn keep_warnings(&self, request: &Request, warnings: &[Warned]) -> Result<(), CacheError> {
        let one = "insert into GradientWarning(attribute, warning)
                   select ?1, ?2 where (select count(*) from GradientWarning) < ?3
                   on conflict do nothing";
        let mut one = self.connection.prepare(one)?;
        for (attr, warning) in warnings.iter().filter(|(_, text)| !is_of_the_network(text)) {
            let attr = attr.as_ref().map(|attr| request.whole_path(attr));
            let attr = serde_json::to_string(&attr).unwrap_or_default();
            one.execute(params![attr, warning, WARNINGS_MAX])?;
        }
        Ok(())
    }

    /// The warnings that were kept, by the flake's own paths.
    ///
    /// # Errors
    /// If the file does not answer.
    pub fn warnings(&self) -> Result<Vec<Warned>, CacheError> {
        let mut all = self.connection.prepare("select attribute, warning from GradientWarning")?;
        let rows = all.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
        let mut warnings = Vec::new();
        for row in rows {
            let (attr, warning) = row?;
            let damaged = |error: serde_json::Error| CacheError::Damaged(error.to_string());
            warnings.push((serde_json::from_str(&attr).map_err(damaged)?, warning));
        }
        Ok(warnings)
    }
}

/// What a download says of itself is nothing about the flake.
fn is_of_the_network(warning: &str) -> bool {
    warning.contains("unable to download") || warning.contains("; retrying in")
}

/// What a cache alone knows of the tree that a request is about.
fn tree_of(
    cache: EvalCache,
    request: &Request,
    exists: impl Fn(&StorePath) -> bool + 'static,
) -> Result<CachedTree<NoTree>, CacheError> {
    let tree = CachedTree::in_memory(cache, || Ok(NoTree), exists)?;
    Ok(tree.below(request.fragment.0.clone()))
}

/// Walks the whole request over the cache alone; `None` as soon as it does not know something.
fn walk(tree: &mut CachedTree<NoTree>, request: &Request) -> Option<Evaluated> {
    let excludes: BTreeSet<AttrPath> = request.patterns.excludes.iter().cloned().collect();
    let includes = request.patterns.includes.iter();
    let patterns: Vec<_> = includes.map(|include| include.segments.clone()).collect();
    if patterns.is_empty() {
        return Some(Evaluated::default());
    }
    let PlanOk { mut shards, errors } = walker::plan(tree, &patterns, request.recursion).ok()?;
    let (mut jobs, mut errors) = (BTreeSet::new(), BTreeSet::from_iter(errors));
    errors.retain(|error| !excludes.contains(&error.attr));
    if tree.forced() > 0 {
        return None;
    }
    while let Some(shard) = shards.pop() {
        let ListOk { items, deferred, warnings: _, errors: found } =
            walker::list(tree, &shard, &excludes).ok()?;
        if tree.forced() > 0 {
            return None;
        }
        for item in items {
            match item.result {
                Ok(job) => drop(jobs.insert((item.attr, job))),
                Err(message) => drop(errors.insert(AttrError { attr: item.attr, message })),
            }
        }
        errors.extend(found);
        shards.extend(deferred);
    }
    let warnings = Vec::new();
    Some(Evaluated {
        jobs: jobs.into_iter().collect(),
        errors: errors.into_iter().collect(),
        warnings,
    })
}
