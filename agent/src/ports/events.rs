//! What libvirt and QEMU report by themselves. Events are hints; state is truth.

use std::time::Instant;

use tokio::sync::broadcast;

use crate::spec::{DiskTarget, DomainUuid};

/// How a block job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// Completed: after a pivot, the disk is on the copy.
    Completed,
    /// Failed: the disk is on its source.
    Failed,
    /// Ended without a pivot.
    Cancelled,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A block copy reached READY (event id 16, `BLOCK_JOB_2`).
    JobReady,
    /// A block copy ended (event id 16, `BLOCK_JOB_2`).
    JobEnded(JobEnd),
    /// QEMU's `BLOCK_JOB_ERROR`: `operation` is `read` (the source) or `write` (the destination).
    QemuJobError {
        /// QEMU's name of the job, `copy-vda-libvirt-4-format`.
        device: String,
        /// `read` or `write`.
        operation: String,
    },
    /// QEMU's `BLOCK_JOB_COMPLETED`; `error` is QEMU's own text when it failed.
    QemuJobCompleted {
        /// QEMU's name of the job.
        device: String,
        /// Why it failed.
        error: Option<String>,
    },
    /// The domain stopped: shut down, destroyed or crashed.
    DomainStopped {
        /// libvirt's word for why.
        reason: &'static str,
    },
    /// QEMU paused the guest on an I/O error.
    PausedOnIoError,
    /// The connection to libvirt is gone; events were lost from here.
    ConnectionLost,
    /// The connection is back and callbacks are registered: read the state anew.
    ConnectionRestored,
}

/// An event of one disk, one domain, or the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainEvent {
    /// The domain; none for the connection itself.
    pub domain: Option<DomainUuid>,
    /// The disk, where the event names one.
    pub target: Option<DiskTarget>,
    /// What happened.
    pub kind: EventKind,
}

/// An event with the instant its callback was entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedEvent {
    /// When libvirt's callback was entered.
    pub at: Instant,
    /// QEMU's own timestamp, microseconds since the epoch, where it carries one.
    pub qemu_time_us: Option<u64>,
    /// The event.
    pub event: DomainEvent,
}

/// A source of events.
pub trait Events: Send + Sync {
    /// A receiver of everything from now on. One that lags is told so and must read the state anew.
    fn subscribe(&self) -> broadcast::Receiver<TimedEvent>;

    /// Whether libvirt can be reached at this moment.
    fn connected(&self) -> bool;
}
