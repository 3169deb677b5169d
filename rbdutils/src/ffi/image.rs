//! Calls of librbd on an open image: facts, lists, snapshots, metadata. Closed when dropped.

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::rbd::*;
use super::{PoolHandle, c_string, text_at};
use crate::errno::{Errno, check, check_size};
use crate::images::LuksVersion;

/// An open image; borrows its pool, stays on its thread.
#[derive(Debug)]
pub(crate) struct ImageHandle<'p> {
    raw: *mut c_void,
    pool: PhantomData<&'p PoolHandle>,
}

/// An image that is linked to another as parent or child.
pub(crate) struct Linked {
    pub(crate) pool: String,
    pub(crate) namespace: String,
    pub(crate) image: String,
    pub(crate) id: String,
    pub(crate) in_trash: bool,
}

impl<'p> ImageHandle<'p> {
    /// Opens an image. For reading only, librbd sets no watch: nobody sees the open as a use.
    pub(crate) fn open(pool: &'p PoolHandle, name: &str, writable: bool) -> Result<Self, Errno> {
        let name = c_string(name)?;
        let open = if writable { rbd_open } else { rbd_open_read_only };
        let mut raw = null_mut();
        // SAFETY: the I/O context is live, the name is copied, the out pointer outlives the call.
        check(unsafe { open(pool.io, name.as_ptr(), &mut raw, null()) })?;
        Ok(Self { raw, pool: PhantomData })
    }

    /// Opens an image as it was at a snapshot, for reading.
    pub(crate) fn open_snapshot(pool: &'p PoolHandle, name: &str, at: &str) -> Result<Self, Errno> {
        let (name, at) = (c_string(name)?, c_string(at)?);
        let mut raw = null_mut();
        // SAFETY: the I/O context is live, both names are copied, the out pointer outlives the call.
        check(unsafe { rbd_open_read_only(pool.io, name.as_ptr(), &mut raw, at.as_ptr()) })?;
        Ok(Self { raw, pool: PhantomData })
    }

    pub(crate) fn id(&self) -> Result<String, Errno> {
        let mut buffer = [0 as c_char; 256];
        // SAFETY: the buffer is writable for the size given, which includes the final NUL.
        check(unsafe { rbd_get_id(self.raw, buffer.as_mut_ptr(), buffer.len()) })?;
        // SAFETY: the call succeeded, so the buffer holds a NUL-terminated id.
        Ok(unsafe { text_at(buffer.as_ptr()) })
    }

    /// Size and object size in bytes.
    pub(crate) fn sizes(&self) -> Result<(u64, u64), Errno> {
        let mut info = MaybeUninit::<RbdImageInfo>::zeroed();
        // SAFETY: `info` is writable for the size given; the image is open.
        check(unsafe { rbd_stat(self.raw, info.as_mut_ptr(), size_of::<RbdImageInfo>()) })?;
        // SAFETY: all fields are integers, for which zeroes are valid; librbd has filled them.
        let info = unsafe { info.assume_init() };
        Ok((info.size, info.object_size))
    }

    /// What a client sees: without a header once one was loaded.
    pub(crate) fn effective_size(&self) -> Result<u64, Errno> {
        let mut size = 0;
        // SAFETY: the out pointer outlives the call; the image is open.
        check(unsafe { rbd_get_size(self.raw, &mut size) })?;
        Ok(size)
    }

    pub(crate) fn resize(&self, size: u64) -> Result<(), Errno> {
        // SAFETY: the image is open.
        check(unsafe { rbd_resize(self.raw, size) })
    }

    /// How much was read; less than there is room for at the end of the image.
    pub(crate) fn read(&self, at: u64, to: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: `to` is writable for its length; the image is open.
        let read = unsafe { rbd_read(self.raw, at, to.len(), to.as_mut_ptr().cast()) };
        usize::try_from(read).map_err(|_| errno(read))
    }

