//! What a request is about as the tree that the walk sees.

use std::io::Write;

use gradient_domain::derivation::Outline;
use gradient_domain::{AttrPath, Derivation, StorePath};
use gradient_ipc::marks::Marks;
use gradient_ipc::message::{Expression, Extras, Source, TextExpression};
use gradient_ipc::tree::{AttrTree, Called, Extra, Job, NodeKind, TreeError, ValueKind};
use gradient_ipc::walker::RECURSION_MARK;

use crate::error::EvalError;
use crate::evaluator::Evaluator;
use crate::helpers;
use crate::teller::Teller;
use crate::value::Value;

/// A forced value and what to tell of the derivations in it.
pub(crate) struct SourceTree {
    evaluator: &'static Evaluator,
    root: Value,
    auto_call: Value,
    extras: Extras,
    teller: Teller,
    marks: Marks,
}

impl SourceTree {
    /// Opens a source: evaluates down to the root of its tree.
    pub(crate) fn open(
        evaluator: &'static Evaluator,
        source: &Source,
        marks: Marks,
    ) -> Result<SourceTree, TreeError> {
        let auto_call = evaluator.evaluate(helpers::AUTO_CALL, "/")?;
        let mut root = match &source.expression {
            Expression::Flake(reference) => {
                let outputs = evaluator.flake_outputs(reference)?;
                if !outputs.is_set() {
                    let words = outputs.value_kind().words();
                    let message = format!("the outputs of the flake are {words}, not a set");
                    return Err(TreeError::repeatable(message));
                }
                outputs
            }
            Expression::Text(TextExpression { text, folder }) => {
                auto_call.call(&evaluator.evaluate(text, folder)?)?
            }
        };
        let mut path = AttrPath::default();
        for name in &source.fragment {
            path = path.child(name);
            root = root.attribute(name)?.ok_or_else(|| TreeError::not_there(&path))?;
        }
        if let Some(select) = &source.select {
            root = evaluator.evaluate(select, "/")?.call(&root)?;
        }
        let extras = source.extras.clone();
        let teller = Teller::new(evaluator, &extras)?;
        Ok(SourceTree { evaluator, root, auto_call, extras, teller, marks })
    }

    /// What a derivation is in short; `None` if its file is not at hand, so that whoever needs to know
    /// meets the reason.
    fn outline(&self, drv_path: &StorePath) -> Option<Outline> {
        let text = std::fs::read(self.evaluator.file(drv_path)).ok()?;
        Derivation::parse(&text).ok().as_ref().map(Outline::from)
    }
}

impl AttrTree for SourceTree {
    type Node = Value;

    fn root(&mut self) -> Result<Value, TreeError> {
        Ok(self.root.clone())
    }

    fn begin(&mut self, path: &AttrPath) {
        // What cannot be told is not worth failing for.
        let _ = std::io::stderr().write_all(self.marks.at(path).as_bytes());
    }

    fn kind(&mut self, node: &Value) -> Result<NodeKind, TreeError> {
        if !node.is_set() {
            return Ok(NodeKind::Value(node.value_kind()));
        }
        let kind = match node.attribute("type")? {
            Some(kind) => kind.string().unwrap_or_default(),
            None if node.has("_type") => return Ok(NodeKind::Opaque),
            None => return Ok(NodeKind::Set),
        };
        Ok(match kind.as_deref() {
            Some("derivation") => NodeKind::Derivation,
            Some(_) | None => NodeKind::Opaque,
        })
    }

    fn names(&mut self, node: &Value) -> Result<Vec<String>, TreeError> {
        Ok(node.names()?)
    }

    fn size(&mut self, node: &Value) -> usize {
        node.size()
    }

    fn has(&mut self, node: &Value, name: &str) -> bool {
        node.has(name)
    }

    fn child(&mut self, node: &Value, name: &str) -> Result<Option<Value>, TreeError> {
        Ok(node.attribute(name)?)
    }

    fn called(&mut self, node: Value) -> Result<Called<Value>, TreeError> {
        let is_callable = node.value_kind() == ValueKind::Function || node.has("__functor");
        Ok(match is_callable {
            true => Called::Result(self.auto_call.call(&node)?),
            false => Called::Same(node),
        })
    }

    fn recurses(&mut self, node: &Value) -> Result<bool, TreeError> {
        let Some(marked) = node.attribute(RECURSION_MARK)? else {
            return Ok(false);
        };
        let words = marked.value_kind().words();
        let wrong = || TreeError::repeatable(format!("recurseForDerivations is {words}"));
        marked.boolean().ok_or_else(wrong)
    }

    fn job(&mut self, node: &Value) -> Result<Job, TreeError> {
        let drv_path = drv_path(node)?;
        let extra = match self.extras == Extras::default() {
            true => None,
            false => {
                let outline = if self.extras.outline { self.outline(&drv_path) } else { None };
                Some(Extra { outline, ..self.teller.tell(node)? })
            }
        };
        Ok(Job { drv_path, extra })
    }
}

fn drv_path(node: &Value) -> Result<StorePath, TreeError> {
    let none = |why: String| TreeError::repeatable(format!("not a derivation ({why})"));
    let Some(value) = node.attribute("drvPath")? else {
        return Err(none("a set of type derivation without drvPath".to_owned()));
    };
    let Some(path) = value.string()? else {
        return Err(none(format!("drvPath is {}", value.value_kind().words())));
    };
    let parsed: StorePath = path.parse().map_err(|error| none(format!("drvPath: {error}")))?;
    match parsed.is_derivation() {
        true => Ok(parsed),
        false => Err(none(format!("drvPath '{path}' does not end in .drv"))),
    }
}

impl From<EvalError> for TreeError {
    fn from(error: EvalError) -> TreeError {
        TreeError { message: error.to_string(), is_repeatable: error.is_repeatable }
    }
}
