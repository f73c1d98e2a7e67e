//! Texts on their way to Nix and back.

use std::ffi::{CString, c_char, c_uint, c_void};

use crate::error::EvalError;

pub(crate) fn c_string(text: &str) -> Result<CString, EvalError> {
    CString::new(text).map_err(|_| EvalError::plain("a text holds a null byte"))
}

/// # Safety
/// `start` must point to `len` readable bytes that live for `'a`.
pub(crate) unsafe fn bytes<'a>(start: *const c_char, len: c_uint) -> &'a [u8] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for the range.
    unsafe { std::slice::from_raw_parts(start.cast(), len as usize) }
}

/// Appends what Nix hands over to the `Vec<u8>` behind `target`.
pub(crate) unsafe extern "C" fn push_bytes(start: *const c_char, len: c_uint, target: *mut c_void) {
    // SAFETY: Nix passes a valid range, and `target` is the vector that the caller lent.
    unsafe { (*target.cast::<Vec<u8>>()).extend_from_slice(bytes(start, len)) };
}
