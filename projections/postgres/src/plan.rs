//! The order of statements: many changes become few bulk statements without changing what comes out.
//!
//! Two changes commute unless they share a key ([`Change::keys`]). So each change goes on the lowest
//! level above the changes before it that share one of its keys, and joins those of its own kind
//! there; levels run one after the other. A barrier closes everything before it.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

use gradient_projections::{Change, Key};

/// Changes of one kind that run as one bulk statement.
#[derive(Debug)]
pub(crate) struct Group {
    level: usize,
    pub(crate) changes: Vec<Change>,
}

/// A plan under construction.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    groups: Vec<Group>,
    /// For each key, the level after the last change that has it.
    next: HashMap<Key, usize>,
    /// For each kind, its groups that are still open, by level.
    open: HashMap<Discriminant<Change>, Vec<usize>>,
    /// Nothing goes below this level any more.
    floor: usize,
    /// The level after the highest one.
    top: usize,
}

impl Plan {
    /// Adds a change, after all that were added before.
    pub(crate) fn push(&mut self, change: Change) {
        if change.is_barrier() {
            let level = self.top.max(self.floor);
            self.groups.push(Group { level, changes: vec![change] });
            self.floor = level + 1;
            self.top = self.floor;
            self.open.clear();
            self.next.clear();
            return;
        }
        let keys = change.keys();
        let after = keys.iter().flatten().filter_map(|key| self.next.get(key)).max();
        let lowest = after.copied().unwrap_or_default().max(self.floor);
        let kind = self.open.entry(discriminant(&change)).or_default();
        // A higher level of the same kind is as right as the lowest one, and saves a statement.
        let level = match kind.iter().find(|index| self.groups[**index].level >= lowest) {
            Some(index) => {
                self.groups[*index].changes.push(change);
                self.groups[*index].level
            }
            None => {
                kind.push(self.groups.len());
                self.groups.push(Group { level: lowest, changes: vec![change] });
                lowest
            }
        };
        for key in keys.into_iter().flatten() {
            self.next.insert(key, level + 1);
        }
        self.top = self.top.max(level + 1);
    }

    /// The groups in the order in which they run.
    pub(crate) fn finish(mut self) -> Vec<Group> {
        self.groups.sort_by_key(|group| group.level);
        self.groups
    }
}

#[cfg(test)]
mod tests {
    use gradient_domain::{BuildId, EvaluationId, JobId, Timestamp};
    use gradient_projections::change::{
        BuildQueued, BuildReady, BuildThawed, EvaluationWants, JobTaken,
    };
    use rand::prelude::*;

    use super::*;

    fn change(kind: u32, build: u32, at: u64) -> Change {
        let (build, at) = (BuildId(build), Timestamp(at));
        match kind {
            0 => Change::BuildReady(BuildReady { build, at }),
            1 => Change::BuildThawed(BuildThawed { build, at }),
            2 => Change::BuildQueued(BuildQueued { build }),
            3 => Change::JobTaken(JobTaken { job: JobId::Build(build) }),
            _ => Change::EvaluationWants(EvaluationWants {
                evaluation: EvaluationId([0; 16]),
                builds: vec![build],
            }),
        }
    }

    #[test]
    fn changes_that_share_a_key_keep_their_order_and_barriers_hold() {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..300 {
            let changes: Vec<Change> = (0..80)
                .map(|at| {
                    let kind =
                        if random.random_ratio(1, 40) { 4 } else { random.random_range(0..4) };
                    change(kind, random.random_range(0..6), at)
                })
                .collect();
            let mut plan = Plan::default();
            changes.iter().for_each(|change| plan.push(change.clone()));
            let ran: Vec<Change> = plan.finish().into_iter().flat_map(|g| g.changes).collect();
            assert_eq!(ran.len(), changes.len());
            let of_key = |list: &[Change], key: Key| -> Vec<Change> {
                let has = |c: &&Change| c.is_barrier() || c.keys().contains(&Some(key));
                list.iter().filter(has).cloned().collect()
            };
            for build in 0..6 {
                let key = Key::Job(JobId::Build(BuildId(build)));
                assert_eq!(of_key(&ran, key), of_key(&changes, key));
            }
        }
    }

    #[test]
    fn equal_kinds_of_different_keys_are_one_statement() {
        let mut plan = Plan::default();
        for build in 0..100 {
            plan.push(change(0, build, 0));
            plan.push(change(2, build, 0));
        }
        let sizes: Vec<usize> = plan.finish().iter().map(|group| group.changes.len()).collect();
        assert_eq!(sizes, [100, 100]);
    }
}
