//! From what the pool finds to lines on standard output, as it is found.

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::{StreamExt as _, stream};
use gradient_domain::derivation::Outline;
use gradient_domain::{AttrPath, Derivation, StorePath};
use gradient_fetch::LockedFlake;
use gradient_pool::{Extra, Found};
use tokio::sync::mpsc;

use super::aggregates::Aggregates;
use super::cache_status::{self, Graph};
use super::daemons::{CONNECTIONS_MAX, Daemons};
use super::line::{CacheStatus, Line, Wanted};
use super::output::{Reader, write_line};
use super::progress::Progress;
use super::roots::Roots;
use super::store::Store;
use crate::exit::Failure;

/// What is done with every result.
pub(super) struct Report {
    pub(super) store: Arc<Store>,
    /// The flake, if it is one.
    pub(super) locked: Option<LockedFlake>,
    pub(super) daemons: Arc<Daemons>,
    pub(super) wanted: Wanted,
    /// What is known of derivations, if their cache status is wanted.
    pub(super) graph: Option<Graph>,
    pub(super) roots: Option<Roots>,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) reader: Reader,
    /// Lines with an error.
    pub(super) failed: u64,
}

enum Entry {
    Line(Box<Line>),
    Warning { path: Option<AttrPath>, text: String },
}

impl Report {
    /// Prints until there is nothing more to come, or nobody reads on.
    pub(super) async fn run(
        self,
        mut found: mpsc::Receiver<Found>,
        mut progress: Progress,
    ) -> Result<Reported, Failure> {
        let results = stream::poll_fn(move |context| found.poll_recv(context));
        let at_once = if self.graph.is_some() { CONNECTIONS_MAX } else { 1 };
        let mut aggregates = self.wanted.constituents.then(Aggregates::default);
        let mut reader = Reader::Listens;
        {
            let entries = results.map(|found| self.entry(found)).buffer_unordered(at_once);
            tokio::pin!(entries);
            while reader == Reader::Listens
                && let Some(entry) = entries.next().await
            {
                match entry? {
                    Entry::Warning { path, text } => progress.warn(path.as_ref(), &text),
                    Entry::Line(line) => {
                        let kept = aggregates.as_mut().is_some_and(|all| all.keep(&line));
                        if !kept {
                            reader = print(&line, &mut progress)?;
                        }
                    }
                }
            }
        }
        if let (Some(aggregates), Reader::Listens) = (aggregates, reader) {
            let (store, daemons, roots) = (&self.store, &self.daemons, self.roots.as_ref());
            let warn = |text: &str| progress.warn(None, text);
            let lines = aggregates.finish(store, daemons, roots, &warn).await?;
            for mut line in lines {
                if let (None, Some(drv_path)) = (&line.error, &line.drv_path) {
                    // What was asked before was about another derivation.
                    line.cache = self.cache_status(drv_path, &store.read(drv_path)?).await?;
                }
                if reader == Reader::Listens {
                    reader = print(&line, &mut progress)?;
                }
            }
        }
        progress.finish();
        Ok(Reported { reader, failed: progress.failed })
    }

    async fn entry(&self, found: Found) -> Result<Entry, Failure> {
        let line = match found {
            Found::Warning { path, text } => return Ok(Entry::Warning { path, text }),
            Found::Error { path, message } => {
                let hint = self.locked.as_ref().and_then(|flake| flake.hint_on(&message));
                let message = hint.map(|hint| format!("{hint}\n{message}")).unwrap_or(message);
                Line::failed(path.unwrap_or_default(), message)
            }
            Found::Attribute { path, drv_path, extra } => {
                self.line(path, drv_path, extra.unwrap_or_default()).await?
            }
        };
        Ok(Entry::Line(Box::new(line)))
    }

    async fn line(
        &self,
        path: AttrPath,
        drv_path: StorePath,
        mut extra: Extra,
    ) -> Result<Line, Failure> {
        let outline = extra.outline.take();
        let is_enough = outline.is_some() && !self.wanted.input_drvs && self.graph.is_none();
        let read = (!is_enough).then(|| self.store.read(&drv_path)).transpose();
        let derivation = match read {
            Ok(derivation) => derivation,
            // Somebody may have collected it meanwhile.
            Err(error) => return Ok(Line::failed(path, format!("{error:#}"))),
        };
        let outline = outline.or_else(|| derivation.as_ref().map(Outline::from));
        let outline = outline.context("a derivation was neither told nor read")?;
        let cache = match &derivation {
            Some(derivation) => self.cache_status(&drv_path, derivation).await?,
            None => None,
        };
        if let Some(roots) = &self.roots {
            roots.add(&self.daemons, &drv_path).await?;
        }
        let mut line = Line::of(path, drv_path, (outline, derivation), extra, self.wanted)?;
        line.cache = cache;
        Ok(line)
    }

    /// The cache status of a derivation, if it is wanted.
    async fn cache_status(
        &self,
        drv_path: &StorePath,
        derivation: &Derivation,
    ) -> Result<Option<CacheStatus>, Failure> {
        let Some(graph) = &self.graph else { return Ok(None) };
        let of = (drv_path, derivation);
        cache_status::query(&self.daemons, &self.store, graph, of).await.map(Some)
    }
}

fn print(line: &Line, progress: &mut Progress) -> Result<Reader, Failure> {
    let text = line.to_json()?;
    // A slow reader holds up this thread only: the evaluation and Ctrl-C go on.
    let write = || write_line(&mut std::io::stdout().lock(), &text);
    let reader = tokio::task::block_in_place(|| progress.aside(write))?;
    progress.note(&line.attr, line.error.is_some());
    Ok(reader)
}
