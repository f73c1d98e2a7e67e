//! Aggregates: derivations that stand for other jobs, which they name. When all jobs are known, the
//! names are looked up and each aggregate gets the jobs as inputs, so that building it builds them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use gradient_daemon::derivation_hash::Hasher;
use gradient_domain::StorePath;

use super::daemons::{Daemons, LOCAL_MAX, within};
use super::glob::fits;
use super::line::{Line, plain_name};
use super::roots::Roots;
use super::store::Store;
use crate::exit::Failure;

/// What is remembered of every job: where it is, or why it is none.
type Jobs = BTreeMap<String, Result<StorePath, String>>;

/// The jobs of an evaluation, and the lines of those that wait for others.
#[derive(Default)]
pub(super) struct Aggregates {
    jobs: Jobs,
    waiting: BTreeMap<String, Line>,
}

/// What an aggregate is made of, by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    jobs: BTreeSet<String>,
    /// Those that cannot be had, and why.
    broken: BTreeMap<String, String>,
    /// What a person should know of.
    warnings: Vec<String>,
}

impl Aggregates {
    /// Notes a job; true if its line has to wait for the others.
    pub(super) fn keep(&mut self, line: &Line) -> bool {
        let job = match (&line.error, &line.drv_path) {
            (None, Some(drv_path)) => Ok(drv_path.clone()),
            (error, _) => Err(error.clone().unwrap_or_default()),
        };
        self.jobs.insert(line.attr.clone(), job);
        if line.waits_for_others() {
            self.waiting.insert(line.attr.clone(), line.clone());
            return true;
        }
        false
    }

    /// The lines that waited.
    pub(super) async fn finish(
        mut self,
        store: &Store,
        daemons: &Daemons,
        roots: Option<&Roots>,
        warn: &(dyn Fn(&str) + Sync),
    ) -> Result<Vec<Line>, Failure> {
        let mut parts = BTreeMap::new();
        for (attr, line) in &self.waiting {
            let found = parts_of(attr, line, &self.jobs);
            found.warnings.iter().for_each(|text| warn(text));
            parts.insert(attr.clone(), found);
        }
        let order = match order(&parts) {
            Ok(order) => order,
            Err(cycle) => return Ok(cycle.lines(self.waiting)),
        };
        let mut lines = Vec::new();
        for attr in order {
            let (Some(mut line), Some(parts)) = (self.waiting.remove(&attr), parts.get(&attr))
            else {
                continue;
            };
            line.named_constituents = None;
            if parts.broken.is_empty() {
                let rewritten = rewrite(&mut line, parts, &self.jobs, store, daemons).await?;
                if let (Some(drv_path), Some(roots)) = (&rewritten, roots) {
                    roots.add(daemons, drv_path).await?;
                }
                if let Some(drv_path) = rewritten {
                    self.jobs.insert(attr, Ok(drv_path));
                }
            } else {
                let reasons = parts.broken.iter().map(|(job, why)| format!("{job}: {why}\n"));
                line.error = Some(reasons.collect());
            }
            lines.push(line);
        }
        Ok(lines)
    }
}

/// Looks up what an aggregate names. A name that is no job is a pattern, if the aggregate says that
/// it has patterns; none of them means the aggregate itself.
fn parts_of(attr: &str, line: &Line, jobs: &Jobs) -> Parts {
    let globs = line.glob_constituents.unwrap_or_default();
    let mut parts = Parts::default();
    let names = line.named_constituents.iter().flatten();
    for name in names {
        if let Some(job) = jobs.get(name) {
            parts.take(attr, name, job);
        } else if !globs {
            parts.warnings.push(format!("aggregate '{attr}' names '{name}', which is no job"));
            parts.broken.insert(name.clone(), "does not exist".to_owned());
        } else {
            let before = parts.jobs.len() + parts.broken.len();
            let matching = jobs.iter().filter(|(job, _)| *job != attr && fits(name, job));
            let mut any = false;
            for (job, found) in matching {
                any |= found.is_ok();
                parts.take(attr, job, found);
            }
            if !any && parts.jobs.len() + parts.broken.len() == before {
                let text = format!("aggregate '{attr}' names '{name}', which fits no job");
                parts.warnings.push(text);
            }
            if !any {
                let why = "constituent glob pattern had no matches";
                parts.broken.insert(name.clone(), why.to_owned());
            }
        }
    }
    parts
}

