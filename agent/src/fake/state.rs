//! Everything there is in the world, as one struct.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::copy::RunningCopy;
use super::domain::Domain;
use super::folder::{File, Folder};
use super::rbd::Cluster;
use super::secret::{Header, Secret};
use super::storage_pool::StoragePool;
use crate::ports::{DomainEvent, ErrorClass, EventKind, Mark, PortError};
use crate::spec::{DiskTarget, DomainUuid, Identity, VolumeLocation};

/// The world's content. Tests may change any of it behind everybody's back.
#[derive(Debug, Default)]
pub struct State {
    /// Domains of this host.
    pub domains: BTreeMap<DomainUuid, Domain>,
    /// Ceph clusters.
    pub clusters: Vec<Cluster>,
    /// Folders, each on a file system of its own.
    pub folders: BTreeMap<PathBuf, Folder>,
    /// Files by path.
    pub files: BTreeMap<PathBuf, File>,
    /// Uuids of libvirt secrets.
    pub secrets: BTreeSet<String>,
    /// libvirt secrets of volumes by uuid.
    pub volume_secrets: BTreeMap<String, Secret>,
    /// Block copies into images that librbd encrypts work here.
    pub librbd_copies: bool,
    /// Storage pools of libvirt by name.
    pub storage_pools: BTreeMap<String, StoragePool>,
    /// Uuids of libvirt secrets by their usage.
    pub secret_usages: BTreeMap<String, String>,
    /// The security module that confines QEMU.
    pub confinement: Option<&'static str>,
    /// What volumes hold, as a number that is another one after every write; none of what was never written. By
    /// identity, in words.
    pub contents: BTreeMap<String, u64>,
    /// Copies that run.
    pub copies: Vec<RunningCopy>,
    /// Bytes per second a copy of images moves without a limit.
    pub copy_pace: u64,
    /// Whether libvirt can be reached.
    pub connected: bool,
    /// Watches of clients that died: image id, client, until when Ceph keeps them.
    pub(super) dead_watches: Vec<(String, String, tokio::time::Instant)>,
    /// Marks of volumes, by identity.
    pub marks: BTreeMap<String, Mark>,
    /// The last write that was acknowledged to each guest.
    acknowledged: BTreeMap<DomainUuid, u64>,
    /// Guests that somebody stopped, other than the agent.
    pub(super) stopped: BTreeSet<DomainUuid>,
    /// The run each guest's QEMU had first.
    pub(super) first_runs: BTreeMap<DomainUuid, u64>,
    /// Events to be sent.
    pub(super) outbox: Vec<DomainEvent>,
    last_number: u64,
}

/// One look at a volume of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// What makes it itself.
    pub identity: Identity,
    /// What a guest sees.
    pub size: u64,
    /// What it occupies.
    pub allocated: u64,
    /// Its encryption header.
    pub header: Option<Header>,
}

/// Room for one more write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// Written.
    Done,
    /// A file system says so.
    NoSpace,
    /// A Ceph pool says nothing and lets the write wait.
    Hangs,
}

impl State {
    /// An empty world.
    pub fn new() -> Self {
        Self { connected: true, copy_pace: 256 << 20, ..Self::default() }
    }

    /// A number nothing else has.
    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The volume that has this name now.
    pub fn volume(&self, location: &VolumeLocation) -> Option<Volume> {
        match location {
            VolumeLocation::Rbd { address, image } => {
                let image = self.pool(address).ok()?.images.get(image)?;
                Some(Volume {
                    identity: Identity::Rbd { image_id: image.id.clone() },
                    size: image.size,
                    allocated: image.allocated,
                    header: image.header.clone(),
                })
            }
            VolumeLocation::File { path } => {
                let file = self.files.get(path)?;
                Some(Volume {
                    identity: self.file_identity(path)?,
                    size: file.size,
                    allocated: file.allocated,
                    header: file.encryption.clone(),
                })
            }
        }
    }

