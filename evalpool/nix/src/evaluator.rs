//! A safe face of the C API: one evaluator per process, on one thread.

use std::ffi::{CStr, c_uint};
use std::path::Path;
use std::ptr;

use gradient_domain::StorePath;
use gradient_domain::text::nix_string;
use gradient_ipc::message::{real_store_dir, with_store_names};
use gradient_ipc::tree::ValueKind;

use crate::bytes::{bytes, c_string, push_bytes};
use crate::error::{EvalError, is_repeatable, last_position, strip_ansi, trace, with_input};
use crate::ffi::{self, Context, EvalState, RawValue};
use crate::library::Nix;

/// Nix's evaluator with its store. It belongs to the thread that made it, because only that thread's
/// stack is known to the garbage collector; the raw pointers keep it from being sent elsewhere.
pub struct Evaluator {
    nix: &'static Nix,
    context: *mut Context,
    /// For reading the error of `context`.
    second: *mut Context,
    state: *mut EvalState,
    /// Where a private store keeps its paths, so that errors can show their common names.
    real_store_dir: Option<String>,
    /// What store paths begin with.
    store_dir: String,
    /// Whether errors come with their trace.
    show_trace: bool,
}

impl Evaluator {
    /// Initialises Nix and opens the store. The evaluator lives as long as the process: nothing of
    /// Nix is ever freed, since its builder must not be and destructors at the end buy nothing.
    ///
    /// # Errors
    /// If Nix cannot be initialised or the store does not answer.
    pub fn open(
        nix: &'static Nix,
        store_uri: &str,
        show_trace: bool,
    ) -> Result<&'static Evaluator, EvalError> {
        let api = &nix.api;
        // SAFETY: creates an object out of nothing.
        let (context, second) =
            unsafe { ((api.nix_c_context_create)(), (api.nix_c_context_create)()) };
        if context.is_null() || second.is_null() {
            return Err(EvalError::plain("out of memory"));
        }
        let mut evaluator = Evaluator {
            nix,
            context,
            second,
            state: ptr::null_mut(),
            real_store_dir: real_store_dir(store_uri),
            store_dir: String::new(),
            show_trace,
        };
        // SAFETY: the context is valid, here and in all calls of this function.
        evaluator.check(unsafe { (api.nix_libexpr_init)(context) })?;
        // SAFETY: as above.
        let settings = evaluator.non_null(unsafe { (api.nix_flake_settings_new)(context) })?;
        if let Some(init_global) = api.nix_flake_init_global {
            // Up to Nix 2.27: adds `getFlake` to every state made later.
            // SAFETY: both objects are valid; no state exists yet.
            evaluator.check(unsafe { init_global(context, settings) })?;
        }
        let uri = c_string(store_uri)?;
        // SAFETY: a null-terminated URI and no parameters.
        let store = unsafe { (api.nix_store_open)(context, uri.as_ptr(), ptr::null_mut()) };
        let store = evaluator.non_null(store)?;
        let mut version: Vec<u8> = Vec::new();
        // Asks the daemon something, so that a store that does not answer is known now.
        // SAFETY: the store is valid, `version` outlives the call that fills it.
        evaluator.check(unsafe {
            (api.nix_store_get_version)(context, store, push_bytes, (&raw mut version).cast())
        })?;
        let mut store_dir: Vec<u8> = Vec::new();
        // SAFETY: as above.
        evaluator.check(unsafe {
            (api.nix_store_get_storedir)(context, store, push_bytes, (&raw mut store_dir).cast())
        })?;
        evaluator.store_dir = String::from_utf8_lossy(&store_dir).into_owned();
        // SAFETY: the store is valid and never freed.
        let builder = unsafe { (api.nix_eval_state_builder_new)(context, store) };
        let builder = evaluator.non_null(builder)?;
        // SAFETY: the builder is valid. Without this call the state would be read-only.
        evaluator.check(unsafe { (api.nix_eval_state_builder_load)(context, builder) })?;
        if let Some(add_flakes) = api.nix_flake_settings_add_to_eval_state_builder {
            // SAFETY: all three objects are valid.
            evaluator.check(unsafe { add_flakes(context, settings, builder) })?;
        }
        // SAFETY: the builder is valid; it is leaked, since the state refers to it.
        let state = unsafe { (api.nix_eval_state_build)(context, builder) };
        evaluator.state = evaluator.non_null(state)?;
        Ok(Box::leak(Box::new(evaluator)))
    }

    /// The Nix that evaluates.
    #[must_use]
    pub fn nix(&self) -> &'static Nix {
        self.nix
    }

    /// What store paths begin with, such as `/nix/store`.
    #[must_use]
    pub fn store_dir(&self) -> &str {
        &self.store_dir
    }

    /// Whether a path of the store is there, as a file.
    #[must_use]
    pub fn has_file(&self, path: &StorePath) -> bool {
        let folder = self.real_store_dir.as_deref().unwrap_or(&self.store_dir);
        Path::new(folder).join(path.base_name()).exists()
    }

    /// The outputs of a locked flake.
    ///
    /// # Errors
    /// If the flake cannot be fetched, parsed or evaluated.
    pub fn flake_outputs(&'static self, reference: &str) -> Result<Value, EvalError> {
        self.evaluate(&format!("(builtins.getFlake {}).outputs", nix_string(reference)), "/")
    }

    /// Brings a locked input, as JSON of a lock file, into the store and gives its path.
    ///
    /// # Errors
    /// If the input is not locked, cannot be fetched, or has another hash.
    pub fn fetch_tree(&'static self, locked: &str) -> Result<Value, EvalError> {
        let input = format!("builtins.fromJSON {}", nix_string(locked));
        // Where the flake lies within the input is no matter of the input.
        self.evaluate(
            &format!("(builtins.fetchTree (removeAttrs ({input}) [ \"dir\" ])).outPath"),
            "/",
        )
    }

    /// Evaluates an expression. Relative paths in it start from `folder`.
    ///
    /// # Errors
    /// Whatever Nix says.
    pub fn evaluate(&'static self, expression: &str, folder: &str) -> Result<Value, EvalError> {
        let (expression, folder) = (c_string(expression)?, c_string(folder)?);
        let value = self.new_value()?;
        // SAFETY: all pointers are valid, both strings null-terminated.
        self.check(unsafe {
            (self.nix.api.nix_expr_eval_from_string)(
                self.context,
                self.state,
                expression.as_ptr(),
                folder.as_ptr(),
                value.raw,
            )
        })?;
        Ok(value)
    }

    fn new_value(&'static self) -> Result<Value, EvalError> {
        // SAFETY: context and state are valid.
        let raw = unsafe { (self.nix.api.nix_alloc_value)(self.context, self.state) };
        Ok(Value { evaluator: self, raw: self.non_null(raw)? })
    }

    fn check(&self, code: ffi::Err) -> Result<(), EvalError> {
        match code {
            ffi::OK => Ok(()),
            code => Err(self.error(code)),
        }
    }

    fn non_null<T>(&self, pointer: *mut T) -> Result<*mut T, EvalError> {
        if pointer.is_null() {
            // SAFETY: the context is valid.
            let code = unsafe { (self.nix.api.nix_err_code)(self.context) };
            return Err(self.error(code));
        }
        Ok(pointer)
    }

    /// Bytes of Nix as text for people.
    fn shown(&self, text: &[u8]) -> String {
        let plain = strip_ansi(&String::from_utf8_lossy(text));
        with_store_names(&plain, self.real_store_dir.as_deref())
    }

    /// The error that the last call left in the context.
    fn error(&self, code: ffi::Err) -> EvalError {
        let api = &self.nix.api;
        let mut len: c_uint = 0;
        // SAFETY: two valid contexts; the text belongs to the first and is copied at once.
        let full = unsafe {
            let text = (api.nix_err_msg)(self.second, self.context, &raw mut len);
            if text.is_null() { Vec::new() } else { bytes(text, len).to_vec() }
        };
        let full = self.shown(&full);
        let told = |ask: ffi::ErrorText| {
            let mut text: Vec<u8> = Vec::new();
            if code == ffi::ERR_NIX {
                // SAFETY: as above; `text` outlives the call that fills it.
                unsafe { ask(self.second, self.context, push_bytes, (&raw mut text).cast()) };
            }
            text
        };
        let message = told(api.nix_err_info_msg);
        let type_name = told(api.nix_err_name);
        let message = self.shown(&message);
        let is_repeatable = is_repeatable(&String::from_utf8_lossy(&type_name), &full);
        if self.show_trace && !full.trim().is_empty() {
            return EvalError { message: trace(full.trim()), position: None, is_repeatable };
        }
        let position = last_position(&full);
        match message.trim() {
            "" if full.trim().is_empty() => {
                EvalError::plain(format!("Nix failed with code {code}"))
            }
            "" => EvalError::plain(full.trim()),
            text => EvalError { message: with_input(text, &full), position, is_repeatable },
        }
    }
}

/// A value of the evaluator, kept alive for the garbage collector as long as this handle.
pub struct Value {
    evaluator: &'static Evaluator,
    raw: *mut RawValue,
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
