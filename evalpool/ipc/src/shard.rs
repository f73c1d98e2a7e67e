//! Shards of an evaluation and the size of the batches they are listed in.

use gradient_domain::AttrPath;
use gradient_domain::pattern::Segment;

/// Most names in one batch.
pub const BATCH_LEN_MAX: usize = 64;

/// How far a walk goes below the last wildcard of a pattern.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
)]
pub enum Recursion {
    /// As the pattern says: `*` looks one level into plain sets. The rule of a fleet's evaluation.
    #[default]
    Pattern,
    /// Into the sets that the flake schema puts jobs into, and into sets that carry
    /// `recurseForDerivations = true`, to any depth.
    Marked,
    /// As nix-eval-jobs: into the root and into marked sets; whatever is no derivation is left out
    /// silently.
    Tree,
    /// As `Tree`, but into every set.
    WholeTree,
}

impl Recursion {
    /// Whether what should be a job and is none is an error, and option sets are left alone.
    #[must_use]
    pub fn is_strict(self) -> bool {
        match self {
            Recursion::Pattern | Recursion::Marked => true,
            Recursion::Tree | Recursion::WholeTree => false,
        }
    }
}

/// A part of an evaluation that can be listed on its own, by any subprocess on any machine.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct Shard {
    /// What to walk.
    pub pattern: Vec<Segment>,
    /// The names that the first wildcard is limited to.
    pub only: Option<Vec<String>>,
    /// How far the walk goes below the pattern.
    pub recursion: Recursion,
}

impl Shard {
    /// Everything that a pattern matches.
    #[must_use]
    pub fn whole(pattern: Vec<Segment>, recursion: Recursion) -> Shard {
        Shard { pattern, only: None, recursion }
    }

    /// A shard over the children of one nested set. Where a pattern says how far to go, it goes no
    /// further than these children.
    #[must_use]
    pub fn of_set(path: &AttrPath, names: Vec<String>, recursion: Recursion) -> Shard {
        let mut pattern: Vec<_> = path.0.iter().cloned().map(Segment::Name).collect();
        pattern.push(match recursion {
            Recursion::Pattern => Segment::Hash,
            Recursion::Marked | Recursion::Tree | Recursion::WholeTree => Segment::Star,
        });
        Shard { pattern, only: Some(names), recursion }
    }

    /// The names in front of the first wildcard.
    #[must_use]
    pub fn prefix(&self) -> AttrPath {
        let names = self.pattern.iter().map_while(|segment| match segment {
            Segment::Name(name) => Some(name.clone()),
            Segment::Star | Segment::Hash => None,
        });
        names.collect()
    }

    /// Whether the shard names exactly one path.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.pattern.iter().any(Segment::is_wildcard)
    }

    /// The path of the one attribute that a listing of this shard forces beside its prefix.
    #[must_use]
    pub fn single(&self) -> Option<AttrPath> {
        match self.only.as_deref() {
            Some([name]) => Some(self.prefix().child(name)),
            None if self.is_exact() => Some(self.prefix()),
            Some(_) | None => None,
        }
    }

    /// This shard in batches of one name each.
    #[must_use]
    pub fn into_singles(self) -> Vec<Shard> {
        // A pool as large as the shard has names gets batches of one.
        let pool = self.only.as_ref().map_or(1, Vec::len);
        self.into_batches(pool)
    }

    /// This shard in batches for a pool of so many subprocesses.
    #[must_use]
    pub fn into_batches(self, pool: usize) -> Vec<Shard> {
        let Shard { pattern, only, recursion } = self;
        let Some(names) = only else {
            return vec![Shard::whole(pattern, recursion)];
        };
        let len = batch_len(names.len(), pool);
        let batch = |names: &[String]| {
            let pattern = pattern.clone();
            Shard { pattern, only: Some(names.to_vec()), recursion }
        };
        names.chunks(len).map(batch).collect()
    }
}

/// Names per batch: a quarter of an even share of the pool, rounded up, from 1 to
/// [`BATCH_LEN_MAX`].
#[must_use]
pub fn batch_len(names: usize, pool: usize) -> usize {
    names.div_ceil(pool.max(1).saturating_mul(4)).clamp(1, BATCH_LEN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_a_quarter_of_an_even_share() {
        let rows = [
            (0, 1, 1),
            (1, 1, 1),
            (4, 1, 1),
            (5, 1, 2),
            (16, 1, 4),
            (16, 4, 1),
            (17, 4, 2),
            (1000, 4, 63),
            (50_000, 4, 64),
            (50_000, 1000, 13),
            (100, 0, 25),
        ];
        for (names, pool, len) in rows {
            assert_eq!(batch_len(names, pool), len, "{names} names, pool of {pool}");
        }
    }

    #[test]
    fn batches_hold_every_name_once() {
        let names: Vec<String> = (0..131).map(|n| format!("p{n}")).collect();
        let shard = Shard::of_set(&["a"].into_iter().collect(), names.clone(), Recursion::Pattern);
        let batches = shard.into_batches(2);
        assert!(batches.len() > 2);
        let listed: Vec<_> = batches.into_iter().filter_map(|batch| batch.only).flatten().collect();
        assert_eq!(listed, names);
    }

    #[test]
    fn singles_are_single() {
        let names: Vec<String> = (0..300).map(|n| format!("p{n}")).collect();
        let singles =
            Shard::of_set(&["a"].into_iter().collect(), names, Recursion::Pattern).into_singles();
        assert_eq!(singles.len(), 300);
        assert!(singles.iter().all(|single| single.single().is_some()));
    }

    #[test]
    fn a_single_name_is_known() {
        let path = |names: &[&str]| names.iter().copied().collect::<AttrPath>();
        let one = Shard::of_set(&path(&["a", "b"]), vec!["c".into()], Recursion::Pattern);
        assert_eq!(one.single(), Some(path(&["a", "b", "c"])));
        let two = Shard::of_set(&path(&["a"]), vec!["c".into(), "d".into()], Recursion::Pattern);
        assert_eq!(two.single(), None);
        let exact = Shard::whole(vec![Segment::Name("a".into())], Recursion::Pattern);
        assert_eq!(exact.single(), Some(path(&["a"])));
        let open = Shard::whole(vec![Segment::Name("a".into()), Segment::Hash], Recursion::Pattern);
        assert_eq!(open.single(), None);
    }
}
