//! Whether a derivation has to be built.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gradient_daemon::queries::{DerivedPath, Missing};
use gradient_domain::{Derivation, StorePath};

use super::daemons::{self, Daemons};
use super::line::{Availability, CacheStatus};
use super::store::Store;
use crate::exit::Failure;

/// Longest time of one question; the daemon may ask binary caches for an answer.
const QUERY_MAX: Duration = Duration::from_secs(600);
/// Most derivations that are remembered.
const GRAPH_LEN_MAX: usize = 1_000_000;

/// What was read of derivations so far: which others each one needs.
#[derive(Default)]
pub(super) struct Graph {
    needs: Mutex<BTreeMap<StorePath, Vec<StorePath>>>,
}

/// Asks what it takes to have the outputs and all that building them needs.
pub(super) async fn query(
    daemons: &Daemons,
    store: &Store,
    graph: &Graph,
    (drv_path, derivation): (&StorePath, &Derivation),
) -> Result<CacheStatus, Failure> {
    let wanted = wanted(drv_path, derivation);
    let mut daemon = daemons.get().await?;
    let asked = daemon.connection().query_missing_paths(&wanted);
    let missing = daemons::within(QUERY_MAX, asked).await?;
    daemon.give_back();
    Ok(status(missing, |drv| graph.needs(store, drv)))
}

fn wanted(drv_path: &StorePath, derivation: &Derivation) -> BTreeSet<DerivedPath> {
    let outputs = derivation.outputs.iter().map(|(name, output)| match &output.path {
        Some(path) => DerivedPath::Opaque(path.clone()),
        // Where it goes is only known to whoever has built it.
        None => DerivedPath::Built(drv_path.clone(), BTreeSet::from([name.clone()])),
    });
    let inputs = derivation.input_drvs.iter();
    let inputs = inputs.map(|(drv, outputs)| DerivedPath::Built(drv.clone(), outputs.clone()));
    outputs.chain(inputs).collect()
}

impl Graph {
    fn needs(&self, store: &Store, drv: &StorePath) -> Vec<StorePath> {
        let mut known = self.needs.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            // One that cannot be read is as one without inputs: only the order suffers.
            let derivation = store.read(drv).ok();
            derivation.map_or_else(Vec::new, |read| read.input_drvs.into_keys().collect())
        };
        if known.len() >= GRAPH_LEN_MAX && !known.contains_key(drv) {
            return read();
        }
        known.entry(drv.clone()).or_insert_with(read).clone()
    }
}

fn status(missing: Missing, needs: impl Fn(&StorePath) -> Vec<StorePath>) -> CacheStatus {
    let Missing { will_build, will_substitute, unknown, .. } = missing;
    let cache_status = match (will_build.is_empty() && unknown.is_empty(), &will_substitute) {
        (true, substitutes) if substitutes.is_empty() => Availability::Local,
        (true, _) => Availability::Cached,
        (false, _) => Availability::NotBuilt,
    };
    let mut needed_substitutes: Vec<_> = will_substitute.into_iter().collect();
    needed_substitutes.sort_by(|a, b| (a.name(), a).cmp(&(b.name(), b)));
    CacheStatus {
        is_cached: cache_status != Availability::NotBuilt,
        cache_status,
        needed_builds: dependencies_first(&will_build, needs),
        needed_substitutes,
    }
}

/// The paths in an order in which each comes after what it needs. Without recursion: chains of
/// derivations are as long as anybody likes.
fn dependencies_first(
    paths: &BTreeSet<StorePath>,
    needs: impl Fn(&StorePath) -> Vec<StorePath>,
) -> Vec<StorePath> {
    let mut sorted = Vec::with_capacity(paths.len());
    let mut seen = BTreeSet::new();
    for start in paths {
        let mut open = vec![(start.clone(), None)];
        while let Some((path, rest)) = open.pop() {
            let mut rest = match rest {
                Some(rest) => rest,
                None if !seen.insert(path.clone()) => continue,
                None => needs(&path).into_iter(),
            };
            match rest.find(|need| paths.contains(need) && !seen.contains(need)) {
                Some(need) => open.extend([(path, Some(rest)), (need, None)]),
                None => sorted.push(path),
            }
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> StorePath {
        StorePath::from_base_name(&format!("{}-{name}", "0".repeat(32))).expect("valid")
    }

    fn set(names: &[&str]) -> BTreeSet<StorePath> {
        names.iter().map(|name| path(name)).collect()
    }

    #[test]
    fn the_status_is_that_of_the_worst() {
        let of = |build: &[&str], substitute: &[&str], unknown: &[&str]| {
            let (will_build, will_substitute) = (set(build), set(substitute));
            let unknown = set(unknown);
            let missing = Missing { will_build, will_substitute, unknown, ..Missing::default() };
            let status = status(missing, |_| Vec::new());
            (status.is_cached, status.cache_status)
        };
        assert_eq!(of(&[], &[], &[]), (true, Availability::Local));
        assert_eq!(of(&[], &["a"], &[]), (true, Availability::Cached));
        assert_eq!(of(&["a.drv"], &["a"], &[]), (false, Availability::NotBuilt));
        assert_eq!(of(&[], &["a"], &["b"]), (false, Availability::NotBuilt));
    }

    #[test]
    fn builds_come_after_what_they_need() {
        let needs = |drv: &StorePath| match drv.name() {
            "a" => vec![path("z"), path("m"), path("elsewhere")],
            "m" => vec![path("z")],
            _ => Vec::new(),
        };
        let order = dependencies_first(&set(&["a", "b", "m", "z"]), needs);
        assert_eq!(order, ["z", "m", "a", "b"].map(path));
        let chain: Vec<String> = (0..100_000).map(|n| format!("n{n:06}")).collect();
        let all = chain.iter().map(|name| path(name)).collect();
        let next = |drv: &StorePath| {
            let n: usize = drv.name()[1..].parse().expect("number");
            chain.get(n + 1).map(|name| path(name)).into_iter().collect()
        };
        let order = dependencies_first(&all, next);
        assert_eq!(order.first(), Some(&path("n099999")));
        assert_eq!(order.len(), chain.len());
    }
}