    /// All of it, flushed when the image is closed.
    pub(crate) fn write(&self, at: u64, from: &[u8]) -> Result<(), Errno> {
        // SAFETY: `from` is readable for its length; the image is open.
        let written = unsafe { rbd_write(self.raw, at, from.len(), from.as_ptr().cast()) };
        match usize::try_from(written) {
            Ok(written) if written == from.len() => Ok(()),
            Ok(_) => Err(Errno(libc::EIO)),
            Err(_) => Err(errno(written)),
        }
    }

    /// Writes a header; what was in the image is lost.
    pub(crate) fn encryption_format(
        &self,
        version: LuksVersion,
        passphrase: &[u8],
    ) -> Result<(), Errno> {
        let (mut options, size) = (luks_options(passphrase), size_of::<RbdLuksOptions>());
        let at = (&raw mut options).cast();
        // SAFETY: the options have the layout librbd has for both versions and live during the call, as does the
        // passphrase they lead to; the image is open for writing.
        check(unsafe { rbd_encryption_format(self.raw, luks_format(version), at, size) })
    }

    /// Opens the header, so that this handle sees the plain content from here on.
    pub(crate) fn encryption_load(
        &self,
        version: LuksVersion,
        passphrase: &[u8],
    ) -> Result<(), Errno> {
        let (mut options, size) = (luks_options(passphrase), size_of::<RbdLuksOptions>());
        let at = (&raw mut options).cast();
        // SAFETY: as in `encryption_format`; reading is enough.
        check(unsafe { rbd_encryption_load(self.raw, luks_format(version), at, size) })
    }

    pub(crate) fn features(&self) -> Result<u64, Errno> {
        let mut features = 0;
        // SAFETY: the out pointer outlives the call; the image is open.
        check(unsafe { rbd_get_features(self.raw, &mut features) })?;
        Ok(features)
    }

    /// The parent and the name of the snapshot it was cloned from; ENOENT without one.
    pub(crate) fn parent(&self) -> Result<(Linked, String), Errno> {
        let mut parent = MaybeUninit::<RbdLinkedImage>::zeroed();
        let mut snapshot = MaybeUninit::<RbdSnapshotSpec>::zeroed();
        let (parent, snapshot) = (parent.as_mut_ptr(), snapshot.as_mut_ptr());
        // SAFETY: both are writable; zeroes (null pointers, false) are valid for either type.
        check(unsafe { rbd_get_parent(self.raw, parent, snapshot) })?;
        // SAFETY: the call succeeded, so both hold strings that librbd owns until the cleanup.
        let (linked, name) = unsafe { (copy_linked(&*parent), text_at((*snapshot).name)) };
        // SAFETY: each is cleaned once and not used afterwards.
        unsafe {
            rbd_linked_image_spec_cleanup(parent);
            rbd_snap_spec_cleanup(snapshot);
        }
        Ok((linked, name))
    }

    /// Copies from the parent what is not its own yet; `progress` gets done and total objects, from threads of librbd,
    /// and ends the work where it breaks. EINVAL without a parent.
    pub(crate) fn flatten(&self, progress: &mut FlattenProgress<'_>) -> Result<(), Errno> {
        let progress = Mutex::new(progress);
        let argument = (&raw const progress).cast_mut().cast();
        // SAFETY: `argument` points to the mutex, which outlives the call; librbd calls back only during the call; the
        // image is open for writing.
        check(unsafe { rbd_flatten_with_progress(self.raw, report_flatten, argument) })
    }

    /// The clones of all snapshots; of an image opened at a snapshot, those of that one.
    pub(crate) fn children(&self) -> Result<Vec<Linked>, Errno> {
        list(
            // SAFETY: `list` passes room for the count it passes.
            |room, count| unsafe { rbd_list_children3(self.raw, room, count) },
            // SAFETY: `list` passes an entry that librbd has filled and not yet freed.
            |child| unsafe { copy_linked(child) },
            // SAFETY: `list` passes what librbd filled, once.
            |filled, count| unsafe { rbd_linked_image_spec_list_cleanup(filled, count) },
        )
    }

