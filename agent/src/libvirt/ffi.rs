//! The libvirt calls that the `virt` crate lacks or gets wrong, each behind a safe function.
//!
//! All `unsafe` of the agent is here. No decision and no error class: callers get the crate's own error, read on
//! the thread that made the call (libvirt keeps it per thread). Callbacks copy what they are given, stamp the
//! time and hand it to a [`Sink`]; they never call the daemon and never unwind into C.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use nix::libc;
use secrecy::zeroize::Zeroize;
use secrecy::{SecretBox, SecretSlice};
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::Error;
use virt::secret::Secret;
use virt_sys as sys;

use crate::ports::BlockInfo;
use crate::spec::Bytes;

/// What libvirt says of a block job, in its own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawJobInfo {
    /// `VIR_DOMAIN_BLOCK_JOB_TYPE_*`.
    pub kind: c_int,
    /// Bytes per second, 0 for no limit.
    pub bandwidth: u64,
    /// Done.
    pub current: u64,
    /// To do in all.
    pub end: u64,
}

/// Receives what callbacks were told, on the event loop's thread. Must not block and must not call libvirt.
pub trait Sink: Send + Sync + 'static {
    /// `BLOCK_JOB_2`: disk target, job type, status.
    fn block_job(&self, at: Instant, domain: &str, disk: &str, kind: c_int, status: c_int);
    /// `LIFECYCLE`: event and detail.
    fn lifecycle(&self, at: Instant, domain: &str, event: c_int, detail: c_int);
    /// An event of QEMU's monitor with its time in microseconds and its data as JSON.
    fn qemu(&self, at: Instant, domain: &str, event: &str, time_us: u64, data: &str);
    /// The connection is gone; libvirt's reason.
    fn closed(&self, reason: c_int);
}

fn check(code: c_int) -> Result<c_int, Error> {
    if code < 0 { Err(Error::last_error()) } else { Ok(code) }
}

/// State and reason of a domain (`virDomainGetState`; the crate's own wrapper ignores errors).
pub fn domain_state(domain: &Domain) -> Result<(c_int, c_int), Error> {
    let (mut state, mut reason) = (-1, -1);
    // SAFETY: the handle is valid while `domain` is borrowed; both out pointers are live locals.
    check(unsafe { sys::virDomainGetState(domain.as_ptr(), &mut state, &mut reason, 0) })?;
    Ok((state, reason))
}

/// Starts a block copy, with a limit in bytes per second.
pub fn block_copy(
    domain: &Domain,
    disk: &CStr,
    destination_xml: &CStr,
    bandwidth: Option<u64>,
    flags: c_uint,
) -> Result<(), Error> {
    let (mut params, mut count, mut room) = (ptr::null_mut(), 0, 0);
    if let Some(limit) = bandwidth {
        let name = sys::VIR_DOMAIN_BLOCK_COPY_BANDWIDTH.as_ptr();
        // SAFETY: libvirt allocates and grows the array behind the three live locals; the name is a C constant.
        check(unsafe {
            sys::virTypedParamsAddULLong(&mut params, &mut count, &mut room, name, limit)
        })?;
    }
    // SAFETY: valid handle, NUL-terminated strings that outlive the call, `count` initialised parameters.
    let started = check(unsafe {
        sys::virDomainBlockCopy(
            domain.as_ptr(),
            disk.as_ptr(),
            destination_xml.as_ptr(),
            params,
            count,
            flags,
        )
    });
    // SAFETY: the array came from virTypedParamsAddULLong (or is null, which is allowed) and is not used again.
    unsafe { sys::virTypedParamsFree(params, count) };
    started.map(drop)
}

/// The sizes of a disk. The crate's own call drops the error and reads memory that nobody wrote.
pub fn block_info(domain: &Domain, disk: &CStr) -> Result<BlockInfo, Error> {
    let mut info = sys::virDomainBlockInfo { capacity: 0, allocation: 0, physical: 0 };
    // SAFETY: valid handle, NUL-terminated string, live out structure of the library's own layout.
    check(unsafe { sys::virDomainGetBlockInfo(domain.as_ptr(), disk.as_ptr(), &mut info, 0) })?;
    Ok(BlockInfo {
        capacity: Bytes(info.capacity),
        allocation: Bytes(info.allocation),
        physical: Bytes(info.physical),
    })
}

