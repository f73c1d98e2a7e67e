//! A made-up flake.

use std::collections::BTreeMap;

use gradient_domain::StorePath;
use gradient_ipc::tree::{AttrTree, Job, NodeKind, TreeError, ValueKind};

/// A made-up value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Set(BTreeMap<String, Value>),
    Opaque(BTreeMap<String, Value>),
    Derivation(BTreeMap<String, Value>),
    BrokenDerivation,
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
            Value::Plain => Ok(NodeKind::Value(ValueKind::Integer)),
            Value::Throws => Err(TreeError::repeatable("boom")),
        }
    }

    fn names(&mut self, node: &&'a Value) -> Result<Vec<String>, TreeError> {
        Ok(children(node).map(|set| set.keys().cloned().collect()).unwrap_or_default())
    }

    fn child(&mut self, node: &&'a Value, name: &str) -> Result<Option<&'a Value>, TreeError> {
        self.forced.push(name.to_owned());
        match children(node).and_then(|set| set.get(name)) {
            Some(Value::Throws) => Err(TreeError::repeatable("boom")),
            child => Ok(child),
        }
    }

    fn called(&mut self, node: &'a Value) -> Result<&'a Value, TreeError> {
        match node {
            Value::Function(result) => match &**result {
                Value::Throws => Err(TreeError::repeatable("boom")),
                result => Ok(result),
            },
            other => Ok(other),
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
                let base_name = format!("{}-x.drv", "0".repeat(32));
                let drv_path = StorePath::from_base_name(&base_name).expect("valid");
                Ok(Job { drv_path, extra: None })
            }
            _ => Err(TreeError::repeatable("broken")),
        }
    }
}

fn children(value: &Value) -> Option<&BTreeMap<String, Value>> {
    match value {
        Value::Set(set) | Value::Opaque(set) | Value::Derivation(set) => Some(set),
        Value::BrokenDerivation | Value::Plain | Value::Throws | Value::Function(_) => None,
    }
}
