//! A made-up flake, and strategies for such.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use gradient_domain::pattern::{Pattern, PatternSet, Segment};
use gradient_domain::{AttrPath, StorePath};
use gradient_ipc::shard::Recursion;
use gradient_ipc::tree::{AttrTree, Called, Job, NodeKind, TreeError, ValueKind};
use proptest::prelude::*;

/// A made-up value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Set(BTreeMap<String, Value>),
    Opaque(BTreeMap<String, Value>),
    Derivation(BTreeMap<String, Value>),
    BrokenDerivation,
    /// A set whose `type` throws.
    Unsure(BTreeMap<String, Value>),
    Plain,
    Throws,
    /// A function without arguments, and its result.
    Function(Box<Value>),
}

pub(crate) struct Tree<'a> {
    pub(crate) root: &'a Value,
    /// Names of the attributes that were forced, in order.
    pub(crate) forced: Vec<String>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(root: &'a Value) -> Tree<'a> {
        Tree { root, forced: Vec::new() }
    }
}

impl<'a> AttrTree for Tree<'a> {
    type Node = &'a Value;

    fn root(&mut self) -> Result<&'a Value, TreeError> {
        Ok(self.root)
    }

    fn kind(&mut self, node: &&'a Value) -> Result<NodeKind, TreeError> {
        match node {
            Value::Set(_) => Ok(NodeKind::Set),
            Value::Opaque(_) => Ok(NodeKind::Opaque),
            Value::Derivation(_) | Value::BrokenDerivation => Ok(NodeKind::Derivation),
            Value::Function(_) => Ok(NodeKind::Value(ValueKind::Function)),
            Value::Plain => Ok(NodeKind::Value(ValueKind::String)),
            Value::Throws => Err(TreeError::repeatable("boom")),
            Value::Unsure(_) => Err(TreeError::repeatable("type boom")),
        }
    }

    fn names(&mut self, node: &&'a Value) -> Result<Vec<String>, TreeError> {
        let marks: &[&str] = match node {
            Value::Derivation(_) => &["type", "drvPath"],
            Value::BrokenDerivation => &["type"],
            _ => &[],
        };
        let names: BTreeSet<String> = marks.iter().map(|name| (*name).to_owned()).collect();
        let own = children(node).into_iter().flat_map(BTreeMap::keys).cloned();
        Ok(names.into_iter().chain(own).collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn size(&mut self, node: &&'a Value) -> usize {
        self.names(node).map_or(0, |names| names.len())
    }

    fn has(&mut self, node: &&'a Value, name: &str) -> bool {
        self.names(node).is_ok_and(|names| names.iter().any(|found| found == name))
    }

    fn child(&mut self, node: &&'a Value, name: &str) -> Result<Option<&'a Value>, TreeError> {
        self.forced.push(name.to_owned());
        let child = match (node, name) {
            // What makes a value a derivation.
            (Value::Derivation(_), "type" | "drvPath") => Some(&Value::Plain),
            (Value::BrokenDerivation, "type") => Some(&Value::Plain),
            _ => children(node).and_then(|set| set.get(name)),
        };
        match child {
            Some(Value::Throws) => Err(TreeError::repeatable("boom")),
            child => Ok(child),
        }
    }

    fn called(&mut self, node: &'a Value) -> Result<Called<&'a Value>, TreeError> {
        match node {
            Value::Function(result) => match &**result {
                Value::Throws => Err(TreeError::repeatable("boom")),
                result => Ok(Called::Result(result)),
            },
            other => Ok(Called::Same(other)),
        }
    }

    fn recurses(&mut self, node: &&'a Value) -> Result<bool, TreeError> {
        match children(node).and_then(|set| set.get("recurseForDerivations")) {
            Some(Value::Throws) => Err(TreeError::repeatable("boom")),
            mark => Ok(mark.is_some()),
        }
    }

    fn job(&mut self, node: &&'a Value) -> Result<Job, TreeError> {
        match node {
            Value::Derivation(_) => {
                // Each has a path of its own.
                let number = std::ptr::from_ref::<Value>(node) as usize;
                let base_name = format!("{number:032}-x.drv");
                let drv_path = StorePath::from_base_name(&base_name).expect("valid");
                Ok(Job { drv_path, extra: None })
            }
            _ => Err(TreeError::repeatable("broken")),
        }
    }
}

fn children(value: &Value) -> Option<&BTreeMap<String, Value>> {
    match value {
        Value::Set(set) | Value::Opaque(set) | Value::Derivation(set) | Value::Unsure(set) => {
            Some(set)
        }
        Value::BrokenDerivation | Value::Plain | Value::Throws | Value::Function(_) => None,
    }
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
        let function = inner.clone().prop_map(|result| Value::Function(result.into()));
        let set = proptest::collection::btree_map(any_name(), inner, 0..7);
        prop_oneof![
            8 => set.clone().prop_map(Value::Set),
            1 => set.clone().prop_map(Value::Opaque),
            1 => set.clone().prop_map(Value::Unsure),
            1 => function,
            1 => set.prop_map(Value::Derivation),
        ]
    })
}

pub(crate) fn any_recursion() -> impl Strategy<Value = Recursion> {
    prop_oneof![
        2 => Just(Recursion::Pattern),
        1 => Just(Recursion::Marked),
        1 => Just(Recursion::Tree),
        1 => Just(Recursion::WholeTree),
    ]
}

pub(crate) fn any_root() -> impl Strategy<Value = Value> {
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

pub(crate) fn any_set() -> impl Strategy<Value = PatternSet> {
    let includes = proptest::collection::vec(any_include(), 1..4);
    let path = proptest::collection::vec(any_name(), 1..4).prop_map(AttrPath);
    let excludes = proptest::collection::vec(path, 0..3);
    (includes, excludes).prop_map(|(includes, excludes)| PatternSet { includes, excludes })
}
