//! What the local store has of a candidate (spec, Offers: scoring).

use std::collections::BTreeSet;

use gradient_daemon::Pool;
use gradient_domain::StorePath;
use gradient_pool::{Known, KnownPaths};

/// A job that was offered, as far as the local store matters.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Candidate {
    /// Paths that running it needs, with the sizes of their NARs in bytes; 0 if it is not known.
    pub required: Vec<(StorePath, u64)>,
    /// Paths that running it makes.
    pub outputs: Vec<StorePath>,
}

/// What the local store has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StoreScore {
    /// Required paths that are not there.
    pub missing_count: u32,
    /// Known sizes of their NARs together, in bytes.
    pub missing_nar_size: u64,
    /// Whether there are outputs and all are there.
    pub outputs_present: bool,
}

/// Scores candidates with a single question to the daemon, in their order. If the daemon cannot be
/// asked, everything counts as missing.
pub async fn score(pool: &Pool, candidates: &[Candidate]) -> Vec<StoreScore> {
    let asked: BTreeSet<StorePath> = candidates
        .iter()
        .flat_map(|c| c.required.iter().map(|(path, _)| path).chain(&c.outputs))
        .cloned()
        .collect();
    let valid = match valid_paths(pool, &asked).await {
        Ok(valid) => valid,
        Err(error) => {
            tracing::warn!(%error, "the local store cannot be asked; scoring it as empty");
            BTreeSet::new()
        }
    };
    candidates.iter().map(|c| score_one(c, &valid)).collect()
}

/// The local store, for those who ask whether it knows what lies in its folder.
#[derive(Clone, Debug)]
pub struct LocalPaths(pub Pool);

impl KnownPaths for LocalPaths {
    fn known<'a>(&'a self, paths: &'a BTreeSet<StorePath>) -> Known<'a> {
        Box::pin(async move {
            let valid = valid_paths(&self.0, paths).await;
            valid
                .inspect_err(|error| tracing::warn!(%error, "the local store cannot be asked"))
                .ok()
        })
    }
}

async fn valid_paths(
    pool: &Pool,
    paths: &BTreeSet<StorePath>,
) -> Result<BTreeSet<StorePath>, gradient_daemon::Error> {
    if paths.is_empty() {
        return Ok(BTreeSet::new());
    }
    pool.get().await?.query_valid_paths(paths).await
}

fn score_one(candidate: &Candidate, valid: &BTreeSet<StorePath>) -> StoreScore {
    let missing = candidate.required.iter().filter(|(path, _)| !valid.contains(path));
    let (missing_count, missing_nar_size) = missing.fold((0u32, 0u64), |(count, size), (_, s)| {
        (count.saturating_add(1), size.saturating_add(*s))
    });
    let outputs = &candidate.outputs;
    StoreScore {
        missing_count,
        missing_nar_size,
        outputs_present: !outputs.is_empty() && outputs.iter().all(|path| valid.contains(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> StorePath {
        StorePath::from_base_name(&format!("0mdqa9w1p6cmli6976v4wi0sw9r4p5pr-{name}"))
            .expect("valid")
    }

    #[test]
    fn scores_count_what_is_missing() {
        let valid = BTreeSet::from([path("a"), path("out")]);
        let rows = [
            (vec![], vec![], (0, 0, false)),
            (vec![("a", 5)], vec!["out"], (0, 0, true)),
            (vec![("a", 5), ("b", 7), ("c", 0)], vec!["out", "dev"], (2, 7, false)),
            (vec![("b", u64::MAX), ("c", 1)], vec![], (2, u64::MAX, false)),
            (vec![], vec!["dev"], (0, 0, false)),
        ];
        for (required, outputs, (count, size, present)) in rows {
            let candidate = Candidate {
                required: required.iter().map(|(n, s)| (path(n), *s)).collect(),
                outputs: outputs.iter().map(|n| path(n)).collect(),
            };
            let expected = StoreScore {
                missing_count: count,
                missing_nar_size: size,
                outputs_present: present,
            };
            assert_eq!(score_one(&candidate, &valid), expected);
        }
    }

    #[tokio::test]
    async fn without_a_daemon_everything_is_missing() {
        let pool = Pool::new("/nonexistent/socket", Default::default(), 1);
        let candidate = Candidate { required: vec![(path("a"), 5)], outputs: vec![path("out")] };
        let scores = score(&pool, &[candidate, Candidate::default()]).await;
        assert_eq!((scores[0].missing_count, scores[0].missing_nar_size), (1, 5));
        assert!(!scores[0].outputs_present && scores.len() == 2);
    }
}