    /// Address, client id and cookie of every watcher.
    pub(crate) fn watchers(&self) -> Result<Vec<(String, i64, u64)>, Errno> {
        list(
            // SAFETY: `list` passes room for the count it passes.
            |room, count| unsafe { rbd_watchers_list(self.raw, room, count) },
            // SAFETY: `list` passes an entry that librbd has filled and not yet freed.
            |watcher: &RbdWatcher| unsafe {
                (text_at(watcher.address), watcher.id, watcher.cookie)
            },
            // SAFETY: `list` passes what librbd filled, once.
            |filled, count| unsafe { rbd_watchers_list_cleanup(filled, count) },
        )
    }

    /// Id, name and size in bytes of every snapshot.
    pub(crate) fn snapshots(&self) -> Result<Vec<(u64, String, u64)>, Errno> {
        let mut room: c_int = 4;
        loop {
            let mut snapshots = Vec::<RbdSnapshot>::with_capacity(room.unsigned_abs() as usize);
            // SAFETY: there is room for `room` entries, the one that ends the list included.
            let result = unsafe { rbd_snap_list(self.raw, snapshots.as_mut_ptr(), &mut room) };
            if result == -libc::ERANGE {
                continue; // `room` now tells what is needed
            }
            let count = check_size(result)?;
            if count == 0 {
                return Ok(Vec::new());
            }
            // SAFETY: librbd has filled `count` entries of the capacity.
            unsafe { snapshots.set_len(count) };
            // SAFETY: the names are librbd's until they are freed below.
            let copy = |s: &RbdSnapshot| (s.id, unsafe { text_at(s.name) }, s.size);
            let found = snapshots.iter().map(copy).collect();
            // SAFETY: frees the names up to the ending entry that librbd has written, once.
            unsafe { rbd_snap_list_end(snapshots.as_mut_ptr()) };
            return Ok(found);
        }
    }

    /// Whether a person made the snapshot, and not a group, the trash or mirroring.
    pub(crate) fn is_user_snapshot(&self, id: u64) -> Result<bool, Errno> {
        let mut kind = 0;
        // SAFETY: the out pointer outlives the call; the image is open.
        check(unsafe { rbd_snap_get_namespace_type(self.raw, id, &mut kind) })?;
        Ok(kind == 0)
    }

    pub(crate) fn create_snapshot(&self, name: &str) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: the image is open, the name is copied.
        check(unsafe { rbd_snap_create(self.raw, name.as_ptr()) })
    }

    pub(crate) fn remove_snapshot(&self, name: &str) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: the image is open, the name is copied.
        check(unsafe { rbd_snap_remove(self.raw, name.as_ptr()) })
    }

    pub(crate) fn protect_snapshot(&self, name: &str) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: the image is open, the name is copied.
        check(unsafe { rbd_snap_protect(self.raw, name.as_ptr()) })
    }

    /// EINVAL when it is not protected, EBUSY while it has clones.
    pub(crate) fn unprotect_snapshot(&self, name: &str) -> Result<(), Errno> {
        let name = c_string(name)?;
        // SAFETY: the image is open, the name is copied.
        check(unsafe { rbd_snap_unprotect(self.raw, name.as_ptr()) })
    }

    pub(crate) fn is_protected(&self, name: &str) -> Result<bool, Errno> {
        let name = c_string(name)?;
        let mut protected = 0;
        // SAFETY: the image is open, the name is copied, the out pointer outlives the call.
        check(unsafe { rbd_snap_is_protected(self.raw, name.as_ptr(), &mut protected) })?;
        Ok(protected != 0)
    }

    pub(crate) fn metadata(&self, key: &str) -> Result<String, Errno> {
        let key = c_string(key)?;
        let mut size = 4096_usize;
        loop {
            let mut value = vec![0_u8; size + 1];
            let target = value.as_mut_ptr().cast();
            // SAFETY: `target` is writable for `size` bytes, and one NUL stays behind them.
            let result = unsafe { rbd_metadata_get(self.raw, key.as_ptr(), target, &mut size) };
            if result != -libc::ERANGE {
                check(result)?;
                // SAFETY: the last byte was never written to, so the text ends at a NUL.
                return Ok(unsafe { text_at(value.as_ptr().cast()) });
            }
        }
    }

    pub(crate) fn set_metadata(&self, key: &str, value: &str) -> Result<(), Errno> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        // SAFETY: the image is open, both strings are copied.
        check(unsafe { rbd_metadata_set(self.raw, key.as_ptr(), value.as_ptr()) })
    }

    /// Bytes of all objects that exist for the first `size` bytes, parents left out.
    pub(crate) fn allocated(&self, size: u64) -> Result<u64, Errno> {
        let total = AtomicU64::new(0);
        let argument = (&raw const total).cast_mut().cast();
        // SAFETY: `argument` points to the counter, which outlives the call; librbd calls back only
        // during the call.
        check(unsafe { rbd_diff_iterate2(self.raw, null(), 0, size, 0, 1, add_extent, argument) })?;
        Ok(total.into_inner())
    }
}

