//! Down: a closure from the cache into the local store, dependencies first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gradient_daemon::{Connection, NarInfo, Pool};
use gradient_domain::StorePath;

use super::error::CacheError;
use super::in_order::in_order;
use super::{CacheClient, TRANSFERS_MAX, retry};

/// Most steps from a wanted path to the end of its closure.
const ROUNDS_MAX: usize = 1024;

/// Most paths that are fetched at once.
const PATHS_MAX: usize = 200_000;

/// What was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fetched {
    /// Paths.
    pub paths: usize,
    /// Bytes of their NARs.
    pub nar_bytes: u64,
    /// Time that downloading took.
    pub elapsed: Duration,
}

impl CacheClient {
    /// Makes `wanted` and everything they refer to valid in the local store.
    ///
    /// With a `keeper`, a connection of the caller, nothing of it is collected as long as that
    /// connection lives.
    ///
    /// # Errors
    /// [`CacheError::NotInCache`] with all paths that neither the store nor the cache has; else the
    /// first failure.
    pub async fn ensure_closure(
        &self,
        pool: &Pool,
        wanted: &BTreeSet<StorePath>,
        mut keeper: Option<&mut Connection>,
    ) -> Result<Fetched, CacheError> {
        if let Some(keeper) = keeper.as_deref_mut() {
            for path in wanted {
                let kept = keeper.add_temp_root(path).await;
                kept.map_err(CacheError::daemon(path))?;
            }
        }
        let plan = self.plan(pool, wanted).await?;
        if let Some(keeper) = keeper {
            for path in plan.keys() {
                let kept = keeper.add_temp_root(path).await;
                kept.map_err(CacheError::daemon(path))?;
            }
        }
        self.fetch(pool, plan).await
    }

    /// The narinfos of all that is missing locally.
    async fn plan(
        &self,
        pool: &Pool,
        wanted: &BTreeSet<StorePath>,
    ) -> Result<BTreeMap<StorePath, NarInfo>, CacheError> {
        let mut plan = BTreeMap::new();
        let mut not_in_cache = BTreeSet::new();
        let mut seen = wanted.clone();
        let mut wave = wanted.clone();
        for _ in 0..ROUNDS_MAX {
            let Some(first) = wave.first() else {
                return match not_in_cache.is_empty() {
                    true => Ok(plan),
                    false => Err(CacheError::NotInCache { paths: not_in_cache }),
                };
            };
            let valid = valid_paths(pool, &wave).await.map_err(CacheError::daemon(first))?;
            let mut missing = wave.difference(&valid);
            let mut asked = FuturesUnordered::new();
            let mut next = BTreeSet::new();
            loop {
                while asked.len() < TRANSFERS_MAX
                    && let Some(path) = missing.next()
                {
                    asked.push(self.named_narinfo(path.clone()));
                }
                let Some(answer) = asked.next().await else {
                    break;
                };
                let (path, narinfo) = answer?;
                let Some(narinfo) = narinfo else {
                    not_in_cache.insert(path);
                    continue;
                };
                let references = narinfo.info.references.iter();
                next.extend(references.filter(|r| seen.insert((*r).clone())).cloned());
                plan.insert(path, narinfo);
            }
            wave = next;
            if plan.len() > PATHS_MAX {
                break;
            }
        }
        Err(CacheError::Malformed {
            what: "closure".into(),
            reason: format!("more than {PATHS_MAX} paths or {ROUNDS_MAX} steps deep"),
        })
    }

    async fn named_narinfo(
        &self,
        path: StorePath,
    ) -> Result<(StorePath, Option<NarInfo>), CacheError> {
        let narinfo = self.narinfo(&path).await?;
        Ok((path, narinfo))
    }

    async fn fetch(
        &self,
        pool: &Pool,
        plan: BTreeMap<StorePath, NarInfo>,
    ) -> Result<Fetched, CacheError> {
        let started = Instant::now();
        let paths = plan.len();
        let graph = plan
            .iter()
            .map(|(path, narinfo)| (path.clone(), narinfo.info.references.clone()))
            .collect();
        let mut plan = plan;
        let nar_bytes = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&nar_bytes);
        in_order(graph, TRANSFERS_MAX, |path| {
            let narinfo = plan.remove(&path);
            let (client, pool, counter) = (self.clone(), pool.clone(), Arc::clone(&counter));
            async move {
                if let Some(narinfo) = narinfo {
                    let bytes = client.import(&pool, &narinfo).await?;
                    counter.fetch_add(bytes, Ordering::Relaxed);
                }
                Ok(())
            }
        })
        .await?;
        Ok(Fetched {
            paths,
            nar_bytes: nar_bytes.load(Ordering::Relaxed),
            elapsed: started.elapsed(),
        })
    }

    /// Downloads one path into the local store, unless somebody else did since it was found missing;
    /// bytes of its NAR that came.
    async fn import(&self, pool: &Pool, narinfo: &NarInfo) -> Result<u64, CacheError> {
        let path = &narinfo.path;
        let turn = self.shared.fetching.of(path);
        let _turn = turn.lock().await;
        let failed = CacheError::daemon(path);
        retry(|| async {
            let mut connection = pool.get().await.map_err(&failed)?;
            if connection.is_valid_path(path).await.map_err(&failed)? {
                return Ok(0);
            }
            let nar = self.nar(narinfo).await?;
            let added = connection.add_to_store_nar(path, &narinfo.info, nar).await;
            added.map_err(&failed)?;
            Ok(narinfo.info.nar_size)
        })
        .await
    }
}

async fn valid_paths(
    pool: &Pool,
    paths: &BTreeSet<StorePath>,
) -> Result<BTreeSet<StorePath>, gradient_daemon::Error> {
    pool.get().await?.query_valid_paths(paths).await
}
