//! The closure walk: what the evaluators find is read from `.drv` files, uploaded, and reported in
//! batches while the evaluation goes on. A batch never overtakes its own uploads.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt as _;
use gradient_domain::derivation::DERIVATION_SIZE_MAX;
use gradient_domain::{AttrPath, Derivation, StorePath};
use gradient_events::job::Output;
use gradient_events::worker::{
    Dependency, DiscoveredDerivation, EvalMessage, EvalResult, JobUpdate,
};
use gradient_events::{FailureKind, PAGE_BYTES_MAX};
use gradient_pool::Found;

use super::Evaluator;
use crate::job::{JobEnd, Running, cut};

/// Derivations after which a batch leaves though more come (reference 5.13).
const BATCH: usize = 50;
/// Bytes after which a batch leaves; one derivation may stand over it.
const BATCH_BYTES: usize = PAGE_BYTES_MAX / 2;
/// Longest text of a message, in bytes.
const TEXT_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Recorder<'a> {
    evaluator: &'a Evaluator,
    running: &'a Running,
    /// Derivations that were reported or need not be.
    seen: BTreeSet<StorePath>,
    batch: EvalResult,
    batch_bytes: usize,
    announced: bool,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(evaluator: &'a Evaluator, running: &'a Running) -> Self {
        Self {
            evaluator,
            running,
            seen: BTreeSet::new(),
            batch: EvalResult::default(),
            batch_bytes: 0,
            announced: false,
        }
    }

    pub(super) async fn take(&mut self, found: Found) -> Result<(), JobEnd> {
        if !self.announced {
            self.announced = true;
            self.running.update(JobUpdate::EvaluatingDerivations).await;
        }
        match found {
            Found::Attribute { path, drv_path } => self.attribute(path, drv_path).await,
            Found::Error { path, message } => {
                let text = cut(message, TEXT_BYTES_MAX);
                self.batch_bytes += text.len();
                self.batch.errors.push(EvalMessage { attr: path, text });
                self.flush_if_full().await
            }
            Found::Warning(text) => {
                let text = cut(text, TEXT_BYTES_MAX);
                self.batch_bytes += text.len();
                self.batch.warnings.push(EvalMessage { attr: None, text });
                self.flush_if_full().await
            }
        }
    }

    /// Records an attribute's derivation and all that is new below it, inputs first, so that leaves
    /// can be built while the walk goes on.
    async fn attribute(&mut self, attr: AttrPath, root: StorePath) -> Result<(), JobEnd> {
        if self.seen.contains(&root) {
            // Another name of a derivation that is recorded already is another entry point of it.
            let derivation = self.read(&root).await?;
            return self.push(root, &derivation, vec![attr]).await;
        }
        let mut open: BTreeMap<StorePath, Derivation> = BTreeMap::new();
        let mut stack = vec![root.clone()];
        while let Some(path) = stack.last().cloned() {
            if self.seen.contains(&path) {
                stack.pop();
                continue;
            }
            if let Some(derivation) = open.remove(&path) {
                stack.pop();
                self.seen.insert(path.clone());
                let attrs = if path == root { vec![attr.clone()] } else { Vec::new() };
                self.push(path, &derivation, attrs).await?;
                continue;
            }
            let derivation = self.read(&path).await?;
            let inputs = derivation.input_drvs.keys();
            let mut new: Vec<StorePath> = inputs
                .filter(|input| !self.seen.contains(*input) && !open.contains_key(*input))
                .cloned()
                .collect();
            if !new.is_empty() {
                let known = self.evaluator.queries.known_derivations(&new).await;
                self.seen.extend(known);
                new.retain(|input| !self.seen.contains(input));
            }
            open.insert(path, derivation);
            stack.extend(new);
        }
        Ok(())
    }

    async fn push(
        &mut self,
        drv_path: StorePath,
        derivation: &Derivation,
        attrs: Vec<AttrPath>,
    ) -> Result<(), JobEnd> {
        let discovered = discovered(drv_path, derivation, attrs);
        self.batch_bytes += bytes(&discovered);
        self.batch.derivations.push(discovered);
        self.flush_if_full().await
    }

    async fn read(&self, path: &StorePath) -> Result<Derivation, JobEnd> {
        let file = self.evaluator.store_dir.join(path.base_name());
        let unreadable = |problem: String| {
            JobEnd::failed(
                FailureKind::Permanent,
                format!("cannot read derivation {path}: {problem}"),
            )
        };
        let size =
            tokio::fs::metadata(&file).await.map_err(|error| unreadable(error.to_string()))?.len();
        if size > DERIVATION_SIZE_MAX as u64 {
            return Err(unreadable(format!(
                "{size} bytes are over the limit of {DERIVATION_SIZE_MAX}"
            )));
        }
        let text = tokio::fs::read(&file).await.map_err(|error| unreadable(error.to_string()))?;
        Derivation::parse(&text).map_err(|error| unreadable(error.to_string()))
    }

    async fn flush_if_full(&mut self) -> Result<(), JobEnd> {
        let texts = self.batch.errors.len() + self.batch.warnings.len();
        let full = self.batch.derivations.len() >= BATCH
            || texts >= BATCH
            || self.batch_bytes >= BATCH_BYTES;
        if full { self.flush().await } else { Ok(()) }
    }

    /// Uploads what the batch needs, then reports it.
    pub(super) async fn flush(&mut self) -> Result<(), JobEnd> {
        if self.batch == EvalResult::default() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let paths: BTreeSet<StorePath> =
            batch.derivations.iter().map(|d| d.drv_path.clone()).collect();
        if !paths.is_empty() {
            let Evaluator { cache, store, .. } = self.evaluator;
            let uploaded = cache
                .upload_closure(store, &paths, self.running.upload_token.as_str())
                .boxed()
                .await;
            uploaded.map_err(|error| {
                let error = anyhow::Error::from(error);
                JobEnd::failed(
                    FailureKind::Transient,
                    format!("derivations cannot be uploaded: {error:#}"),
                )
            })?;
        }
        self.running.update(JobUpdate::EvalResult(batch)).await;
        Ok(())
    }
}

fn discovered(
    drv_path: StorePath,
    derivation: &Derivation,
    attrs: Vec<AttrPath>,
) -> DiscoveredDerivation {
    let outputs = derivation.outputs.iter();
    let dependencies = derivation.input_drvs.iter();
    DiscoveredDerivation {
        attrs,
        drv_path,
        outputs: outputs
            .map(|(name, output)| Output { name: name.clone(), path: output.path.clone() })
            .collect(),
        dependencies: dependencies
            .map(|(drv_path, outputs)| Dependency {
                drv_path: drv_path.clone(),
                outputs: outputs.iter().cloned().collect(),
            })
            .collect(),
        requirement: derivation.requirement(),
        is_fixed_output: derivation.is_fixed_output(),
        prefer_local_build: derivation.prefer_local_build(),
        timeout_secs: derivation.timeout_secs(),
        max_silent_secs: derivation.max_silent_secs(),
        pname: derivation.pname(),
    }
}

/// About as many bytes as the derivation takes in a batch.
fn bytes(discovered: &DiscoveredDerivation) -> usize {
    const PER_ITEM: usize = 96;
    let names: usize =
        discovered.attrs.iter().flat_map(|attr| &attr.0).map(|name| name.len() + 16).sum();
    let items = 4 + discovered.outputs.len() + 2 * discovered.dependencies.len();
    names + items * PER_ITEM
}
