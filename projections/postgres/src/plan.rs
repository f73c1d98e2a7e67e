//! The order of statements: many changes become few bulk statements without changing what comes out.
//!
//! Two changes commute unless they share a key ([`Change::keys`]), or one walks over the graph that the
//! other grows ([`Change::graph`]). So each change goes on the lowest level above the changes before it
//! that it does not commute with, and joins those of its own kind there; levels run one after the other.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

use gradient_projections::change::Graph;
use gradient_projections::{Change, Key};

/// Changes of one kind that run as one bulk statement.
#[derive(Debug)]
pub(crate) struct Group {
    level: usize,
    pub(crate) changes: Vec<Change>,
}

/// Where the last change of a key went: which group, and where in it.
#[derive(Clone, Copy, Debug)]
struct Last {
    group: usize,
    index: usize,
}

/// A plan under construction.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    groups: Vec<Group>,
    last: HashMap<Key, Last>,
    /// For each kind, its groups.
    of_kind: HashMap<Discriminant<Change>, Vec<usize>>,
    /// The level after the last change that grows the graph, and after the last that walks over it.
    grown: usize,
    walked: usize,
}

impl Plan {
    /// Adds a change, after all that were added before.
    pub(crate) fn push(&mut self, change: Change) {
        let keys = change.keys();
        if change.overwrites() && self.overwrite(&change, &keys) {
            return;
        }
        let after = keys.iter().flatten().filter_map(|key| self.last.get(key));
        let above = after.map(|last| self.groups[last.group].level + 1).max().unwrap_or_default();
        let lowest = match change.graph() {
            Some(Graph::Grows) => above.max(self.walked),
            Some(Graph::Walks) => above.max(self.grown),
            None => above,
        };
        let graph = change.graph();
        let group = self.group(discriminant(&change), lowest);
        let Group { level, changes } = &mut self.groups[group];
        changes.push(change);
        match graph {
            Some(Graph::Grows) => self.grown = self.grown.max(*level + 1),
            Some(Graph::Walks) => self.walked = self.walked.max(*level + 1),
            None => {}
        }
        let last = Last { group, index: changes.len() - 1 };
        self.last.extend(keys.into_iter().flatten().map(|key| (key, last)));
    }

    /// Puts the change in the place of the last one of its keys, if that one is of the same kind.
    fn overwrite(&mut self, change: &Change, keys: &[Option<Key>; 3]) -> bool {
        let mut places = keys.iter().flatten().map(|key| self.last.get(key).copied());
        let Some(Some(Last { group, index })) = places.next() else { return false };
        let earlier = &mut self.groups[group].changes[index];
        let fits = discriminant(earlier) == discriminant(change) && earlier.keys() == *keys;
        if fits {
            *earlier = change.clone();
        }
        fits
    }

    /// The lowest group of a kind that is not below a level. A group above it is as right as one on it,
    /// and saves a statement.
    fn group(&mut self, kind: Discriminant<Change>, lowest: usize) -> usize {
        let groups = &self.groups;
        let of_kind = self.of_kind.entry(kind).or_default();
        let found = of_kind.iter().copied().filter(|group| groups[*group].level >= lowest);
        if let Some(group) = found.min_by_key(|group| groups[*group].level) {
            return group;
        }
        let group = self.groups.len();
        self.groups.push(Group { level: lowest, changes: Vec::new() });
        of_kind.push(group);
        group
    }

    /// The groups in the order in which they run.
    pub(crate) fn finish(mut self) -> Vec<Group> {
        self.groups.sort_by_key(|group| group.level);
        self.groups
    }
}

#[cfg(test)]
mod tests {
    use gradient_domain::{BuildId, EvaluationId, JobId, Kind, Timestamp, WorkerId};
    use gradient_projections::change::{
        BuildQueued, BuildReady, BuildSucceeded, BuildThawed, EvaluationWants, JobTaken, WorkerIdle,
    };
    use rand::prelude::*;

    use super::*;

    fn change(kind: u32, n: u8, at: u64) -> Change {
        let (build, at) = (BuildId(u32::from(n)), Timestamp(at));
        match kind {
            0 => Change::BuildReady(BuildReady { build, at }),
            1 => Change::BuildThawed(BuildThawed { build, at }),
            2 => Change::BuildQueued(BuildQueued { build }),
            3 => Change::JobTaken(JobTaken { job: JobId::Build(build) }),
            4 => Change::BuildSucceeded(BuildSucceeded { build, substituted: false, at }),
            5 => {
                let worker = WorkerId([n; 16]);
                Change::WorkerIdle(WorkerIdle { worker, kind: Kind::Build, since: Some(at) })
            }
            _ => Change::EvaluationWants(EvaluationWants {
                evaluation: EvaluationId([n; 16]),
                builds: vec![build],
            }),
        }
    }

    fn do_not_commute(a: &Change, b: &Change) -> bool {
        let shares = |key: &Key| b.keys().contains(&Some(*key));
        let walks_over = matches!((a.graph(), b.graph()), (Some(a), Some(b)) if a != b);
        walks_over || a.keys().iter().flatten().any(shares)
    }

    #[test]
    fn what_does_not_commute_keeps_its_order() {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..300 {
            // The time makes every change one of its kind.
            let changes: Vec<Change> = (0..80)
                .map(|at| change(random.random_range(0..7), random.random_range(0..6), at))
                .collect();
            let mut plan = Plan::default();
            changes.iter().for_each(|change| plan.push(change.clone()));
            let ran: Vec<Change> = plan.finish().into_iter().flat_map(|g| g.changes).collect();
            for focus in &changes {
                let related = |list: &[Change]| -> Vec<Change> {
                    let mut related: Vec<Change> =
                        list.iter().filter(|c| do_not_commute(focus, c)).cloned().collect();
                    // Of changes that overwrite each other only the last one has to be there.
                    if focus.overwrites() {
                        related.drain(..related.len() - 1);
                    }
                    related
                };
                if focus.graph().is_none() {
                    assert_eq!(related(&ran), related(&changes));
                } else {
                    let at =
                        |list: &[Change]| list.iter().position(|c| c == focus).expect("it ran");
                    let before = |list: &[Change]| -> usize {
                        list[..at(list)].iter().filter(|c| do_not_commute(focus, c)).count()
                    };
                    assert_eq!(before(&ran), before(&changes));
                }
            }
        }
    }

    #[test]
    fn equal_kinds_of_different_keys_are_one_statement() {
        let mut plan = Plan::default();
        for build in 0..100 {
            plan.push(change(0, build, 0));
            plan.push(change(2, build, 0));
            plan.push(change(5, 1, u64::from(build)));
        }
        let sizes: Vec<usize> = plan.finish().iter().map(|group| group.changes.len()).collect();
        assert_eq!(sizes, [100, 1, 100]);
    }
}
