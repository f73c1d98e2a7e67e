//! The closure walk: what the evaluators find is read from `.drv` files, uploaded, and reported in
//! batches while the evaluation goes on. A batch never overtakes its own uploads.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt as _;
use gradient_domain::derivation::DERIVATION_SIZE_MAX;
use gradient_domain::text::cut;
use gradient_domain::{AttrPath, Derivation, SessionId, StorePath};
use gradient_events::job::Output;
use gradient_events::worker::{
    Dependency, DiscoveredDerivation, EvalMessage, EvalResult, JobUpdate,
};
use gradient_events::{FailureKind, FromWorker, PAGE_BYTES_MAX, Wire, WorkerMessage};
use gradient_fetch::{LockedFlake, Retry};
use gradient_pool::Found;

use super::Evaluator;
use crate::job::{JobEnd, Running};

/// Derivations after which a batch leaves though more come (reference 5.13).
const BATCH: usize = 50;
/// Bytes after which a batch leaves; one derivation may stand over it.
const BATCH_BYTES: usize = PAGE_BYTES_MAX / 2;
/// Most bytes of a report of a batch: the scheduler logs it together with what it decides of it.
const REPORT_BYTES_MAX: usize = 240 * 1024;
/// Longest text of a message, in bytes.
const TEXT_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Recorder<'a> {
    evaluator: &'a Evaluator,
    running: &'a Running,
    flake: &'a LockedFlake,
    /// Derivations that were reported or need not be.
    seen: BTreeSet<StorePath>,
    batch: EvalResult,
    batch_bytes: usize,
    announced: bool,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        evaluator: &'a Evaluator,
        running: &'a Running,
        flake: &'a LockedFlake,
    ) -> Self {
        Self {
            evaluator,
            running,
            flake,
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
            Found::Attribute { path, drv_path, .. } => self.attribute(path, drv_path).await,
            Found::Error { path, message } => {
                if let Some(end) = not_yet(self.flake, path.as_ref(), &message) {
                    // What was found until here stays.
                    self.flush().await?;
                    return Err(end);
                }
                // A long message must not cut off what to do about it.
                let text = match self.flake.hint_on(&message) {
                    Some(hint) => format!("{hint}\n{message}"),
                    None => message,
                };
                let text = cut(text, TEXT_BYTES_MAX);
                self.batch_bytes += text.len();
                self.batch.errors.push(EvalMessage { attr: path, text });
                self.flush_if_full().await
            }
            Found::Warning { path, text } => self.warn(path, text).await,
        }
    }

    pub(super) async fn warn(
        &mut self,
        attr: Option<AttrPath>,
        text: String,
    ) -> Result<(), JobEnd> {
        let text = cut(text, TEXT_BYTES_MAX);
        self.batch_bytes += text.len();
        self.batch.warnings.push(EvalMessage { attr, text });
        self.flush_if_full().await
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
        let failed = |kind: FailureKind, problem: String| {
            JobEnd::failed(kind, format!("cannot read derivation {path}: {problem}"))
        };
        let unreadable = |problem: String| failed(FailureKind::Permanent, problem);
        // Somebody collected it: the next attempt instantiates it again.
        let gone = |error: std::io::Error| failed(FailureKind::Transient, error.to_string());
        let size = tokio::fs::metadata(&file).await.map_err(gone)?.len();
        if size > DERIVATION_SIZE_MAX as u64 {
            return Err(unreadable(format!(
                "{size} bytes are over the limit of {DERIVATION_SIZE_MAX}"
            )));
        }
        let text = tokio::fs::read(&file).await.map_err(gone)?;
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
        let reports = parts(batch, |part| self.report_bytes(part))
            .map_err(|reason| JobEnd::failed(FailureKind::Permanent, reason))?;
        for report in reports {
            self.report(report).await?;
        }
        Ok(())
    }

    /// Bytes of the message that reports a batch.
    fn report_bytes(&self, batch: &EvalResult) -> usize {
        let update = JobUpdate::EvalResult(batch.clone());
        let (job, assignment) = (self.running.job, self.running.assignment);
        let message = WorkerMessage::JobUpdate { job, assignment, update };
        FromWorker { session: SessionId([0; 16]), message }.to_body().len()
    }

    async fn report(&self, batch: EvalResult) -> Result<(), JobEnd> {
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

/// The end of an attempt in which something was read that another attempt may bring: an error of it would
/// stay. What else there is to find waits for that attempt, too, since whatever reads the same input would
/// only wait for the network again.
pub(super) fn not_yet(flake: &LockedFlake, attr: Option<&AttrPath>, error: &str) -> Option<JobEnd> {
    let missing = flake.missing_for(error).filter(|missing| missing.retry == Retry::Backoff)?;
    let who = attr.map_or_else(|| "the flake".to_owned(), AttrPath::to_string);
    let who = cut(who, TEXT_BYTES_MAX);
    Some(JobEnd::failed(FailureKind::Transient, format!("{}; {who} needs it", missing.told())))
}

/// The batch in parts whose reports are not too large, in order.
///
/// # Errors
/// What one item says of itself that is too large alone.
fn parts(
    batch: EvalResult,
    bytes: impl Fn(&EvalResult) -> usize + Copy,
) -> Result<Vec<EvalResult>, String> {
    if bytes(&batch) <= REPORT_BYTES_MAX {
        return Ok(vec![batch]);
    }
    let EvalResult { mut derivations, mut warnings, mut errors } = batch;
    let halves = match (derivations.len(), warnings.len() + errors.len()) {
        (1, 0) => {
            let DiscoveredDerivation { drv_path, dependencies, .. } = &derivations[0];
            let inputs = dependencies.len();
            return Err(format!(
                "{drv_path} has {inputs} inputs, over the limit of {REPORT_BYTES_MAX} bytes of one report"
            ));
        }
        (0, 1) => {
            return Err(format!(
                "the name of an attribute is over the limit of {REPORT_BYTES_MAX} bytes"
            ));
        }
        (2.., _) => {
            let rest = derivations.split_off(derivations.len() / 2);
            let rest = EvalResult { derivations: rest, warnings, errors };
            [EvalResult { derivations, ..EvalResult::default() }, rest]
        }
        (1, _) => {
            let texts = EvalResult { warnings, errors, ..EvalResult::default() };
            [EvalResult { derivations, ..EvalResult::default() }, texts]
        }
        (0, _) => {
            let rest = EvalResult {
                warnings: warnings.split_off(warnings.len() / 2),
                errors: errors.split_off(errors.len().div_ceil(2)),
                ..EvalResult::default()
            };
            [EvalResult { warnings, errors, ..EvalResult::default() }, rest]
        }
    };
    let mut divided = Vec::new();
    for half in halves {
        divided.extend(parts(half, bytes)?);
    }
    Ok(divided)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn path(n: usize) -> StorePath {
        let base = format!("b9d5lnjsb9d5lnjsb9d5lnjsb9d5lnjs-{n}.drv");
        StorePath::from_base_name(&base).expect("a store path")
    }

    fn derivation(n: usize, inputs: usize) -> DiscoveredDerivation {
        let text = br#"Derive([("out","/nix/store/b9d5lnjsb9d5lnjsb9d5lnjsb9d5lnjs-x","","")],[],[],"x86_64-linux","/bin/sh",[],[("name","x")])"#;
        let derivation = Derivation::parse(text).expect("a derivation");
        let dependency = |n| Dependency { drv_path: path(n), outputs: vec!["out".into()] };
        let dependencies = (0..inputs).map(dependency).collect();
        DiscoveredDerivation { dependencies, ..discovered(path(n), &derivation, Vec::new()) }
    }

    fn bytes(batch: &EvalResult) -> usize {
        let message = WorkerMessage::JobUpdate {
            job: gradient_domain::JobId::Build(gradient_domain::BuildId(1)),
            assignment: gradient_domain::AssignmentId(1),
            update: JobUpdate::EvalResult(batch.clone()),
        };
        FromWorker { session: SessionId([0; 16]), message }.to_body().len()
    }

    #[test]
    fn a_batch_that_is_too_large_is_divided_in_order() {
        let text = |n: usize| EvalMessage { attr: None, text: n.to_string().repeat(8 * 1024) };
        let batch = EvalResult {
            derivations: (0..5).map(|n| derivation(n, 1_500)).collect(),
            warnings: (0..30).map(text).collect(),
            errors: (0..29).map(text).collect(),
        };
        let divided = parts(batch.clone(), bytes).expect("divided");
        assert!(divided.len() > 1 && divided.iter().all(|part| bytes(part) <= REPORT_BYTES_MAX));
        let mut whole = EvalResult::default();
        for part in divided {
            assert_ne!(part, EvalResult::default());
            whole.derivations.extend(part.derivations);
            whole.warnings.extend(part.warnings);
            whole.errors.extend(part.errors);
        }
        assert_eq!(whole, batch);
        assert_eq!(parts(EvalResult::default(), bytes).map(|parts| parts.len()), Ok(1));
    }

    #[test]
    fn what_is_too_large_alone_is_an_error() {
        let derivations = vec![derivation(1, 3), derivation(2, 20_000)];
        let batch = EvalResult { derivations, ..EvalResult::default() };
        let reason = parts(batch, bytes).expect_err("too large");
        assert!(reason.contains("-2.drv has 20000 inputs, over the limit of"), "{reason}");
        let attr = AttrPath(vec!["a".repeat(REPORT_BYTES_MAX)]);
        let errors = vec![EvalMessage { attr: Some(attr), text: String::new() }];
        parts(EvalResult { errors, ..EvalResult::default() }, bytes).expect_err("too large");
    }
}