/// The block job on a disk; none when there is none.
pub fn block_job_info(domain: &Domain, disk: &CStr) -> Result<Option<RawJobInfo>, Error> {
    let mut info = sys::virDomainBlockJobInfo { type_: 0, bandwidth: 0, cur: 0, end: 0 };
    // SAFETY: valid handle, NUL-terminated string, live out structure of the library's own layout.
    let found = check(unsafe {
        sys::virDomainGetBlockJobInfo(
            domain.as_ptr(),
            disk.as_ptr(),
            &mut info,
            sys::VIR_DOMAIN_BLOCK_JOB_INFO_BANDWIDTH_BYTES,
        )
    })?;
    Ok((found > 0).then_some(RawJobInfo {
        kind: info.type_,
        bandwidth: info.bandwidth,
        current: info.cur,
        end: info.end,
    }))
}

/// Ends a block job: with a pivot to the copy, or without. Returns once it has ended.
pub fn block_job_abort(domain: &Domain, disk: &CStr, pivot: bool) -> Result<(), Error> {
    let flags = if pivot { sys::VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT } else { 0 };
    // SAFETY: valid handle and a NUL-terminated string that outlives the call.
    check(unsafe { sys::virDomainBlockJobAbort(domain.as_ptr(), disk.as_ptr(), flags) }).map(drop)
}

/// Changes a block job's limit in bytes per second, 0 for no limit.
pub fn block_job_set_speed(domain: &Domain, disk: &CStr, limit: u64) -> Result<(), Error> {
    let flags = sys::VIR_DOMAIN_BLOCK_JOB_SPEED_BANDWIDTH_BYTES;
    // SAFETY: valid handle and a NUL-terminated string that outlives the call.
    check(unsafe { sys::virDomainBlockJobSetSpeed(domain.as_ptr(), disk.as_ptr(), limit, flags) })
        .map(drop)
}

/// Limits a disk's input and output; the flags say where.
pub fn set_block_iotune(
    domain: &Domain,
    disk: &CStr,
    limits: &[(CString, u64)],
    flags: c_uint,
) -> Result<(), Error> {
    let (mut params, mut count, mut room) = (ptr::null_mut(), 0, 0);
    let mut set = Ok(0);
    for (name, value) in limits {
        set = set.and_then(|_| {
            // SAFETY: libvirt allocates and grows the array behind the three live locals, and copies the terminated
            // name.
            check(unsafe {
                sys::virTypedParamsAddULLong(
                    &mut params,
                    &mut count,
                    &mut room,
                    name.as_ptr(),
                    *value,
                )
            })
        });
    }
    let set = set.and_then(|_| {
        // SAFETY: valid handle, a NUL-terminated string that outlives the call, `count` initialised parameters.
        check(unsafe {
            sys::virDomainSetBlockIoTune(domain.as_ptr(), disk.as_ptr(), params, count, flags)
        })
    });
    // SAFETY: the array came from virTypedParamsAddULLong (or is null, which is allowed) and is not used again.
    unsafe { sys::virTypedParamsFree(params, count) };
    set.map(drop)
}