    /// Lets the volume of this identity occupy `allocated`, if its pool has room. One that was removed while open
    /// takes everything.
    pub(super) fn write(
        &mut self,
        place: &VolumeLocation,
        identity: &Identity,
        allocated: u64,
    ) -> Write {
        match (place, identity) {
            (VolumeLocation::Rbd { address, .. }, Identity::Rbd { image_id }) => {
                let Ok(pool) = self.pool_mut(address) else { return Write::Hangs };
                let available = pool.writable();
                let Some(image) = pool.images.values_mut().find(|image| image.id == *image_id)
                else {
                    return Write::Done;
                };
                let more = allocated.saturating_sub(image.allocated);
                if more > 0 && available < more {
                    // What there is room for is still written.
                    image.allocated += available;
                    pool.available -= available;
                    return Write::Hangs;
                }
                image.allocated += more;
                pool.available -= more;
            }
            (VolumeLocation::File { path }, _) => {
                if self.file_identity(path).as_ref() != Some(identity) {
                    return Write::Done;
                }
                let Some(parent) = path.parent() else { return Write::Done };
                let (Some(folder), Some(file)) =
                    (self.folders.get_mut(parent), self.files.get_mut(path))
                else {
                    return Write::Done;
                };
                let more = allocated.saturating_sub(file.allocated);
                if folder.available < more {
                    file.allocated += folder.available;
                    folder.available = 0;
                    return Write::NoSpace;
                }
                file.allocated += more;
                folder.available -= more;
            }
            (VolumeLocation::Rbd { .. }, Identity::File { .. }) => {}
        }
        Write::Done
    }

    /// Gives a volume snapshots of its own.
    pub(super) fn set_snapshots(&mut self, location: &VolumeLocation, names: &[String]) {
        match location {
            VolumeLocation::Rbd { address, image } => {
                let pool = self.pool_mut(address).ok();
                if let Some(image) = pool.and_then(|pool| pool.images.get_mut(image)) {
                    image.snapshots = names.to_vec();
                }
            }
            VolumeLocation::File { path } => {
                if let Some(file) = self.files.get_mut(path) {
                    file.snapshots = names.to_vec();
                }
            }
        }
    }

    /// Whether a write there would wait for room.
    pub(super) fn is_full(&self, place: &VolumeLocation) -> bool {
        match place {
            VolumeLocation::Rbd { address, .. } => {
                self.pool(address).map_or(true, |pool| pool.writable() == 0)
            }
            VolumeLocation::File { .. } => false,
        }
    }

    /// Every running guest writes once. It is acknowledged when it is on the disk's volume, and on the copy's too
    /// once that is in step.
    pub(super) fn guests_write(&mut self) {
        let number = self.number();
        for (uuid, domain) in &self.domains {
            for disk in domain.qemu.iter().flat_map(|qemu| qemu.disks.values()) {
                self.contents.insert(disk.node.identity.to_string(), number);
                if let Some(job) = disk.job.as_ref().filter(|job| job.ready) {
                    self.contents.insert(job.destination.identity.to_string(), number);
                }
                self.acknowledged.insert(uuid.clone(), number);
            }
        }
    }

    /// A copy holds what its source holds.
    pub(super) fn mirrored(&mut self, from: &Identity, to: &Identity) {
        let content = self.content(from);
        self.contents.insert(to.to_string(), content);
    }

    /// The last write that was acknowledged to a guest.
    pub fn acknowledged(&self, guest: &DomainUuid) -> u64 {
        self.acknowledged.get(guest).copied().unwrap_or(0)
    }

    /// A running domain.
    pub(super) fn running(
        &mut self,
        uuid: &DomainUuid,
        what: &str,
    ) -> Result<&mut Domain, PortError> {
        match self.domains.get_mut(uuid) {
            None => Err(PortError::new(ErrorClass::NotFound, what, "Domain not found")),
            Some(domain) if domain.qemu.is_none() || domain.stray => {
                Err(PortError::new(ErrorClass::NotFound, what, "domain is not running"))
            }
            Some(domain) => Ok(domain),
        }
    }

    /// Lets something be reported.
    pub fn report(&mut self, domain: &DomainUuid, target: Option<&str>, kind: EventKind) {
        let target = target.and_then(|target| DiskTarget::new(target).ok());
        self.outbox.push(DomainEvent { domain: Some(domain.clone()), target, kind });
    }
}
