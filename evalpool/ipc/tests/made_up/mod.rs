//! A made-up flake.

use std::collections::BTreeMap;

use gradient_domain::StorePath;
use gradient_ipc::tree::{AttrTree, NodeKind};

/// A made-up value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Set(BTreeMap<String, Value>),
    Opaque(BTreeMap<String, Value>),
    Derivation(BTreeMap<String, Value>),
    BrokenDerivation,
    Plain,
    Throws,
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

    fn root(&mut self) -> Result<&'a Value, String> {
        Ok(self.root)
    }

    fn kind(&mut self, node: &&'a Value) -> Result<NodeKind, String> {
        match node {
            Value::Set(_) => Ok(NodeKind::Set),
            Value::Opaque(_) => Ok(NodeKind::Opaque),
            Value::Derivation(_) | Value::BrokenDerivation => Ok(NodeKind::Derivation),
            Value::Plain => Ok(NodeKind::Value("an integer")),
            Value::Throws => Err("boom".into()),
        }
    }

    fn names(&mut self, node: &&'a Value) -> Result<Vec<String>, String> {
        Ok(children(node).map(|set| set.keys().cloned().collect()).unwrap_or_default())
    }

    fn child(&mut self, node: &&'a Value, name: &str) -> Result<Option<&'a Value>, String> {
        self.forced.push(name.to_owned());
        match children(node).and_then(|set| set.get(name)) {
            Some(Value::Throws) => Err("boom".into()),
            child => Ok(child),
        }
    }

    fn drv_path(&mut self, node: &&'a Value) -> Result<StorePath, String> {
        match node {
            Value::Derivation(_) => {
                let base_name = format!("{}-x.drv", "0".repeat(32));
                Ok(StorePath::from_base_name(&base_name).expect("valid"))
            }
            _ => Err("broken".into()),
        }
    }
}

fn children(value: &Value) -> Option<&BTreeMap<String, Value>> {
    match value {
        Value::Set(set) | Value::Opaque(set) | Value::Derivation(set) => Some(set),
        Value::BrokenDerivation | Value::Plain | Value::Throws => None,
    }
}
