//! The course of one evaluation over a pool: which call comes next, what a crash does to its call,
//! and what of the results is new. The calls themselves are somebody else's: a pool of processes,
//! or a test.

use std::collections::{BTreeSet, VecDeque};
use std::hash::Hasher;

use gradient_domain::AttrPath;
use gradient_domain::pattern::Segment;

use crate::codec::FRAME_LEN_MAX;
use crate::shard::{Recursion, Shard};
use crate::tree::AttrError;

/// How a call ended without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// How the subprocess ended.
    pub cause: String,
    /// Whether it was killed for running over the wall limit. That is not tried again.
    pub timed_out: bool,
}

/// What a subprocess is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Split these patterns.
    Plan(Vec<Vec<Segment>>),
    /// List this shard.
    List(Shard),
}

/// One call to a subprocess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What to do.
    pub work: Work,
    /// How often this very call has crashed before.
    pub crashes: u32,
}

impl Call {
    fn first(work: Work) -> Call {
        Call { work, crashes: 0 }
    }
}

/// The queue of calls of one evaluation.
#[derive(Debug)]
pub struct Discovery {
    pool: usize,
    recursion: Recursion,
    queue: VecDeque<Call>,
}

impl Discovery {
    /// Begins with a plan of all includes, for a pool of so many subprocesses.
    #[must_use]
    pub fn new(pool: usize, includes: Vec<Vec<Segment>>, recursion: Recursion) -> Discovery {
        let queue = VecDeque::from([Call::first(Work::Plan(includes))]);
        Discovery { pool, recursion, queue }
    }

    /// How far the walks go below their patterns.
    #[must_use]
    pub fn recursion(&self) -> Recursion {
        self.recursion
    }

    /// Takes the next call.
    pub fn next_call(&mut self) -> Option<Call> {
        self.queue.pop_front()
    }

    /// Queues shards, planned or deferred, in batches.
    pub fn add_shards(&mut self, shards: Vec<Shard>) {
        let batches = shards.into_iter().flat_map(|shard| shard.into_batches(self.pool));
        self.queue.extend(batches.map(|batch| Call::first(Work::List(batch))));
    }

    /// Queues a call again whose subprocess could not open the flake, though another one could;
    /// `false` if that happened before.
    pub fn failed_once(&mut self, call: &Call) -> bool {
        let again = call.crashes == 0;
        if again {
            self.queue.push_back(Call { crashes: 1, ..call.clone() });
        }
        again
    }

    /// Decides about a call whose subprocess ended: it comes back in smaller parts down to the one
    /// attribute at fault, which is tried once more and then given up with this error.
    pub fn crashed(&mut self, call: Call, crash: &Crash) -> Option<AttrError> {
        if let Some(attr) = single(&call.work) {
            if call.crashes == 0 && !crash.timed_out {
                self.queue.push_front(Call { crashes: 1, ..call });
                return None;
            }
            return Some(AttrError { attr, message: crash_message(crash) });
        }
        self.split(call.work, crash.timed_out);
        None
    }

    /// Decides about a call whose answer did not fit into a frame: it comes back in smaller parts. One
    /// attribute that alone tells so much is given up with this error.
    pub fn answer_too_long(&mut self, call: Call) -> Option<AttrError> {
        if let Some(attr) = single(&call.work) {
            let message = format!("what it tells is longer than {FRAME_LEN_MAX} bytes");
            return Some(AttrError { attr, message });
        }
        self.split(call.work, false);
        None
    }

    /// Queues the parts of a call that is more than one attribute; each attribute by itself if every
    /// part would take as long as the whole.
    fn split(&mut self, work: Work, singly: bool) {
        match work {
            Work::Plan(patterns) => {
                let one = |pattern| Call::first(Work::Plan(vec![pattern]));
                self.queue.extend(patterns.into_iter().map(one));
            }
            // What took too long would take as long again in every smaller batch it is in.
            Work::List(shard) if shard.only.is_some() && singly => {
                self.add_shards(shard.into_singles());
            }
            Work::List(shard) if shard.only.is_some() => self.add_shards(vec![shard]),
            Work::List(shard) => {
                // An open shard is split at its next wildcard, so that its parts crash alone.
                self.queue.push_back(Call::first(Work::Plan(vec![shard.pattern])));
            }
        }
    }
}

