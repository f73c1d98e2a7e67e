//! Shards of an evaluation and the size of the batches they are listed in.

use gradient_domain::AttrPath;
use gradient_domain::pattern::Segment;

/// Most names in one batch.
pub const BATCH_LEN_MAX: usize = 64;

/// A part of an evaluation that can be listed on its own, by any subprocess on any machine.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize,
)]
pub struct Shard {
    /// What to walk.
    pub pattern: Vec<Segment>,
    /// The names that the first wildcard is limited to.
    pub only: Option<Vec<String>>,
}

impl Shard {
    /// A shard over the children of one nested set.
    #[must_use]
    pub fn of_set(path: &AttrPath, names: Vec<String>) -> Shard {
        let mut pattern: Vec<_> = path.0.iter().cloned().map(Segment::Name).collect();
        pattern.push(Segment::Hash);
        Shard { pattern, only: Some(names) }
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
        let Some(names) = self.only else {
            return vec![self];
        };
        let len = batch_len(names.len(), pool);
        let batch =
            |names: &[String]| Shard { pattern: self.pattern.clone(), only: Some(names.to_vec()) };
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
        let shard = Shard::of_set(&["a"].into_iter().collect(), names.clone());
        let batches = shard.into_batches(2);
        assert!(batches.len() > 2);
        let listed: Vec<_> = batches.into_iter().filter_map(|batch| batch.only).flatten().collect();
        assert_eq!(listed, names);
    }

    #[test]
    fn singles_are_single() {
        let names: Vec<String> = (0..300).map(|n| format!("p{n}")).collect();
        let singles = Shard::of_set(&["a"].into_iter().collect(), names).into_singles();
        assert_eq!(singles.len(), 300);
        assert!(singles.iter().all(|single| single.single().is_some()));
    }

    #[test]
    fn a_single_name_is_known() {
        let path = |names: &[&str]| names.iter().copied().collect::<AttrPath>();
        let one = Shard::of_set(&path(&["a", "b"]), vec!["c".into()]);
        assert_eq!(one.single(), Some(path(&["a", "b", "c"])));
        let two = Shard::of_set(&path(&["a"]), vec!["c".into(), "d".into()]);
        assert_eq!(two.single(), None);
        let exact = Shard { pattern: vec![Segment::Name("a".into())], only: None };
        assert_eq!(exact.single(), Some(path(&["a"])));
        let open = Shard { pattern: vec![Segment::Name("a".into()), Segment::Hash], only: None };
        assert_eq!(open.single(), None);
    }
}
