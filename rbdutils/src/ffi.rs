//! librados and librbd: the only unsafe code of this crate, behind handles that free themselves.
//!
//! Here are the conversions of text; the handles of librados are in `cluster`, the declarations of
//! librbd in `rbd`, its calls in `pool` (by name) and `image` (on an open image). librados comes from
//! the `ceph` crate's raw bindings; librbd has no usable crate. Everything outside is safe code.
//! No policy: calls return the errno they got, who calls decides what it means.

mod cluster;
mod image;
mod pool;
mod rbd;

use std::ffi::{CStr, CString, c_char};

pub(crate) use cluster::{ClusterHandle, PoolHandle};
pub(crate) use image::{ImageHandle, Linked};
pub(crate) use pool::ImageOptions;

use crate::errno::Errno;

fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno(libc::EINVAL))
}

/// A copy of a C string; an absent one is empty.
///
/// # Safety
/// The pointer is null or leads to a NUL-terminated string that nobody changes during the call.
unsafe fn text_at(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, so the caller vouches for the string.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
