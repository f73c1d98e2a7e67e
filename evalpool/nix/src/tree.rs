//! A flake's outputs as the tree that the walk sees.

use gradient_domain::StorePath;
use gradient_ipc::tree::{AttrTree, NodeKind};

use crate::error::EvalError;
use crate::evaluator::Value;

/// The outputs of one flake.
pub(crate) struct FlakeTree {
    /// The forced set of outputs.
    pub(crate) outputs: Value,
}

fn text(error: EvalError) -> String {
    error.to_string()
}

impl AttrTree for FlakeTree {
    type Node = Value;

    fn root(&mut self) -> Result<Value, String> {
        Ok(self.outputs.clone())
    }

    fn kind(&mut self, node: &Value) -> Result<NodeKind, String> {
        if !node.is_set() {
            return Ok(NodeKind::Value(node.type_words()));
        }
        let kind = match node.attribute("type").map_err(text)? {
            Some(kind) => kind.string().unwrap_or_default(),
            None if node.has("_type") => return Ok(NodeKind::Opaque),
            None => return Ok(NodeKind::Set),
        };
        Ok(match kind.as_deref() {
            Some("derivation") => NodeKind::Derivation,
            Some(_) | None => NodeKind::Opaque,
        })
    }

    fn names(&mut self, node: &Value) -> Result<Vec<String>, String> {
        node.names().map_err(text)
    }

    fn child(&mut self, node: &Value, name: &str) -> Result<Option<Value>, String> {
        node.attribute(name).map_err(text)
    }

    fn drv_path(&mut self, node: &Value) -> Result<StorePath, String> {
        let Some(value) = node.attribute("drvPath").map_err(text)? else {
            return Err("not a derivation (a set of type derivation without drvPath)".to_owned());
        };
        let Some(path) = value.string().map_err(text)? else {
            return Err(format!("not a derivation (drvPath is {})", value.type_words()));
        };
        let parsed: StorePath =
            path.parse().map_err(|error| format!("not a derivation (drvPath: {error})"))?;
        if !parsed.is_derivation() {
            return Err(format!("not a derivation (drvPath '{path}' does not end in .drv)"));
        }
        Ok(parsed)
    }
}
