//! Declarations after `<rbd/librbd.h>`, as far as they are used. No logic.

use std::ffi::{c_char, c_int, c_void};

pub(super) type Progress = extern "C" fn(u64, u64, *mut c_void) -> c_int;
pub(super) type DiffVisitor = extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

#[derive(Debug)]
#[repr(C)]
pub(super) struct RbdSnapshot {
    pub(super) id: u64,
    pub(super) size: u64,
    pub(super) name: *const c_char,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct RbdWatcher {
    pub(super) address: *mut c_char,
    pub(super) id: i64,
    pub(super) cookie: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct RbdLinkedImage {
    pub(super) pool_id: i64,
    pub(super) pool_name: *mut c_char,
    pub(super) pool_namespace: *mut c_char,
    pub(super) image_id: *mut c_char,
    pub(super) image_name: *mut c_char,
    pub(super) trash: bool,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct RbdSnapshotSpec {
    pub(super) id: u64,
    pub(super) namespace_type: c_int,
    pub(super) name: *mut c_char,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct RbdTrashInfo {
    pub(super) id: *mut c_char,
    pub(super) name: *mut c_char,
    pub(super) source: c_int,
    pub(super) deletion_time: libc::time_t,
    pub(super) deferment_end_time: libc::time_t,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct RbdImageInfo {
    pub(super) size: u64,
    pub(super) object_size: u64,
    pub(super) objects: u64,
    pub(super) order: c_int,
    pub(super) block_name_prefix: [c_char; 24],
    pub(super) parent_pool: i64,
    pub(super) parent_name: [c_char; 96],
}

/// The options of both LUKS versions, which have the same fields.
#[repr(C)]
pub(super) struct RbdLuksOptions {
    pub(super) algorithm: c_int,
    pub(super) passphrase: *const c_char,
    pub(super) passphrase_size: usize,
}

/// `RBD_ENCRYPTION_ALGORITHM_AES256`
pub(super) const AES256: c_int = 1;

#[link(name = "rbd")]
unsafe extern "C" {
    pub(super) fn rbd_image_options_create(options: *mut *mut c_void);
    pub(super) fn rbd_image_options_destroy(options: *mut c_void);
    pub(super) fn rbd_image_options_set_string(
        o: *mut c_void,
        option: c_int,
        value: *const c_char,
    ) -> c_int;
    pub(super) fn rbd_image_options_set_uint64(o: *mut c_void, option: c_int, value: u64) -> c_int;
    pub(super) fn rbd_create4(
        io: *mut c_void,
        name: *const c_char,
        size: u64,
        o: *mut c_void,
    ) -> c_int;
    pub(super) fn rbd_clone3(
        parent_io: *mut c_void,
        parent: *const c_char,
        snapshot: *const c_char,
        io: *mut c_void,
        name: *const c_char,
        options: *mut c_void,
    ) -> c_int;
    pub(super) fn rbd_remove_with_progress(
        io: *mut c_void,
        name: *const c_char,
        progress: Progress,
        argument: *mut c_void,
    ) -> c_int;
    pub(super) fn rbd_list(io: *mut c_void, names: *mut c_char, size: *mut usize) -> c_int;
    pub(super) fn rbd_rename(io: *mut c_void, from: *const c_char, to: *const c_char) -> c_int;
    pub(super) fn rbd_trash_move(io: *mut c_void, name: *const c_char, delay_seconds: u64)
    -> c_int;
    pub(super) fn rbd_trash_get(
        io: *mut c_void,
        id: *const c_char,
        info: *mut RbdTrashInfo,
    ) -> c_int;
    pub(super) fn rbd_trash_get_cleanup(info: *mut RbdTrashInfo);
    pub(super) fn rbd_open(
        io: *mut c_void,
        name: *const c_char,
        image: *mut *mut c_void,
        snapshot: *const c_char,
    ) -> c_int;
    pub(super) fn rbd_open_read_only(
        io: *mut c_void,
        name: *const c_char,
        image: *mut *mut c_void,
        snapshot: *const c_char,
    ) -> c_int;
    pub(super) fn rbd_flatten_with_progress(
        image: *mut c_void,
        progress: Progress,
        argument: *mut c_void,
    ) -> c_int;
    pub(super) fn rbd_close(image: *mut c_void) -> c_int;
    pub(super) fn rbd_get_size(image: *mut c_void, size: *mut u64) -> c_int;
    pub(super) fn rbd_resize(image: *mut c_void, size: u64) -> c_int;
    pub(super) fn rbd_read(image: *mut c_void, at: u64, length: usize, to: *mut c_char) -> isize;
    pub(super) fn rbd_write(
        image: *mut c_void,
        at: u64,
        length: usize,
        from: *const c_char,
    ) -> isize;
    pub(super) fn rbd_encryption_format(
        image: *mut c_void,
        format: c_int,
        options: *mut c_void,
        options_size: usize,
    ) -> c_int;
    pub(super) fn rbd_encryption_load(
        image: *mut c_void,
        format: c_int,
        options: *mut c_void,
        options_size: usize,
    ) -> c_int;
    pub(super) fn rbd_stat(image: *mut c_void, info: *mut RbdImageInfo, size: usize) -> c_int;
    pub(super) fn rbd_get_features(image: *mut c_void, features: *mut u64) -> c_int;
    pub(super) fn rbd_get_id(image: *mut c_void, id: *mut c_char, size: usize) -> c_int;
    pub(super) fn rbd_get_parent(
        image: *mut c_void,
        parent: *mut RbdLinkedImage,
        snapshot: *mut RbdSnapshotSpec,
    ) -> c_int;
    pub(super) fn rbd_linked_image_spec_cleanup(image: *mut RbdLinkedImage);
    pub(super) fn rbd_snap_spec_cleanup(snapshot: *mut RbdSnapshotSpec);
    pub(super) fn rbd_list_children3(
        i: *mut c_void,
        list: *mut RbdLinkedImage,
        count: *mut usize,
    ) -> c_int;
    pub(super) fn rbd_linked_image_spec_list_cleanup(list: *mut RbdLinkedImage, count: usize);
    pub(super) fn rbd_watchers_list(
        i: *mut c_void,
        list: *mut RbdWatcher,
        count: *mut usize,
    ) -> c_int;
    pub(super) fn rbd_watchers_list_cleanup(list: *mut RbdWatcher, count: usize);
    pub(super) fn rbd_snap_list(i: *mut c_void, list: *mut RbdSnapshot, count: *mut c_int)
    -> c_int;
    pub(super) fn rbd_snap_list_end(list: *mut RbdSnapshot);
    pub(super) fn rbd_snap_get_namespace_type(
        image: *mut c_void,
        id: u64,
        kind: *mut c_int,
    ) -> c_int;
    pub(super) fn rbd_snap_create(image: *mut c_void, name: *const c_char) -> c_int;
    pub(super) fn rbd_snap_remove(image: *mut c_void, name: *const c_char) -> c_int;
    pub(super) fn rbd_snap_protect(image: *mut c_void, name: *const c_char) -> c_int;
    pub(super) fn rbd_snap_unprotect(image: *mut c_void, name: *const c_char) -> c_int;
    pub(super) fn rbd_snap_is_protected(
        image: *mut c_void,
        name: *const c_char,
        protected: *mut c_int,
    ) -> c_int;
    pub(super) fn rbd_metadata_get(
        image: *mut c_void,
        key: *const c_char,
        value: *mut c_char,
        size: *mut usize,
    ) -> c_int;
    pub(super) fn rbd_metadata_set(
        image: *mut c_void,
        key: *const c_char,
        value: *const c_char,
    ) -> c_int;
    pub(super) fn rbd_diff_iterate2(
        image: *mut c_void,
        from_snapshot: *const c_char,
        offset: u64,
        length: u64,
        include_parent: u8,
        whole_object: u8,
        visitor: DiffVisitor,
        argument: *mut c_void,
    ) -> c_int;
}
