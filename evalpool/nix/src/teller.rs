//! What is told of a derivation beside its path.

use gradient_ipc::message::Extras;
use gradient_ipc::tree::{Extra, TreeError};

use crate::error::EvalError;
use crate::evaluator::Evaluator;
use crate::helpers;
use crate::value::Value;

/// Longest JSON of one kind about one derivation, in bytes. The three kinds together fit in a frame.
const JSON_LEN_MAX: usize = 16 << 20;

/// The functions that are asked for, evaluated.
pub(crate) struct Teller {
    name: Option<Value>,
    meta: Option<Value>,
    apply: Option<Value>,
    constituents: Option<Value>,
}

impl Teller {
    pub(crate) fn new(evaluator: &'static Evaluator, extras: &Extras) -> Result<Teller, EvalError> {
        let helper =
            |wanted: bool, text: &str| wanted.then(|| evaluator.evaluate(text, "/")).transpose();
        let apply = match &extras.apply {
            Some(text) => {
                let function = evaluator.evaluate(text, "/")?;
                Some(evaluator.evaluate(helpers::APPLY, "/")?.call(&function)?)
            }
            None => None,
        };
        Ok(Teller {
            name: helper(extras.name, helpers::NAME)?,
            meta: helper(extras.meta, &format!("({}) {JSON_LEN_MAX}", helpers::META))?,
            apply,
            constituents: helper(extras.constituents, helpers::CONSTITUENTS)?,
        })
    }

    /// What was asked for about this derivation.
    pub(crate) fn tell(&self, derivation: &Value) -> Result<Extra, TreeError> {
        let text = |what: &str, function: &Option<Value>| {
            function.as_ref().map(|function| text(what, function, derivation)).transpose()
        };
        let constituents = text("constituents", &self.constituents)?;
        Ok(Extra {
            name: text("name", &self.name)?,
            meta: text("meta", &self.meta)?,
            applied: text("the result of --apply", &self.apply)?,
            constituents: constituents.filter(|json| !json.is_empty()),
            outline: None,
        })
    }
}

fn text(what: &str, function: &Value, derivation: &Value) -> Result<String, TreeError> {
    let result = function.call(derivation)?;
    match result.string()? {
        Some(text) if text.len() <= JSON_LEN_MAX => Ok(text),
        Some(text) => {
            let len = text.len();
            let message = format!("{what} has {len} bytes, at most {JSON_LEN_MAX} are told");
            Err(TreeError::repeatable(message))
        }
        None => {
            let words = result.value_kind().words();
            Err(TreeError::repeatable(format!("{what} is {words}, not a string")))
        }
    }
}