/// The one attribute that a call is about, if it is.
fn single(work: &Work) -> Option<AttrPath> {
    match work {
        Work::List(shard) => shard.single(),
        Work::Plan(patterns) if patterns.len() == 1 => Some(plan_prefix(patterns)),
        Work::Plan(_) => None,
    }
}

fn plan_prefix(patterns: &[Vec<Segment>]) -> AttrPath {
    let pattern = patterns.first().cloned().unwrap_or_default();
    Shard::whole(pattern, Recursion::Pattern).prefix()
}

fn crash_message(crash: &Crash) -> String {
    if crash.timed_out {
        format!("evaluation of this attribute took too long: {}", crash.cause)
    } else {
        format!("evaluator crashed while listing this attribute: {}", crash.cause)
    }
}

/// Most warnings that one evaluation tells.
pub const WARNINGS_MAX: usize = 1_000;

fn digest(text: &str) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Tells results that are new from repeats, which overlapping patterns and retries bring.
#[derive(Debug, Default)]
pub struct Merge {
    excludes: BTreeSet<AttrPath>,
    attributes: BTreeSet<AttrPath>,
    /// Paths and digests: the texts themselves may be many and long.
    errors: BTreeSet<(AttrPath, u64)>,
    warnings: BTreeSet<u64>,
}

impl Merge {
    /// Leaves out these paths.
    #[must_use]
    pub fn new(excludes: BTreeSet<AttrPath>) -> Merge {
        Merge { excludes, ..Merge::default() }
    }

    /// Whether this attribute was not reported yet.
    pub fn is_new_attribute(&mut self, attr: &AttrPath) -> bool {
        !self.excludes.contains(attr) && self.attributes.insert(attr.clone())
    }

    /// Whether this error was not reported yet.
    pub fn is_new_error(&mut self, error: &AttrError) -> bool {
        !self.excludes.contains(&error.attr)
            && self.errors.insert((error.attr.clone(), digest(&error.message)))
    }

    /// Whether this warning was not reported yet; never after [`WARNINGS_MAX`] of them.
    pub fn is_new_warning(&mut self, warning: &str) -> bool {
        self.warnings.len() < WARNINGS_MAX && self.warnings.insert(digest(warning))
    }

