//! The prototypes of Nix's C API that we call. They are the same from 2.26 to 2.36 but for
//! constness; the two ways to switch flakes on are optional and chosen by presence.
//!
//! Left out on purpose: everything about primops, realising and building, `nix_state_free` and
//! `nix_eval_state_builder_free` (freeing the builder leaves the state with a dangling reference
//! before Nix 2.35).

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::os::unix::Library;

use crate::library::LoadError;

/// `nix_c_context`: where a call leaves its error.
pub(crate) enum Context {}
/// `Store`.
pub(crate) enum Store {}
/// `EvalState`.
pub(crate) enum EvalState {}
/// `nix_eval_state_builder`.
pub(crate) enum Builder {}
/// `nix_flake_settings`.
pub(crate) enum FlakeSettings {}
/// `nix_value`.
pub(crate) enum RawValue {}

/// `nix_err`: 0 is success.
pub(crate) type Err = c_int;
/// `ValueType`.
pub(crate) type ValueType = c_int;
/// Receives bytes that live only as long as the call. Must not unwind.
pub(crate) type StringCallback = unsafe extern "C" fn(*const c_char, c_uint, *mut c_void);

/// Success.
pub(crate) const OK: Err = 0;
/// No such attribute.
pub(crate) const ERR_KEY: Err = -3;
/// An error of Nix, with a message of its own.
pub(crate) const ERR_NIX: Err = -4;

pub(crate) const TYPE_STRING: ValueType = 4;
pub(crate) const TYPE_ATTRS: ValueType = 7;

/// Words for a value's type, by type code.
pub(crate) const TYPE_WORDS: [&str; 12] = [
    "an unevaluated value",
    "an integer",
    "a float",
    "a Boolean",
    "a string",
    "a path",
    "null",
    "a set",
    "a list",
    "a function",
    "an external value",
    "a failed value",
];

macro_rules! api {
    (
        required { $($name:ident : fn($($arg:ty),*) $(-> $ret:ty)?;)* }
        optional { $($opt:ident : fn($($oarg:ty),*) $(-> $oret:ty)?;)* }
    ) => {
        /// The table of functions, named as in the headers.
        #[expect(non_snake_case, reason = "names of the headers")]
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(crate) $opt: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,)*
        }

        impl Api {
            /// Names of the functions that must be there.
            #[cfg(test)]
            pub(crate) const REQUIRED: &[&str] = &[$(stringify!($name)),*];

            /// # Safety
            /// The libraries must be Nix's C libraries of a supported version.
            pub(crate) unsafe fn resolve(libraries: &[Library]) -> Result<Api, LoadError> {
                Ok(Api {
                    $($name: {
                        // SAFETY: the caller vouches for the libraries, the prototype is the header's.
                        let found = unsafe { find(libraries, stringify!($name)) };
                        found.ok_or(LoadError::MissingFunction { name: stringify!($name) })?
                    },)*
                    $($opt: {
                        // SAFETY: as above.
                        unsafe { find(libraries, stringify!($opt)) }
                    },)*
                })
            }
        }
    };
}

/// # Safety
/// `F` must be the prototype of the function of this name.
unsafe fn find<F: Copy>(libraries: &[Library], name: &str) -> Option<F> {
    libraries.iter().find_map(|library| {
        // SAFETY: the caller vouches for `F`; the symbol outlives it, since libraries stay open.
        unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
    })
}

api! {
    required {
        nix_c_context_create: fn() -> *mut Context;
        nix_version_get: fn() -> *const c_char;
        nix_err_code: fn(*const Context) -> Err;
        nix_err_msg: fn(*mut Context, *const Context, *mut c_uint) -> *const c_char;
        nix_err_info_msg: fn(*mut Context, *const Context, StringCallback, *mut c_void) -> Err;
        nix_libexpr_init: fn(*mut Context) -> Err;
        nix_store_open: fn(*mut Context, *const c_char, *mut *mut *const c_char) -> *mut Store;
        nix_store_get_version: fn(*mut Context, *mut Store, StringCallback, *mut c_void) -> Err;
        nix_eval_state_builder_new: fn(*mut Context, *mut Store) -> *mut Builder;
        nix_eval_state_builder_load: fn(*mut Context, *mut Builder) -> Err;
        nix_eval_state_build: fn(*mut Context, *mut Builder) -> *mut EvalState;
        nix_flake_settings_new: fn(*mut Context) -> *mut FlakeSettings;
        nix_alloc_value: fn(*mut Context, *mut EvalState) -> *mut RawValue;
        nix_value_incref: fn(*mut Context, *mut RawValue) -> Err;
        nix_value_decref: fn(*mut Context, *mut RawValue) -> Err;
        nix_expr_eval_from_string: fn(
            *mut Context, *mut EvalState, *const c_char, *const c_char, *mut RawValue
        ) -> Err;
        nix_get_type: fn(*mut Context, *const RawValue) -> ValueType;
        nix_get_string: fn(*mut Context, *const RawValue, StringCallback, *mut c_void) -> Err;
        nix_get_attrs_size: fn(*mut Context, *const RawValue) -> c_uint;
        nix_get_attr_name_byidx: fn(
            *mut Context, *const RawValue, *mut EvalState, c_uint
        ) -> *const c_char;
        nix_has_attr_byname: fn(
            *mut Context, *const RawValue, *mut EvalState, *const c_char
        ) -> bool;
        nix_get_attr_byname: fn(
            *mut Context, *const RawValue, *mut EvalState, *const c_char
        ) -> *mut RawValue;
    }
    optional {
        nix_flake_init_global: fn(*mut Context, *mut FlakeSettings) -> Err;
        nix_flake_settings_add_to_eval_state_builder: fn(
            *mut Context, *mut FlakeSettings, *mut Builder
        ) -> Err;
        GC_get_heap_size: fn() -> usize;
        GC_get_total_bytes: fn() -> usize;
        GC_get_full_gc_total_time: fn() -> usize;
    }
}