impl Drop for ImageHandle<'_> {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once. A failed close has nothing left to be released.
        unsafe { rbd_close(self.raw) };
    }
}

/// Told how many of how many objects are done; breaks to end the work.
pub(crate) type FlattenProgress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + Send + 'a;

extern "C" fn report_flatten(done: u64, total: u64, argument: *mut c_void) -> c_int {
    // SAFETY: `ImageHandle::flatten` passes a pointer to exactly this type and keeps it alive.
    let progress = unsafe { &*argument.cast::<Mutex<&mut FlattenProgress<'_>>>() };
    match progress.lock().map(|mut progress| progress(done, total)) {
        Ok(ControlFlow::Continue(())) => 0,
        // Who told the progress is in no state to go on, or wants no more.
        Ok(ControlFlow::Break(())) | Err(_) => -libc::ECANCELED,
    }
}

fn luks_format(version: LuksVersion) -> c_int {
    match version {
        LuksVersion::Luks1 => 0,
        LuksVersion::Luks2 => 1,
    }
}

fn luks_options(passphrase: &[u8]) -> RbdLuksOptions {
    RbdLuksOptions {
        algorithm: AES256,
        passphrase: passphrase.as_ptr().cast(),
        passphrase_size: passphrase.len(),
    }
}

/// The number behind a negative size.
fn errno(negative: isize) -> Errno {
    Errno(i32::try_from(negative.unsigned_abs()).unwrap_or(libc::EIO))
}

extern "C" fn add_extent(_: u64, length: usize, exists: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: `ImageHandle::allocated` passes a pointer to a counter and keeps it alive.
    let total = unsafe { &*argument.cast::<AtomicU64>() };
    if exists != 0 {
        total.fetch_add(length as u64, Ordering::Relaxed);
    }
    0
}

/// Runs a listing call of librbd with more room until everything fits, copies, and cleans up.
fn list<C, T>(
    call: impl Fn(*mut C, *mut usize) -> c_int,
    copy: impl Fn(&C) -> T,
    clean: impl Fn(*mut C, usize),
) -> Result<Vec<T>, Errno> {
    let mut count = 16_usize;
    loop {
        let mut room = Vec::<C>::with_capacity(count);
        let result = call(room.as_mut_ptr(), &mut count);
        if result == -libc::ERANGE {
            continue; // `count` now tells what is needed
        }
        check(result)?;
        // SAFETY: the call has filled `count` entries, not more than the capacity it was given.
        unsafe { room.set_len(count) };
        let found = room.iter().map(&copy).collect();
        clean(room.as_mut_ptr(), count);
        return Ok(found);
    }
}

/// # Safety
/// The strings of the entry are null or live C strings.
unsafe fn copy_linked(image: &RbdLinkedImage) -> Linked {
    // SAFETY: the caller vouches for each of the strings.
    let text = |pointer| unsafe { text_at(pointer) };
    Linked {
        pool: text(image.pool_name),
        namespace: text(image.pool_namespace),
        image: text(image.image_name),
        id: text(image.image_id),
        in_trash: image.trash,
    }
}
