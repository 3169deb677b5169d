//! Calls of librbd that name an image: create, clone, rename, remove. What they mean is decided above.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Mutex;

use super::rbd::{
    RbdTrashInfo, rbd_clone3, rbd_create4, rbd_image_options_create, rbd_image_options_destroy,
    rbd_image_options_set_string, rbd_image_options_set_uint64, rbd_list, rbd_remove_with_progress,
    rbd_rename, rbd_trash_get, rbd_trash_get_cleanup, rbd_trash_move,
};
use super::{PoolHandle, c_string, text_at};
use crate::errno::{Errno, check};

impl PoolHandle {
    pub(crate) fn create(&self, name: &str, size: u64, o: &ImageOptions) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: context and options are live, the name is copied.
        check(unsafe { rbd_create4(self.io, name.as_ptr(), size, o.0) })
    }

    pub(crate) fn clone_image(
        &self,
        (parent_pool, parent, snapshot): (&PoolHandle, &str, &str),
        name: &str,
        o: &ImageOptions,
    ) -> Result<(), Errno> {
        let (parent, snapshot, name) = (c_string(parent)?, c_string(snapshot)?, c_string(name)?);
        let (parent, snapshot, name) = (parent.as_ptr(), snapshot.as_ptr(), name.as_ptr());
        // SAFETY: both contexts and the options are live; the CStrings behind the pointers are
        // shadowed, not dropped, until the end of the function.
        check(unsafe { rbd_clone3(parent_pool.io, parent, snapshot, self.io, name, o.0) })
    }

    /// Names of all images.
    pub(crate) fn list(&self) -> Result<Vec<String>, Errno> {
        let mut size = 64 * 1024_usize;
        loop {
            let mut names = vec![0_u8; size];
            let mut length = size;
            // SAFETY: the context is live and `names` is writable for `length` bytes.
            let result = unsafe { rbd_list(self.io, names.as_mut_ptr().cast(), &mut length) };
            if result == -libc::ERANGE {
                // More may be there by the next call.
                size = length.max(size) * 2;
                continue;
            }
            check(result)?;
            let used = names.get(..usize::try_from(result).unwrap_or(0)).unwrap_or_default();
            let each = used.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            return Ok(each.map(|name| String::from_utf8_lossy(name).into_owned()).collect());
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = (c_string(from)?, c_string(to)?);
        // SAFETY: the context is live, the names are copied.
        check(unsafe { rbd_rename(self.io, from.as_ptr(), to.as_ptr()) })
    }

    pub(crate) fn trash_move(&self, name: &str, delay_seconds: u64) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: the context is live, the name is copied.
        check(unsafe { rbd_trash_move(self.io, name.as_ptr(), delay_seconds) })
    }

    /// The name an image in the trash had, and the end of its deferment in seconds since the epoch;
    /// ENOENT when it is not there.
    pub(crate) fn trash_entry(&self, id: &str) -> Result<(String, u64), Errno> {
        let id = c_string(id)?;
        let mut info = MaybeUninit::<RbdTrashInfo>::zeroed();
        let entry = info.as_mut_ptr();
        // SAFETY: `entry` is writable; zeroes (null pointers) are valid for its type.
        check(unsafe { rbd_trash_get(self.io, id.as_ptr(), entry) })?;
        // SAFETY: the call succeeded, so the entry holds strings that librbd owns until the cleanup.
        let (name, until) = unsafe { (text_at((*entry).name), (*entry).deferment_end_time) };
        // SAFETY: cleaned once and not used afterwards.
        unsafe { rbd_trash_get_cleanup(entry) };
        Ok((name, u64::try_from(until).unwrap_or(0)))
    }

    /// Removes an image; `progress` gets done and total, from threads of librbd.
    pub(crate) fn remove(
        &self,
        name: &str,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<(), Errno> {
        let name = c_string(name)?;
        let progress = Mutex::new(progress);
        let argument = (&raw const progress).cast_mut().cast();
        // SAFETY: `argument` points to the mutex, which outlives the call; librbd calls back only
        // during the call.
        check(unsafe {
            rbd_remove_with_progress(self.io, name.as_ptr(), report_progress, argument)
        })
    }
}

extern "C" fn report_progress(done: u64, total: u64, argument: *mut c_void) -> c_int {
    // SAFETY: `PoolHandle::remove` passes a pointer to exactly this type and keeps it alive.
    let progress = unsafe { &*argument.cast::<Mutex<&mut (dyn FnMut(u64, u64) + Send)>>() };
    if let Ok(mut progress) = progress.lock() {
        progress(done, total);
    }
    0
}

/// What a new image shall be like, in librbd's own terms.
#[derive(Debug)]
pub(crate) struct ImageOptions(*mut c_void);

impl ImageOptions {
    pub(crate) const FEATURES: c_int = 1;
    pub(crate) const ORDER: c_int = 2;
    pub(crate) const DATA_POOL: c_int = 10;
    pub(crate) const CLONE_FORMAT: c_int = 12;

    pub(crate) fn new() -> Self {
        let mut raw = null_mut();
        // SAFETY: the out pointer lives through the call, which always fills it.
        unsafe { rbd_image_options_create(&mut raw) };
        Self(raw)
    }

    pub(crate) fn set_number(&mut self, option: c_int, value: u64) -> Result<(), Errno> {
        // SAFETY: the options are live.
        check(unsafe { rbd_image_options_set_uint64(self.0, option, value) })
    }

    pub(crate) fn set_text(&mut self, option: c_int, value: &str) -> Result<(), Errno> {
        let value = c_string(value)?;
        // SAFETY: the options are live, the value is copied.
        check(unsafe { rbd_image_options_set_string(self.0, option, value.as_ptr()) })
    }
}

impl Drop for ImageOptions {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        unsafe { rbd_image_options_destroy(self.0) }
    }
}
