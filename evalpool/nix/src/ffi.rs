//! The prototypes of Nix's C API that we call. They are the same from 2.26 to 2.36 but for
//! constness; the two ways to switch flakes on are optional and chosen by presence.
//!
//! Left out on purpose: everything about primops, realising and building, `nix_state_free` and
//! `nix_eval_state_builder_free` (freeing the builder leaves the state with a dangling reference
//! before Nix 2.35).

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::os::unix::Library;

use crate::library::LoadError;

/// First and last minor version of Nix 2 whose prototypes are known.
pub(crate) const MINOR_FIRST: u32 = 26;
pub(crate) const MINOR_LAST: u32 = 36;

/// `nix_c_context`: where a call leaves its error.
pub(crate) enum Context {}
/// `Store`.
pub(crate) enum Store {}
/// `StorePath`.
pub(crate) enum RawStorePath {}
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

/// Tells something of the error in the second context.
pub(crate) type ErrorText =
    unsafe extern "C" fn(*mut Context, *const Context, StringCallback, *mut c_void) -> Err;

/// Success.
pub(crate) const OK: Err = 0;
/// No such attribute.
pub(crate) const ERR_KEY: Err = -3;
/// An error of Nix, with a message of its own.
pub(crate) const ERR_NIX: Err = -4;

pub(crate) const TYPE_BOOL: ValueType = 3;
pub(crate) const TYPE_STRING: ValueType = 4;
pub(crate) const TYPE_ATTRS: ValueType = 7;

/// A function of the table: its name, and the minor versions of Nix 2 that have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// First minor version with it.
    pub(crate) first: u32,
    /// Last minor version with it.
    pub(crate) last: u32,
}

impl Function {
    pub(crate) fn is_in(self, minor: u32) -> bool {
        (self.first..=self.last).contains(&minor)
    }
}

macro_rules! api {
    (
        required { $($name:ident : fn($($arg:ty),*) $(-> $ret:ty)?;)* }
        optional { $($opt:ident [$first:literal, $last:literal] : fn($($oarg:ty),*) $(-> $oret:ty)?;)* }
        collector { $($gc:ident : fn() -> usize;)* }
    ) => {
        /// The table of functions, named as in the headers.
        #[expect(non_snake_case, reason = "names of the headers")]
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(crate) $opt: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,)*
            $(pub(crate) $gc: Option<unsafe extern "C" fn() -> usize>,)*
        }

        impl Api {
            /// Every function of Nix's headers, with the versions that have it and how many
            /// arguments it takes.
            #[cfg(test)]
            pub(crate) const FUNCTIONS: &[(Function, usize)] = &[
                $((
                    Function { name: stringify!($name), first: MINOR_FIRST, last: MINOR_LAST },
                    <[&str]>::len(&[$(stringify!($arg)),*]),
                ),)*
                $((
                    Function { name: stringify!($opt), first: $first, last: $last },
                    <[&str]>::len(&[$(stringify!($oarg)),*]),
                ),)*
            ];

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
                    $($gc: {
                        // SAFETY: as above, of the collector's headers.
                        unsafe { find(libraries, stringify!($gc)) }
                    },)*
                })
            }

            /// The functions that this version should have and that were not found.
            pub(crate) fn missing_optional(&self, minor: u32) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $(
                    let function = Function { name: stringify!($opt), first: $first, last: $last };
                    if function.is_in(minor) && self.$opt.is_none() {
                        missing.push(function.name);
                    }
                )*
                missing
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
        nix_err_name: fn(*mut Context, *const Context, StringCallback, *mut c_void) -> Err;
        nix_libexpr_init: fn(*mut Context) -> Err;
        nix_store_open: fn(*mut Context, *const c_char, *mut *mut *const c_char) -> *mut Store;
        nix_store_get_version: fn(*mut Context, *mut Store, StringCallback, *mut c_void) -> Err;
        nix_store_get_storedir: fn(
            *mut Context, *mut Store, StringCallback, *mut c_void
        ) -> Err;
        nix_store_parse_path: fn(*mut Context, *mut Store, *const c_char) -> *mut RawStorePath;
        nix_store_is_valid_path: fn(*mut Context, *mut Store, *mut RawStorePath) -> bool;
        nix_store_path_free: fn(*mut RawStorePath);
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
        nix_value_call: fn(
            *mut Context, *mut EvalState, *mut RawValue, *mut RawValue, *mut RawValue
        ) -> Err;
        nix_get_bool: fn(*mut Context, *const RawValue) -> bool;
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
        nix_flake_init_global [26, 27] : fn(*mut Context, *mut FlakeSettings) -> Err;
        nix_flake_settings_add_to_eval_state_builder [28, 36] : fn(
            *mut Context, *mut FlakeSettings, *mut Builder
        ) -> Err;
    }
    collector {
        GC_get_heap_size: fn() -> usize;
        GC_get_total_bytes: fn() -> usize;
        GC_get_full_gc_total_time: fn() -> usize;
    }
}
