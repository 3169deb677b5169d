//! Block jobs: starting a copy, asking after it, its speed, its end.

use std::time::Instant;

use async_trait::async_trait;

use super::error::PortError;
use crate::spec::{Bytes, BytesPerSecond, CopyFlags, DiskTarget, DomainUuid};

/// What a block copy is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRequest {
    /// The domain.
    pub domain: DomainUuid,
    /// The disk.
    pub target: DiskTarget,
    /// The destination `<disk>`.
    pub destination_xml: String,
    /// libvirt's flags.
    pub flags: CopyFlags,
    /// Limit, none for no limit.
    pub bandwidth: Option<BytesPerSecond>,
}

/// What libvirt says of a running job (`virDomainGetBlockJobInfo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobInfo {
    /// True for a block copy.
    pub is_copy: bool,
    /// Done so far; both numbers grow with the guest's writes, so this may run backwards as a share.
    pub current: Bytes,
    /// To do in all.
    pub end: Bytes,
    /// The limit in force.
    pub bandwidth: Option<BytesPerSecond>,
}

/// A pivot call that returned success.
#[derive(Debug, Clone, Copy)]
pub struct PivotAnswer {
    /// When libvirt was called, on the monotonic clock of the event callbacks.
    pub called_at: Instant,
}

/// Block jobs of this host's domains.
#[async_trait]
pub trait BlockJobs: Send + Sync {
    /// Starts a copy. Not idempotent: a second one on the disk is refused with `Busy`.
    /// After `NoAnswer` the job may run: look at the live XML.
    async fn start_copy(&self, request: &CopyRequest) -> Result<(), PortError>;

    /// The job on a disk, none when there is none.
    async fn info(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<Option<JobInfo>, PortError>;

    /// Changes the limit of a running job; none lifts it.
    async fn set_bandwidth(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
        bandwidth: Option<BytesPerSecond>,
    ) -> Result<(), PortError>;

    /// Ends the job without a pivot and returns when libvirt says it has ended. `NotFound` when there is no job.
    async fn abort(&self, domain: &DomainUuid, target: &DiskTarget) -> Result<(), PortError>;

    /// Switches the disk to the copy. Success is proof that the switch took effect.
    /// `NotReady`: nothing happened. `Other`: QEMU's text; the job is over, the disk still on its source.
    /// `NoAnswer`/`Unavailable`: unknown, ask QEMU.
    async fn pivot(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<PivotAnswer, PortError>;
}