    /// Every path that something was reported about.
    pub fn paths(&self) -> impl Iterator<Item = &AttrPath> {
        self.attributes.iter().chain(self.errors.iter().map(|(attr, _)| attr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("p{n:02}")).collect()
    }

    fn crash() -> Crash {
        Crash { cause: "eval worker closed pipe: signal: 9 (SIGKILL)".into(), timed_out: false }
    }

    /// Runs a queue whose subprocess dies whenever it meets `poison`; gives calls that died, names
    /// listed, errors.
    fn run(pool: usize, count: usize, poison: &str) -> (usize, Vec<String>, Vec<AttrError>) {
        let mut discovery = Discovery::new(pool, Vec::new(), Recursion::Pattern);
        discovery.next_call();
        let set: AttrPath = ["a"].into_iter().collect();
        discovery.add_shards(vec![Shard::of_set(&set, names(count), Recursion::Pattern)]);
        let (mut died, mut listed, mut errors) = (0, Vec::new(), Vec::new());
        while let Some(call) = discovery.next_call() {
            let Work::List(shard) = &call.work else { panic!("no plan expected") };
            let only = shard.only.clone().unwrap_or_default();
            if only.iter().any(|name| name == poison) {
                died += 1;
                errors.extend(discovery.crashed(call, &crash()));
            } else {
                listed.extend(only);
            }
        }
        listed.sort();
        (died, listed, errors)
    }

    #[test]
    fn one_poisoned_name_costs_itself_and_few_starts() {
        for (pool, count, starts) in [(1, 16, 3), (1, 256, 5), (3, 700, 4), (4, 16, 2)] {
            let (died, listed, errors) = run(pool, count, "p09");
            assert_eq!(listed.len(), count - 1);
            assert!(!listed.contains(&"p09".to_owned()));
            assert_eq!(errors.len(), 1);
            assert_eq!(errors[0].attr.to_string(), "a.p09");
            assert_eq!(
                errors[0].message,
                "evaluator crashed while listing this attribute: \
                 eval worker closed pipe: signal: 9 (SIGKILL)"
            );
            assert!(died <= starts, "{died} dead children for {count} names, pool of {pool}");
        }
    }

    #[test]
    fn an_answer_that_is_too_long_comes_in_parts() {
        let mut discovery = Discovery::new(1, Vec::new(), Recursion::Pattern);
        discovery.next_call();
        let set: AttrPath = ["a"].into_iter().collect();
        discovery.add_shards(vec![Shard::of_set(&set, names(16), Recursion::Pattern)]);
        let (mut told, mut errors) = (Vec::new(), Vec::new());
        while let Some(call) = discovery.next_call() {
            let Work::List(shard) = &call.work else { panic!("no plan expected") };
            let only = shard.only.clone().unwrap_or_default();
            // Three fit into a frame, and one of them not even alone.
            if only.len() > 3 || only.iter().any(|name| name == "p09") {
                errors.extend(discovery.answer_too_long(call));
            } else {
                told.extend(only);
            }
        }
        assert_eq!(told.len(), 15);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].attr.to_string(), "a.p09");
        assert_eq!(errors[0].message, "what it tells is longer than 67108864 bytes");
    }

    #[test]
    fn a_single_name_over_its_time_is_not_tried_again() {
        let mut discovery = Discovery::new(1, Vec::new(), Recursion::Pattern);
        discovery.next_call();
        discovery.add_shards(vec![Shard::of_set(
            &["a"].into_iter().collect(),
            names(1),
            Recursion::Pattern,
        )]);
        let call = discovery.next_call().expect("call");
        let timeout = Crash { cause: "time limit of 5 s".into(), timed_out: true };
        let error = discovery.crashed(call, &timeout).expect("error");
        assert_eq!(error.message, "evaluation of this attribute took too long: time limit of 5 s");
        assert!(discovery.next_call().is_none());
    }

    #[test]
    fn a_batch_over_its_time_comes_back_name_by_name() {
        let mut discovery = Discovery::new(1, Vec::new(), Recursion::Pattern);
        discovery.next_call();
        discovery.add_shards(vec![Shard::of_set(
            &["a"].into_iter().collect(),
            names(200),
            Recursion::Pattern,
        )]);
        let call = discovery.next_call().expect("call");
        let Work::List(shard) = call.work.clone() else { panic!("no plan expected") };
        let len = shard.only.expect("names").len();
        let rest = std::iter::from_fn(|| discovery.next_call()).count();
        let timeout = Crash { cause: "time limit of 5 s".into(), timed_out: true };
        assert_eq!(discovery.crashed(call, &timeout), None);
        assert_eq!(std::iter::from_fn(|| discovery.next_call()).count(), len);
        assert!(len > 1 && rest > 1);
    }

    #[test]
    fn an_open_shard_and_a_joint_plan_come_back_split() {
        let name = |text: &str| Segment::Name(text.into());
        let open = vec![name("a"), Segment::Hash, name("c")];
        let mut discovery =
            Discovery::new(2, vec![open.clone(), vec![name("b")]], Recursion::Pattern);
        let joint = discovery.next_call().expect("plan");
        assert_eq!(discovery.crashed(joint, &crash()), None);
        for _ in 0..2 {
            let call = discovery.next_call().expect("split plan");
            assert!(matches!(&call.work, Work::Plan(patterns) if patterns.len() == 1));
        }
        discovery.add_shards(vec![Shard::whole(open.clone(), Recursion::Pattern)]);
        let call = discovery.next_call().expect("list");
        assert_eq!(discovery.crashed(call, &crash()), None);
        let plan = discovery.next_call().expect("plan");
        assert_eq!(plan.work, Work::Plan(vec![open]));
        assert_eq!(discovery.crashed(plan, &crash()), None);
        let again = discovery.next_call().expect("second try");
        assert_eq!(
            discovery.crashed(again, &crash()).map(|e| e.attr.to_string()),
            Some("a".into())
        );
    }

    #[test]
    fn repeats_and_excluded_paths_are_told_once_or_never() {
        let path = |text: &str| [text].into_iter().collect::<AttrPath>();
        let mut merge = Merge::new(BTreeSet::from([path("no")]));
        assert!(merge.is_new_attribute(&path("a")));
        assert!(!merge.is_new_attribute(&path("a")));
        assert!(!merge.is_new_attribute(&path("no")));
        let error = AttrError { attr: path("no"), message: "boom".into() };
        assert!(!merge.is_new_error(&error));
        assert!(merge.is_new_warning("w") && !merge.is_new_warning("w"));
        assert_eq!(merge.paths().count(), 1);
    }
}
