//! The union over all shards equals a walk in one process, for every pool; and patterns read back.

mod made_up;

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::AttrPath;
use gradient_domain::pattern::{Pattern, PatternSet, Segment};
use gradient_ipc::discovery::{Crash, Discovery, Merge, Work};
use gradient_ipc::message::ListOk;
use gradient_ipc::shard::{Recursion, Shard};
use gradient_ipc::tree::AttrError;
use gradient_ipc::walker;
use made_up::{Tree, Value};
use proptest::prelude::*;

type Outcome = (BTreeSet<AttrPath>, BTreeSet<AttrError>);

fn take(merge: &mut Merge, outcome: &mut Outcome, found: &ListOk) {
    for item in &found.items {
        match &item.result {
            Ok(_) if merge.is_new_attribute(&item.attr) => {
                outcome.0.insert(item.attr.clone());
            }
            Ok(_) => {}
            Err(message) => {
                let error = AttrError { attr: item.attr.clone(), message: message.clone() };
                outcome.1.extend(merge.is_new_error(&error).then_some(error));
            }
        }
    }
    for error in &found.errors {
        outcome.1.extend(merge.is_new_error(error).then(|| error.clone()));
    }
}

/// Lists every include as one shard, deferred sets likewise: no plan, no batches.
fn one_process(root: &Value, set: &PatternSet, recursion: Recursion) -> Outcome {
    let excludes: BTreeSet<_> = set.excludes.iter().cloned().collect();
    let mut merge = Merge::new(excludes.clone());
    let mut outcome = Outcome::default();
    let whole = |pattern: &Pattern| Shard::whole(pattern.segments.clone(), recursion);
    let mut shards: Vec<_> = set.includes.iter().map(whole).collect();
    while let Some(shard) = shards.pop() {
        let found = walker::list(&mut Tree::new(root), &shard, &excludes).expect("root");
        take(&mut merge, &mut outcome, &found);
        shards.extend(found.deferred);
    }
    outcome
}

/// Plans, batches, lists, and lets every `crash_every`-th call crash on its first try.
fn sharded(
    root: &Value,
    set: &PatternSet,
    recursion: Recursion,
    pool: usize,
    crash_every: usize,
) -> Outcome {
    let excludes: BTreeSet<_> = set.excludes.iter().cloned().collect();
    let mut merge = Merge::new(excludes.clone());
    let mut outcome = Outcome::default();
    let includes = set.includes.iter().map(|include| include.segments.clone()).collect();
    let mut discovery = Discovery::new(pool, includes, recursion);
    let crash = Crash { cause: "gone".into(), timed_out: false };
    for n in 1.. {
        let Some(call) = discovery.next_call() else {
            break;
        };
        if n % crash_every == 0 && call.crashes == 0 {
            assert_eq!(discovery.crashed(call, &crash), None);
            continue;
        }
        match &call.work {
            Work::Plan(patterns) => {
                let planned =
                    walker::plan(&mut Tree::new(root), patterns, recursion).expect("root");
                let errors = ListOk { errors: planned.errors, ..ListOk::default() };
                take(&mut merge, &mut outcome, &errors);
                discovery.add_shards(planned.shards);
            }
            Work::List(shard) => {
                let found = walker::list(&mut Tree::new(root), shard, &excludes).expect("root");
                take(&mut merge, &mut outcome, &found);
                discovery.add_shards(found.deferred);
            }
        }
    }
    outcome
}

fn any_name() -> impl Strategy<Value = String> + Clone {
    let names =
        ["packages", "checks", "hydraJobs", "x", "a.b", "*", "type", "recurseForDerivations", "y"];
    proptest::sample::select(names.to_vec()).prop_map(str::to_owned)
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => Just(Value::Derivation(BTreeMap::new())),
        1 => Just(Value::BrokenDerivation),
        2 => Just(Value::Plain),
        2 => Just(Value::Throws),
    ];
    leaf.prop_recursive(5, 120, 7, |inner| {
        let set = proptest::collection::btree_map(any_name(), inner, 0..7);
        prop_oneof![
            8 => set.clone().prop_map(Value::Set),
            1 => set.clone().prop_map(Value::Opaque),
            1 => set.clone().prop_map(|set| Value::Function(Value::Set(set).into())),
            1 => set.prop_map(Value::Derivation),
        ]
    })
}

fn any_recursion() -> impl Strategy<Value = Recursion> {
    prop_oneof![
        2 => Just(Recursion::Pattern),
        1 => Just(Recursion::Marked),
        1 => Just(Recursion::Tree),
        1 => Just(Recursion::WholeTree),
    ]
}

fn any_root() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map(any_name(), any_value(), 0..7).prop_map(Value::Set)
}

fn any_segment() -> impl Strategy<Value = Segment> {
    prop_oneof![
        2 => any_name().prop_map(Segment::Name),
        3 => Just(Segment::Star),
        2 => Just(Segment::Hash),
    ]
}

fn any_include() -> impl Strategy<Value = Pattern> {
    proptest::collection::vec(any_segment(), 2..5).prop_map(|mut segments| {
        segments.dedup_by(|a, b| *a == Segment::Star && *b == Segment::Star);
        if segments.len() == 1 {
            segments.insert(0, Segment::Name("packages".into()));
        }
        Pattern { exclude: false, segments }
    })
}

fn any_set() -> impl Strategy<Value = PatternSet> {
    let includes = proptest::collection::vec(any_include(), 1..4);
    let path = proptest::collection::vec(any_name(), 1..4).prop_map(AttrPath);
    let excludes = proptest::collection::vec(path, 0..3);
    (includes, excludes).prop_map(|(includes, excludes)| PatternSet { includes, excludes })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sharding_finds_the_same(
        root in any_root(),
        set in any_set(),
        recursion in any_recursion(),
        pool in 1usize..9,
        crash_every in 2usize..9,
    ) {
        let whole = one_process(&root, &set, recursion);
        prop_assert_eq!(&whole, &sharded(&root, &set, recursion, pool, usize::MAX));
        prop_assert_eq!(&whole, &sharded(&root, &set, recursion, pool, crash_every));
    }

    #[test]
    fn a_printed_set_reads_back(set in any_set()) {
        prop_assert_eq!(set.to_string().parse(), Ok(set));
    }

    #[test]
    fn a_printed_path_is_the_pattern_of_that_path(
        names in proptest::collection::vec(any::<String>(), 1..5),
    ) {
        let path = AttrPath(names);
        let pattern: Pattern = path.to_string().parse().expect("a printed path is a pattern");
        prop_assert_eq!(pattern.exact_path(), Some(path));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        if let Ok(set) = text.parse::<PatternSet>() {
            prop_assert_eq!(set.to_string().parse(), Ok(set));
        }
    }
}