impl Parts {
    fn take(&mut self, attr: &str, name: &str, job: &Result<StorePath, String>) {
        match job {
            Ok(_) => {
                self.jobs.insert(name.to_owned());
            }
            Err(why) => {
                self.warnings.push(format!("aggregate '{attr}' names '{name}', which failed"));
                self.broken.insert(name.to_owned(), why.clone());
            }
        }
    }
}

/// Aggregates that are made of each other.
#[derive(Debug, PartialEq, Eq)]
struct Cycle {
    /// Two neighbours in it.
    a: String,
    b: String,
}

impl Cycle {
    /// All aggregates fail.
    fn lines(&self, waiting: BTreeMap<String, Line>) -> Vec<Line> {
        let Cycle { a, b } = self;
        let failed = |(attr, mut line): (String, Line)| {
            line.error = Some(match attr == *a || attr == *b {
                true => format!("Dependency cycle: {a} <-> {b}"),
                false => "Skipping aggregate because of a dependency cycle".to_owned(),
            });
            line
        };
        waiting.into_iter().map(failed).collect()
    }
}

/// The aggregates in an order in which each comes after those that it is made of.
fn order(parts: &BTreeMap<String, Parts>) -> Result<Vec<String>, Cycle> {
    let mut order: Vec<String> = Vec::with_capacity(parts.len());
    let mut done = BTreeSet::new();
    for start in parts.keys() {
        let mut open = vec![start.as_str()];
        while let Some(attr) = open.last().copied() {
            let made_of = parts.get(attr).into_iter().flat_map(|parts| &parts.jobs);
            let mut next = made_of.filter(|job| {
                *job != attr && parts.contains_key(*job) && !done.contains(job.as_str())
            });
            match next.next() {
                Some(job) if open.contains(&job.as_str()) => {
                    return Err(Cycle { a: job.clone(), b: attr.to_owned() });
                }
                Some(job) => open.push(job),
                None => {
                    open.pop();
                    if done.insert(attr) {
                        order.push(attr.to_owned());
                    }
                }
            }
        }
    }
    Ok(order)
}

/// Gives an aggregate its jobs as inputs and writes it anew; `None` for one whose path is only known
/// after its build.
async fn rewrite(
    line: &mut Line,
    parts: &Parts,
    jobs: &Jobs,
    store: &Store,
    daemons: &Daemons,
) -> Result<Option<StorePath>, Failure> {
    let drv_path = line.drv_path.as_ref().context("an aggregate without a derivation")?;
    let name = plain_name(drv_path).to_owned();
    let mut derivation = store.read(drv_path)?;
    let mut constituents = line.constituents.take().unwrap_or_default();
    for job in &parts.jobs {
        let Some(Ok(path)) = jobs.get(job) else { continue };
        let outputs = store.read(path)?.outputs;
        let first = outputs.into_keys().next().context("a derivation without outputs")?;
        constituents.push(path.to_string());
        derivation.input_drvs.insert(path.clone(), BTreeSet::from([first]));
    }
    line.constituents = Some(constituents);
    let mut hasher = Hasher::new(|path: &StorePath| store.read(path));
    let has_paths = hasher
        .set_output_paths(&name, &mut derivation)
        .map_err(|error| Failure::unavailable(anyhow::anyhow!("{error}")))?;
    if !has_paths {
        return Ok(None);
    }
    let mut daemon = daemons.get().await?;
    let adding = daemon.connection().add_derivation(&name, &derivation);
    let written = within(LOCAL_MAX, adding).await?;
    daemon.give_back();
    line.outputs = Some(derivation.outputs.into_iter().map(|(n, o)| (n, o.path)).collect());
    line.drv_path = Some(written.clone());
    Ok(Some(written))
}
