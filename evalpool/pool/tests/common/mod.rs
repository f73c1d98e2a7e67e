//! Running an evaluation and looking at what it found.

use gradient_domain::pattern::PatternSet;
use gradient_pool::{DiscoverError, DiscoverySummary, Evaluation, Found, Pool};
use tokio::sync::mpsc;

/// What an evaluation gave: everything found, sorted, and how it ended.
pub(crate) type Run = (Vec<Found>, Result<DiscoverySummary, DiscoverError>);

/// Evaluates and collects everything.
pub(crate) async fn discover(pool: &Pool, flake: &str, patterns: &str) -> Run {
    let patterns: PatternSet = patterns.parse().expect("patterns");
    collect(pool, &Evaluation::of_flake(flake, patterns)).await
}

/// As [`discover`], of any evaluation.
pub(crate) async fn collect(pool: &Pool, evaluation: &Evaluation) -> Run {
    let (sink, mut results) = mpsc::channel(16);
    let collect = async {
        let mut found = Vec::new();
        while let Some(result) = results.recv().await {
            found.push(result);
        }
        found.sort();
        found
    };
    let (found, summary) = tokio::join!(collect, pool.discover(evaluation, sink));
    (found, summary)
}

/// `path name-of-drv` of every derivation.
pub(crate) fn attributes(found: &[Found]) -> Vec<String> {
    let line = |result: &Found| match result {
        Found::Attribute { path, drv_path, .. } => Some(format!("{path} {}", drv_path.name())),
        Found::Error { .. } | Found::Warning { .. } => None,
    };
    found.iter().filter_map(line).collect()
}

/// `path: message` of every error.
pub(crate) fn errors(found: &[Found]) -> Vec<String> {
    let line = |result: &Found| match result {
        Found::Error { path: Some(path), message } => Some(format!("{path}: {message}")),
        Found::Error { path: None, message } => Some(message.clone()),
        Found::Attribute { .. } | Found::Warning { .. } => None,
    };
    found.iter().filter_map(line).collect()
}
