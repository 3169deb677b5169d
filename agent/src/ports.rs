//! The narrow seams between the engine and the world, one trait per capability.
//!
//! Our own types cross them: no virt type, no raw flag, no raw XML option. `libvirt/` and `host/` implement them
//! for real, `fake/` as a programmable world; one contract test holds both to the same behaviour.

pub mod clock;
pub mod copies;
pub mod domains;
pub mod error;
pub mod events;
pub mod files;
pub mod images;
pub mod jobs;
pub mod marks;
pub mod pools;
pub mod secrets;

use std::fmt;
use std::sync::Arc;

pub use clock::Clock;
pub use copies::{Comparison, CopyError, CopySide, Done, Image, ImageCopies, ImageCopy, ImageKey};
pub use domains::{
    BlockInfo, DomainObservation, DomainState, DomainSummary, Domains, HostVersions,
    QemuBlockDevice, Snapshots,
};
pub use error::{ErrorClass, PortError};
pub use events::{DomainEvent, EventKind, Events, JobEnd, TimedEvent};
pub use files::{
    BackingName, FileObservation, FileOwner, Files, FolderAccess, FolderModes, FolderObservation,
    ImageHeader,
};
pub use images::{ImageObservation, Images, ParentSnapshot, RbdPoolSpace};
pub use jobs::{BlockJobs, CopyRequest, JobInfo, PivotAnswer};
pub use marks::{Mark, MarkedVolume, Marks, Search};
pub use pools::StoragePools;
pub use secrets::{NewSecret, Secrets, VolumeSecret};

/// Everything the engine may touch.
#[derive(Clone)]
pub struct Ports {
    /// Domains and their XML.
    pub domains: Arc<dyn Domains>,
    /// Block jobs.
    pub jobs: Arc<dyn BlockJobs>,
    /// What libvirt and QEMU report by themselves.
    pub events: Arc<dyn Events>,
    /// RBD images.
    pub images: Arc<dyn Images>,
    /// Image files.
    pub files: Arc<dyn Files>,
    /// Copies of volumes nobody uses.
    pub copies: Arc<dyn ImageCopies>,
    /// Marks of destinations.
    pub marks: Arc<dyn Marks>,
    /// Storage pools of libvirt.
    pub pools: Arc<dyn StoragePools>,
    /// libvirt secrets of volumes.
    pub secrets: Arc<dyn Secrets>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}
