//! Work on a graph of paths: each after everything it refers to, several at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gradient_domain::StorePath;
use tokio::task::JoinSet;

use super::error::CacheError;

/// Runs `work` for every key of `references`, for a path only after all that it refers to among the
/// keys, at most `limit` at a time. The first failure stops the rest.
pub(super) async fn in_order<F>(
    references: BTreeMap<StorePath, BTreeSet<StorePath>>,
    limit: usize,
    mut work: impl FnMut(StorePath) -> F,
) -> Result<(), CacheError>
where
    F: Future<Output = Result<(), CacheError>> + Send + 'static,
{
    let mut waiting: BTreeMap<StorePath, usize> = BTreeMap::new();
    let mut referrers: BTreeMap<StorePath, Vec<StorePath>> = BTreeMap::new();
    let mut ready = Vec::new();
    for (path, refers_to) in &references {
        let open = refers_to.iter().filter(|r| *r != path && references.contains_key(r));
        let mut count = 0;
        for reference in open {
            referrers.entry(reference.clone()).or_default().push(path.clone());
            count += 1;
        }
        match count {
            0 => ready.push(path.clone()),
            count => drop(waiting.insert(path.clone(), count)),
        }
    }
    let mut running: JoinSet<(StorePath, Result<(), CacheError>)> = JoinSet::new();
    loop {
        while running.len() < limit
            && let Some(path) = ready.pop()
        {
            let task = work(path.clone());
            running.spawn(async move { (path, task.await) });
        }
        let Some(ended) = running.join_next().await else {
            break;
        };
        let (path, result) = match ended {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        result?;
        for referrer in referrers.remove(&path).unwrap_or_default() {
            if let Some(count) = waiting.get_mut(&referrer) {
                *count -= 1;
                if *count == 0 {
                    waiting.remove(&referrer);
                    ready.push(referrer);
                }
            }
        }
    }
    match waiting.into_keys().next() {
        None => Ok(()),
        Some(path) => {
            Err(CacheError::Corrupt { path, reason: "its references form a circle".into() })
        }
    }
}

/// One at a time per path, over all who share it: two builds that need the same path download it
/// once.
#[derive(Debug, Default)]
pub(super) struct Turns {
    open: Mutex<BTreeMap<StorePath, Weak<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// The lock of this path; it exists as long as somebody has it.
    pub(super) fn of(&self, path: &StorePath) -> Arc<tokio::sync::Mutex<()>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = open.get(path).and_then(Weak::upgrade) {
            return lock;
        }
        open.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        open.insert(path.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(n: usize) -> StorePath {
        StorePath::from_base_name(&format!("0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-{n}")).expect("valid")
    }

    #[tokio::test]
    async fn references_come_first() {
        let graph: BTreeMap<_, BTreeSet<_>> = (0..50)
            .map(|n| (path(n), [path(n), path(n / 2 + 50), path(99)].into()))
            .chain((50..75).map(|n| (path(n), [path(75)].into())))
            .chain([(path(75), [].into())])
            .collect();
        let done = Arc::new(Mutex::new(Vec::new()));
        let work = |p: StorePath| {
            let done = Arc::clone(&done);
            async move {
                tokio::task::yield_now().await;
                done.lock().expect("lock").push(p);
                Ok(())
            }
        };
        in_order(graph.clone(), 8, work).await.expect("all done");
        let done = done.lock().expect("lock");
        assert_eq!(done.len(), graph.len());
        let place = |p: &StorePath| done.iter().position(|d| d == p);
        for (p, references) in &graph {
            for r in references.iter().filter(|r| *r != p && graph.contains_key(r)) {
                assert!(place(r) < place(p), "{r:?} before {p:?}");
            }
        }
    }

    #[tokio::test]
    async fn circles_and_failures_end_it() {
        let circle = BTreeMap::from([
            (path(1), BTreeSet::from([path(2)])),
            (path(2), BTreeSet::from([path(1)])),
        ]);
        let result = in_order(circle, 2, |_| async { Ok(()) }).await;
        assert!(matches!(result, Err(CacheError::Corrupt { .. })));
        let pair =
            BTreeMap::from([(path(1), BTreeSet::from([path(2)])), (path(2), BTreeSet::new())]);
        let result =
            in_order(pair, 2, |path| async move { Err(CacheError::NotValid { path }) }).await;
        assert!(matches!(result, Err(CacheError::NotValid { path: p }) if p == path(2)));
    }
}
