//! The handles of librados: a cluster and a pool in it. Images are not opened here.

use std::ffi::c_char;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ceph::rados;

use super::{c_string, text_at};
use crate::errno::{Errno, check, check_size};

// Missing in the `ceph` crate.
#[link(name = "rados")]
unsafe extern "C" {
    /// Lets writes to a full pool fail instead of hang, and deletions pass.
    fn rados_set_pool_full_try(io: rados::rados_ioctx_t);
}

/// A connection to a cluster, or one about to be made. Shut down when dropped.
#[derive(Debug)]
pub(crate) struct ClusterHandle(rados::rados_t);

// SAFETY: librados locks its cluster handle itself; any thread may use it, several at once too.
unsafe impl Send for ClusterHandle {}
// SAFETY: as above.
unsafe impl Sync for ClusterHandle {}

impl ClusterHandle {
    /// A handle for the user `client.NAME`, without any configuration file.
    pub(crate) fn new(client: &str) -> Result<Self, Errno> {
        let client = c_string(client)?;
        let mut raw: rados::rados_t = null_mut();
        // SAFETY: the out pointer and both strings live through the call, which copies them.
        check(unsafe { rados::rados_create2(&mut raw, c"ceph".as_ptr(), client.as_ptr(), 0) })?;
        Ok(Self(raw))
    }

    pub(crate) fn set(&mut self, option: &str, value: &str) -> Result<(), Errno> {
        let (option, value) = (c_string(option)?, c_string(value)?);
        // SAFETY: the handle is live until drop; both strings are copied.
        check(unsafe { rados::rados_conf_set(self.0, option.as_ptr(), value.as_ptr()) })
    }

    pub(crate) fn connect(&mut self) -> Result<(), Errno> {
        // SAFETY: the handle is live; `&mut` excludes a second connect beside this one.
        check(unsafe { rados::rados_connect(self.0) })
    }

    pub(crate) fn fsid(&self) -> Result<String, Errno> {
        let mut buffer = [0 as c_char; 64];
        // SAFETY: the buffer is writable for the length given; the handle is live.
        check(unsafe { rados::rados_cluster_fsid(self.0, buffer.as_mut_ptr(), buffer.len()) })?;
        // SAFETY: the call succeeded, so the buffer holds a NUL-terminated id of 36 characters.
        Ok(unsafe { text_at(buffer.as_ptr()) })
    }

    /// Sends a monitor command in JSON. An error comes with the monitors' own text.
    pub(crate) fn mon_command(&self, command: &str) -> Result<Vec<u8>, (Errno, String)> {
        let command = c_string(command).map_err(|errno| (errno, String::new()))?;
        let mut commands = [command.as_ptr()];
        let (mut out, mut out_size) = (null_mut::<c_char>(), 0_usize);
        let (mut status, mut status_size) = (null_mut::<c_char>(), 0_usize);
        // SAFETY: the command array and all out pointers live through the call; no input buffer.
        let result = unsafe {
            rados::rados_mon_command(
                self.0,
                commands.as_mut_ptr(),
                commands.len(),
                null(),
                0,
                &mut out,
                &mut out_size,
                &mut status,
                &mut status_size,
            )
        };
        // SAFETY: librados has set both to null or to buffers of these sizes; taken once each.
        let (answer, status) =
            unsafe { (take_buffer(out, out_size), take_buffer(status, status_size)) };
        let status = String::from_utf8_lossy(&status).into_owned();
        check(result).map(|()| answer).map_err(|errno| (errno, status))
    }
}

/// Copies a buffer that librados allocated and gives it back.
///
/// # Safety
/// The buffer is null or comes from librados with this size, and is not used afterwards.
unsafe fn take_buffer(buffer: *mut c_char, size: usize) -> Vec<u8> {
    if buffer.is_null() {
        return Vec::new();
    }
    // SAFETY: librados allocated `size` readable bytes here.
    let copy = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), size) }.to_vec();
    // SAFETY: the buffer came from librados, is freed once and not used again.
    unsafe { rados::rados_buffer_free(buffer) };
    copy
}

impl Drop for ClusterHandle {
    fn drop(&mut self) {
        // SAFETY: the only shutdown of this handle; pools hold the cluster by Arc, so none is left.
        unsafe { rados::rados_shutdown(self.0) }
    }
}

/// A pool, in one namespace, of a connected cluster.
#[derive(Debug)]
pub(crate) struct PoolHandle {
    pub(super) io: rados::rados_ioctx_t,
    /// Keeps the cluster connected as long as the pool is used; dropped after `io` is destroyed.
    _cluster: Arc<ClusterHandle>,
}

// SAFETY: an I/O context may be used by several threads as long as its settings (namespace, locator,
// snapshot) stay; the namespace is set once, before the handle is handed out.
unsafe impl Send for PoolHandle {}
// SAFETY: as above.
unsafe impl Sync for PoolHandle {}

impl PoolHandle {
    pub(crate) fn open(
        cluster: Arc<ClusterHandle>,
        pool: &str,
        namespace: Option<&str>,
    ) -> Result<Self, Errno> {
        let (pool, namespace) = (c_string(pool)?, c_string(namespace.unwrap_or_default())?);
        let mut io: rados::rados_ioctx_t = null_mut();
        // SAFETY: the cluster is connected and live; the out pointer lives through the call.
        check(unsafe { rados::rados_ioctx_create(cluster.0, pool.as_ptr(), &mut io) })?;
        // SAFETY: `io` was just created; the string is copied.
        unsafe { rados::rados_ioctx_set_namespace(io, namespace.as_ptr()) };
        // SAFETY: `io` was just created.
        unsafe { rados_set_pool_full_try(io) };
        Ok(Self { io, _cluster: cluster })
    }

    /// Reads the beginning of an object, at most `size` bytes.
    pub(crate) fn read(&self, object: &str, size: usize) -> Result<Vec<u8>, Errno> {
        let object = c_string(object)?;
        let mut buffer = vec![0_u8; size];
        let target = buffer.as_mut_ptr().cast();
        // SAFETY: `target` is writable for `size` bytes; the I/O context is live.
        let read = unsafe { rados::rados_read(self.io, object.as_ptr(), target, size, 0) };
        buffer.truncate(check_size(read)?);
        Ok(buffer)
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        // SAFETY: destroyed once; images borrow the pool, so none is open any more.
        unsafe { rados::rados_ioctx_destroy(self.io) }
    }
}
