//! A safe face of the C API: one evaluator per process, on one thread.

use std::ffi::c_uint;
use std::path::{Path, PathBuf};
use std::ptr;

use gradient_domain::StorePath;
use gradient_domain::text::nix_string;
use gradient_ipc::message::{real_store_dir, with_store_names};

use crate::bytes::{bytes, c_string, push_bytes};
use crate::error::{
    EvalError, foreign, is_repeatable, last_position, strip_ansi, trace, with_input,
};
use crate::ffi::{self, Context, EvalState, Store};
use crate::library::Nix;
use crate::value::Value;

/// Nix's evaluator with its store. It belongs to the thread that made it, because only that thread's
/// stack is known to the garbage collector; the raw pointers keep it from being sent elsewhere.
pub struct Evaluator {
    pub(crate) nix: &'static Nix,
    pub(crate) context: *mut Context,
    /// For reading the error of `context`.
    pub(crate) second: *mut Context,
    store: *mut Store,
    pub(crate) state: *mut EvalState,
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
            store: ptr::null_mut(),
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
        evaluator.store = store;
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

    /// Where a path of the store really is, if the store is at hand.
    #[must_use]
    pub fn file(&self, path: &StorePath) -> PathBuf {
        let folder = self.real_store_dir.as_deref().unwrap_or(&self.store_dir);
        Path::new(folder).join(path.base_name())
    }

    /// Whether the store knows a path, and it is there as a file. A file that the store does not know
    /// was left half-way by a stop: nothing can be built of it.
    #[must_use]
    pub fn has(&self, path: &StorePath) -> bool {
        self.file(path).exists() && self.is_valid(path).unwrap_or(false)
    }

    fn is_valid(&self, path: &StorePath) -> Result<bool, EvalError> {
        let api = &self.nix.api;
        let text = c_string(&path.to_string())?;
        // SAFETY: context and store are valid, the path null-terminated.
        let parsed = unsafe { (api.nix_store_parse_path)(self.context, self.store, text.as_ptr()) };
        let parsed = self.non_null(parsed)?;
        // SAFETY: all three are valid; the path is ours and freed once.
        let (is_valid, code) = unsafe {
            let is_valid = (api.nix_store_is_valid_path)(self.context, self.store, parsed);
            (api.nix_store_path_free)(parsed);
            (is_valid, (api.nix_err_code)(self.context))
        };
        self.check(code)?;
        Ok(is_valid)
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

    pub(crate) fn new_value(&'static self) -> Result<Value, EvalError> {
        // SAFETY: context and state are valid.
        let raw = unsafe { (self.nix.api.nix_alloc_value)(self.context, self.state) };
        Ok(Value { evaluator: self, raw: self.non_null(raw)? })
    }

    pub(crate) fn check(&self, code: ffi::Err) -> Result<(), EvalError> {
        match code {
            ffi::OK => Ok(()),
            code => Err(self.error(code)),
        }
    }

    pub(crate) fn non_null<T>(&self, pointer: *mut T) -> Result<*mut T, EvalError> {
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
    pub(crate) fn error(&self, code: ffi::Err) -> EvalError {
        let api = &self.nix.api;
        let mut len: c_uint = 0;
        // SAFETY: two valid contexts; the text belongs to the first and is copied at once.
        let full = unsafe {
            let text = (api.nix_err_msg)(self.second, self.context, &raw mut len);
            if text.is_null() { Vec::new() } else { bytes(text, len).to_vec() }
        };
        let full = foreign(self.shown(&full).trim());
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
        if self.show_trace && !full.is_empty() {
            return EvalError { message: trace(&full), position: None, is_repeatable };
        }
        let position = last_position(&full);
        match message.trim() {
            "" if full.is_empty() => EvalError::plain(format!("Nix failed with code {code}")),
            "" => EvalError::plain(full),
            text => EvalError { message: with_input(text, &full), position, is_repeatable },
        }
    }
}
