//! The real domains, block jobs and events: libvirt and the QEMUs behind it.
//!
//! Connections are kept apart by what they may have to wait for: one for events, one for calls that stay inside
//! libvirt, and one for each domain (its lane) for calls that wait for its QEMU. Nothing is decided here; virt's
//! types, libvirt's numbers and `unsafe` (in `ffi` alone) end here.

mod connection;
mod domains;
mod error;
mod event_loop;
mod events;
mod ffi;
mod jobs;
mod lane;
mod lanes;
mod pools;
mod query_block;
mod run;
mod secrets;
mod translate;
mod volume_secrets;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;

use self::connection::Reads;
use self::event_loop::EventLoop;
use self::events::Hub;
use self::lanes::{Call, Lanes};
use crate::ports::{ErrorClass, Events, PortError, TimedEvent};

/// How long calls are waited for; one that takes longer goes on unseen and is answered with `NoAnswer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Calls that stay inside libvirt.
    pub read: Duration,
    /// Questions to a QEMU.
    pub qemu: Duration,
    /// Starting a copy, which opens the destination.
    pub start: Duration,
    /// Ending a copy, which waits until it has ended.
    pub abort: Duration,
    /// A pivot, which drains the disk's writes.
    pub pivot: Duration,
    /// A lane that is not used for so long is closed.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            read: seconds(10),
            qemu: seconds(10),
            start: seconds(30),
            abort: seconds(30),
            pivot: seconds(30),
            idle: seconds(60),
        }
    }
}

/// The ports of one libvirt: domains, block jobs and events.
#[derive(Debug)]
pub struct LibvirtPorts {
    hub: Arc<Hub>,
    _connecting: AbortOnDropHandle<()>,
    reads: Reads,
    lanes: Lanes,
    timeouts: Timeouts,
    /// Last, so that the loop outlives what needs it.
    _event_loop: EventLoop,
}

impl LibvirtPorts {
    /// Starts the event loop and begins to connect to `uri`, within a tokio runtime.
    ///
    /// A libvirt that is away is no error: calls answer `Unavailable` until it is there, and the events port tells.
    /// Errors: the URI cannot be one, or no thread can be started.
    pub fn connect(uri: &str, timeouts: Timeouts) -> Result<Arc<Self>, PortError> {
        if uri.is_empty() || uri.contains('\0') {
            let text = "the connection URI is empty or contains a NUL character";
            return Err(PortError::new(ErrorClass::Other, "connect to libvirt", text));
        }
        let event_loop = EventLoop::join()?;
        let uri: Arc<str> = Arc::from(uri);
        let hub = Hub::new();
        Ok(Arc::new(Self {
            _connecting: events::keep_connected(Arc::clone(&uri), Arc::clone(&hub)),
            hub,
            reads: Reads::new(Arc::clone(&uri)),
            lanes: Lanes::new(uri, timeouts.idle),
            timeouts,
            _event_loop: event_loop,
        }))
    }

    fn qemu_call(&self, operation: String) -> Call {
        Call { operation, bound: self.timeouts.qemu, urgent: false }
    }
}

impl Events for LibvirtPorts {
    fn subscribe(&self) -> broadcast::Receiver<TimedEvent> {
        self.hub.subscribe()
    }

    fn connected(&self) -> bool {
        self.hub.connected()
    }
}
