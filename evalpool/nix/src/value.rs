//! Values of the evaluator. The getters of Nix abort the process when the type is wrong, so each is
//! asked after the type, and a value of another type is an answer.

use std::ffi::{CStr, c_uint};

use gradient_ipc::tree::ValueKind;

use crate::bytes::{c_string, push_bytes};
use crate::error::EvalError;
use crate::evaluator::Evaluator;
use crate::ffi::{self, RawValue};

/// A value of the evaluator, kept alive for the garbage collector as long as this handle.
pub struct Value {
    pub(crate) evaluator: &'static Evaluator,
    pub(crate) raw: *mut RawValue,
}

impl Value {
    /// The type code of a value that has been forced.
    fn type_code(&self) -> ffi::ValueType {
        let evaluator = self.evaluator;
        // SAFETY: context and value are valid.
        unsafe { (evaluator.nix.api.nix_get_type)(evaluator.context, self.raw) }
    }

    /// Whether the value is a set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.type_code() == ffi::TYPE_ATTRS
    }

    /// What the value is if it is no set.
    #[must_use]
    pub fn value_kind(&self) -> ValueKind {
        let code = self.type_code();
        let known =
            ValueKind::ALL.into_iter().find(|kind| ffi::ValueType::from(*kind as u8) == code);
        known.unwrap_or(ValueKind::Other)
    }

    /// A Boolean; `None` for other types.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        let evaluator = self.evaluator;
        // SAFETY: the value is a Boolean.
        (self.type_code() == ffi::TYPE_BOOL)
            .then(|| unsafe { (evaluator.nix.api.nix_get_bool)(evaluator.context, self.raw) })
    }

    /// The result of this function for an argument, forced.
    ///
    /// # Errors
    /// If the function throws, or the value is none.
    pub fn call(&self, argument: &Value) -> Result<Value, EvalError> {
        let evaluator = self.evaluator;
        let result = evaluator.new_value()?;
        // SAFETY: all pointers are valid.
        evaluator.check(unsafe {
            (evaluator.nix.api.nix_value_call)(
                evaluator.context,
                evaluator.state,
                self.raw,
                argument.raw,
                result.raw,
            )
        })?;
        Ok(result)
    }

    /// The text of a string; `None` for other types.
    ///
    /// # Errors
    /// If the text is no UTF-8.
    pub fn string(&self) -> Result<Option<String>, EvalError> {
        if self.type_code() != ffi::TYPE_STRING {
            return Ok(None);
        }
        let evaluator = self.evaluator;
        let mut text: Vec<u8> = Vec::new();
        // SAFETY: the value is a string; `text` outlives the call that fills it.
        evaluator.check(unsafe {
            (evaluator.nix.api.nix_get_string)(
                evaluator.context,
                self.raw,
                push_bytes,
                (&raw mut text).cast(),
            )
        })?;
        String::from_utf8(text).map(Some).map_err(|_| EvalError::plain("a string is not UTF-8"))
    }

    /// How many names a set has, nothing forced; 0 for other types.
    #[must_use]
    pub fn size(&self) -> usize {
        let evaluator = self.evaluator;
        // SAFETY: the value is a set.
        let size =
            || unsafe { (evaluator.nix.api.nix_get_attrs_size)(evaluator.context, self.raw) };
        if self.is_set() { size() as usize } else { 0 }
    }

    /// The sorted names of a set, nothing forced; empty for other types.
    ///
    /// # Errors
    /// If a name is no UTF-8.
    pub fn names(&self) -> Result<Vec<String>, EvalError> {
        if !self.is_set() {
            return Ok(Vec::new());
        }
        let evaluator = self.evaluator;
        let api = &evaluator.nix.api;
        let count = self.size();
        let mut names = Vec::with_capacity(count);
        for index in 0..count {
            // SAFETY: the value is a set and the index in range; the name belongs to the symbol
            // table, which lives as long as the state.
            let name = unsafe {
                let name = (api.nix_get_attr_name_byidx)(
                    evaluator.context,
                    self.raw,
                    evaluator.state,
                    index as c_uint,
                );
                CStr::from_ptr(evaluator.non_null(name.cast_mut())?)
            };
            let name = name
                .to_str()
                .map_err(|_| EvalError::plain(format!("attribute name {name:?} is not UTF-8")))?;
            names.push(name.to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether a set has this attribute, nothing forced; `false` for other types.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let Ok(name) = c_string(name) else {
            return false;
        };
        let evaluator = self.evaluator;
        // SAFETY: the value is a set, the name null-terminated.
        self.is_set()
            && unsafe {
                (evaluator.nix.api.nix_has_attr_byname)(
                    evaluator.context,
                    self.raw,
                    evaluator.state,
                    name.as_ptr(),
                )
            }
    }

    /// An attribute of a set, forced; `None` if there is none or the value is no set.
    ///
    /// # Errors
    /// If the attribute throws.
    pub fn attribute(&self, name: &str) -> Result<Option<Value>, EvalError> {
        let Ok(name) = c_string(name) else {
            return Ok(None);
        };
        if !self.is_set() {
            return Ok(None);
        }
        let evaluator = self.evaluator;
        let api = &evaluator.nix.api;
        // SAFETY: the value is a set, the name null-terminated.
        let raw = unsafe {
            (api.nix_get_attr_byname)(evaluator.context, self.raw, evaluator.state, name.as_ptr())
        };
        if !raw.is_null() {
            return Ok(Some(Value { evaluator, raw }));
        }
        // SAFETY: the context is valid.
        match unsafe { (api.nix_err_code)(evaluator.context) } {
            ffi::ERR_KEY => Ok(None),
            code => Err(evaluator.error(code)),
        }
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        let evaluator = self.evaluator;
        // SAFETY: context and value are valid; one more handle, one more reference.
        unsafe { (evaluator.nix.api.nix_value_incref)(evaluator.context, self.raw) };
        Value { evaluator, raw: self.raw }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: this handle owns one reference. The second context, so that an error that is
        // just being read stays.
        unsafe { (self.evaluator.nix.api.nix_value_decref)(self.evaluator.second, self.raw) };
    }
}