/// Names of the checkpoints libvirt keeps for a domain.
pub fn checkpoint_names(domain: &Domain) -> Result<Vec<String>, Error> {
    let mut list: *mut sys::virDomainCheckpointPtr = ptr::null_mut();
    // SAFETY: valid handle; libvirt allocates the list behind the live out pointer.
    let count = check(unsafe { sys::virDomainListAllCheckpoints(domain.as_ptr(), &mut list, 0) })?;
    let mut names = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` valid entries; the name lives as long as its entry, which is freed after
        // the copy and never touched again.
        unsafe {
            let checkpoint = *list.add(index);
            names.push(copy_text(sys::virDomainCheckpointGetName(checkpoint)));
            sys::virDomainCheckpointFree(checkpoint);
        }
    }
    // SAFETY: the list was allocated with malloc by libvirt, ownership is ours, its entries are freed.
    unsafe { libc::free(list.cast()) };
    Ok(names)
}

/// The value of a secret; libvirt's own buffer is wiped before it is freed.
pub fn secret_value(secret: &Secret) -> Result<SecretSlice<u8>, Error> {
    let mut size: usize = 0;
    // SAFETY: the handle is valid while `secret` is borrowed; `size` is a live local.
    let value = unsafe { sys::virSecretGetValue(secret.as_ptr(), &mut size, 0) };
    if value.is_null() {
        return Err(Error::last_error());
    }
    // SAFETY: libvirt returned `size` initialised bytes, allocated with malloc, owned by us; the slice ends before
    // the buffer is freed.
    let copy: Box<[u8]> = unsafe {
        let bytes = std::slice::from_raw_parts_mut(value, size);
        let copy = Box::from(&*bytes);
        bytes.zeroize();
        libc::free(value.cast());
        copy
    };
    Ok(SecretBox::new(copy))
}

/// Callbacks registered on a connection; dropping it takes them away.
pub struct Registration {
    connection: Connect,
    events: Vec<c_int>,
    qemu: Option<c_int>,
    close: bool,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("qemu", &self.qemu).finish_non_exhaustive()
    }
}

impl Registration {
    /// Registers for block jobs and life cycle (needed), the connection's end and QEMU's block job events (a driver
    /// may lack them; see [`Self::has_qemu_events`]).
    pub fn new(connection: &Connect, sink: &Arc<dyn Sink>) -> Result<Self, Error> {
        let mut this =
            Self { connection: connection.clone(), events: Vec::new(), qemu: None, close: false };
        this.close = this.register_close(sink).is_ok();
        // SAFETY: libvirt calls back with the signature that belongs to the event id it was registered under; the
        // generic type is how its interface spells "any callback".
        let block_job: GenericCallback =
            unsafe { std::mem::transmute::<BlockJobCallback, GenericCallback>(on_block_job) };
        // SAFETY: as above, for the life cycle event.
        let lifecycle: GenericCallback =
            unsafe { std::mem::transmute::<LifecycleCallback, GenericCallback>(on_lifecycle) };
        this.register_event(sys::VIR_DOMAIN_EVENT_ID_BLOCK_JOB_2, block_job, sink)?;
        this.register_event(sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle, sink)?;
        this.qemu = this.register_qemu(sink).ok();
        Ok(this)
    }

    /// Whether QEMU's own words on a failed job will arrive.
    pub fn has_qemu_events(&self) -> bool {
        self.qemu.is_some()
    }

    fn register_event(
        &mut self,
        id: sys::virDomainEventID,
        callback: GenericCallback,
        sink: &Arc<dyn Sink>,
    ) -> Result<(), Error> {
        let opaque = into_opaque(sink);
        // SAFETY: valid connection, null for "all domains"; libvirt owns `opaque` until it calls `free_sink`.
        let answer = check(unsafe {
            sys::virConnectDomainEventRegisterAny(
                self.connection.as_ptr(),
                ptr::null_mut(),
                id as c_int,
                Some(callback),
                opaque,
                Some(free_sink),
            )
        });
        self.events.push(keep_or_free(answer, opaque)?);
        Ok(())
    }

    fn register_qemu(&self, sink: &Arc<dyn Sink>) -> Result<c_int, Error> {
        let opaque = into_opaque(sink);
        // SAFETY: as in `register_event`; the event filter is a C constant.
        let answer = check(unsafe {
            sys::virConnectDomainQemuMonitorEventRegister(
                self.connection.as_ptr(),
                ptr::null_mut(),
                c"^BLOCK_JOB_(ERROR|COMPLETED)$".as_ptr(),
                Some(on_qemu_event),
                opaque,
                Some(free_sink),
                sys::VIR_CONNECT_DOMAIN_QEMU_MONITOR_EVENT_REGISTER_REGEX,
            )
        });
        keep_or_free(answer, opaque)
    }

    fn register_close(&self, sink: &Arc<dyn Sink>) -> Result<c_int, Error> {
        let opaque = into_opaque(sink);
        // SAFETY: as in `register_event`.
        let answer = check(unsafe {
            sys::virConnectRegisterCloseCallback(
                self.connection.as_ptr(),
                ON_CLOSE,
                opaque,
                Some(free_sink),
            )
        });
        keep_or_free(answer, opaque)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the connection is held by `self`; the ids came from it and are given back once. Errors (a dead
        // connection) leave nothing to do: libvirt forgets the local part first.
        unsafe {
            let connection = self.connection.as_ptr();
            for id in self.events.drain(..) {
                sys::virConnectDomainEventDeregisterAny(connection, id);
            }
            if let Some(id) = self.qemu.take() {
                sys::virConnectDomainQemuMonitorEventDeregister(connection, id);
            }
            if self.close {
                sys::virConnectUnregisterCloseCallback(connection, ON_CLOSE);
            }
        }
    }
}

type GenericCallback = unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *mut c_void);
type BlockJobCallback = unsafe extern "C" fn(
    sys::virConnectPtr,
    sys::virDomainPtr,
    *const c_char,
    c_int,
    c_int,
    *mut c_void,
);
type LifecycleCallback =
    unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, c_int, c_int, *mut c_void) -> c_int;

/// One address for registering and unregistering, by which libvirt finds the callback.
static ON_CLOSE: sys::virConnectCloseFunc = Some(on_close);

fn into_opaque(sink: &Arc<dyn Sink>) -> *mut c_void {
    Box::into_raw(Box::new(Arc::clone(sink))).cast()
}

fn keep_or_free(answer: Result<c_int, Error>, opaque: *mut c_void) -> Result<c_int, Error> {
    if answer.is_err() {
        // SAFETY: libvirt refused the registration and will neither use nor free the pointer.
        unsafe { free_sink(opaque) };
    }
    answer
}

unsafe extern "C" fn free_sink(opaque: *mut c_void) {
    // SAFETY: `opaque` is a box made by `into_opaque`, and this is its one and only release.
    let sink = unsafe { Box::from_raw(opaque.cast::<Arc<dyn Sink>>()) };
    let _ = catch_unwind(AssertUnwindSafe(move || drop(sink)));
}

/// Runs a callback's body on the sink behind `opaque`; a panic ends here.
///
/// # Safety
/// `opaque` is a live pointer made by `into_opaque`.
unsafe fn with_sink(opaque: *mut c_void, body: impl FnOnce(&dyn Sink)) {
    // SAFETY: by contract; libvirt does not free it while a callback runs.
    let sink = unsafe { &*opaque.cast::<Arc<dyn Sink>>() };
    let _ = catch_unwind(AssertUnwindSafe(|| body(&**sink)));
}

/// # Safety
/// `text` is null or a NUL-terminated string that lives during the call.
unsafe fn copy_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The domain's uuid, read from the handle itself without asking the daemon.
///
/// # Safety
/// `domain` is null or a valid handle.
unsafe fn uuid_of(domain: sys::virDomainPtr) -> String {
    let mut text = [0 as c_char; sys::VIR_UUID_STRING_BUFLEN as usize];
    // SAFETY: by contract; the buffer has the size the interface asks for, and stays terminated on failure.
    unsafe {
        if !domain.is_null() {
            sys::virDomainGetUUIDString(domain, text.as_mut_ptr());
        }
        copy_text(text.as_ptr())
    }
}

unsafe extern "C" fn on_block_job(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    disk: *const c_char,
    kind: c_int,
    status: c_int,
    opaque: *mut c_void,
) {
    let at = Instant::now();
    // SAFETY: libvirt passes a valid handle, a terminated string and the pointer that was registered.
    unsafe {
        let (uuid, disk) = (uuid_of(domain), copy_text(disk));
        with_sink(opaque, |sink| sink.block_job(at, &uuid, &disk, kind, status));
    }
}

unsafe extern "C" fn on_lifecycle(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    event: c_int,
    detail: c_int,
    opaque: *mut c_void,
) -> c_int {
    let at = Instant::now();
    // SAFETY: libvirt passes a valid handle and the pointer that was registered.
    unsafe {
        let uuid = uuid_of(domain);
        with_sink(opaque, |sink| sink.lifecycle(at, &uuid, event, detail));
    }
    0
}

unsafe extern "C" fn on_qemu_event(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    event: *const c_char,
    seconds: c_longlong,
    micros: c_uint,
    data: *const c_char,
    opaque: *mut c_void,
) {
    let at = Instant::now();
    let time_us = u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000) + u64::from(micros);
    // SAFETY: libvirt passes a valid handle, terminated strings (data may be null) and the registered pointer.
    unsafe {
        let (uuid, event, data) = (uuid_of(domain), copy_text(event), copy_text(data));
        with_sink(opaque, |sink| sink.qemu(at, &uuid, &event, time_us, &data));
    }
}

unsafe extern "C" fn on_close(_: sys::virConnectPtr, reason: c_int, opaque: *mut c_void) {
    // SAFETY: libvirt passes the pointer that was registered.
    unsafe { with_sink(opaque, |sink| sink.closed(reason)) };
}
