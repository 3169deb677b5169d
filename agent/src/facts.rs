//! What was observed: one look at the world, as plain values. Gathering them is `engine::observe`'s work; nothing
//! here reads anything.

use std::path::PathBuf;
use std::time::Duration;

use rbdutils::monitors::MonitorList;

use crate::ports::{
    BlockInfo, DomainState, FileObservation, FolderAccess, FolderObservation, ImageHeader,
    ImageObservation, QemuBlockDevice, RbdPoolSpace, Snapshots, VolumeSecret,
};
use crate::spec::{Bytes, HeaderKind, Identity, Limits, Pool, RequestPools};

/// What the planner knows of this host without asking anybody.
#[derive(Debug, Clone)]
pub struct HostFacts {
    /// The host's name of the configuration.
    pub host_name: String,
    /// Every pool of the configuration.
    pub pools: Vec<Pool>,
    /// Which whole pools requests may bring along.
    pub request_pools: RequestPools,
    /// How much is done at a time, and what stays free.
    pub limits: Limits,
    /// How long a source can be restored after its move; zero: it is removed at once.
    pub source_retention: Duration,
}

/// What was seen of the world for one route.
#[derive(Debug, Clone)]
pub struct WorldFacts {
    /// The domain's state.
    pub state: DomainState,
    /// Which run of its QEMU was looked at.
    pub run: String,
    /// Whether a stored definition exists.
    pub persistent: bool,
    /// The stored definition.
    pub inactive_xml: Option<String>,
    /// Snapshots and checkpoints of the domain.
    pub snapshots: Snapshots,
    /// Sizes of the disk.
    pub block: BlockInfo,
    /// QEMU's view of the domain's disks.
    pub qemu: Vec<QemuBlockDevice>,
    /// The source volume; none when nothing has its name.
    pub source: Option<SourceFacts>,
    /// The destination.
    pub destination: DestinationFacts,
    /// The clusters of source and destination, where both are RBD images.
    pub clusters: Option<ClusterIds>,
    /// What operations that run will still write to the destination's pool.
    pub promised: Bytes,
    /// Another domain of this host that uses the source.
    pub other_user: Option<String>,
    /// What an encrypted destination needs; none of a plain one.
    pub encryption: Option<EncryptionFacts>,
    /// What the source holds behind its header, opened with the passphrase of the request.
    pub source_usable: Option<Bytes>,
}

/// What was seen for an encrypted destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionFacts {
    /// The volume its secret is for, as libvirt is told.
    pub usage: String,
    /// The secret libvirt has for it already.
    pub secret: Option<VolumeSecret>,
    /// A domain of this host that names that secret.
    pub secret_user: Option<String>,
    /// Whether QEMU takes the passphrase.
    pub passphrase_is_text: bool,
    /// The copy is made while nobody uses the volume: no block copy has to work.
    pub offline: bool,
    /// Whether a block copy into an image that librbd encrypts works here; none when that was not asked.
    pub librbd: Option<LibrbdCopy>,
}

/// Whether a block copy into an image that librbd encrypts works on this host, by trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibrbdCopy {
    /// It started.
    Works,
    /// It did not; libvirt's and QEMU's words.
    Fails(String),
}

/// What was seen besides, of a volume that nobody is to use while it is moved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OfflineFacts {
    /// Who has it open, in words.
    pub users: Vec<String>,
    /// The domain has a saved state, which names the volume itself.
    pub managed_save: bool,
    /// The files below a qcow2 file, the next one first.
    pub layers: Vec<Layer>,
    /// The encryption header of the source, opened with the passphrase of the request; none of a plain source, and
    /// without one.
    pub source_header: Option<HeaderKind>,
}

/// A file that the header of the one above names as its backing file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Its path; none when the name is in a form that is not read.
    pub path: Option<PathBuf>,
    /// The name, as written.
    pub name: String,
    /// Its format, as written in the header above.
    pub format: Option<String>,
    /// Its own header, of a qcow2 file that is there.
    pub header: Option<ImageHeader>,
}

/// The ids (`fsid`) of two clusters; equal ids are one cluster, whatever monitors were named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterIds {
    /// The source's.
    pub source: String,
    /// The destination's.
    pub destination: String,
}

/// What was seen of the source volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceFacts {
    /// An RBD image.
    Image(ImageObservation),
    /// A file.
    File(FileObservation),
}

/// What was seen of the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationFacts {
    /// An RBD pool.
    Rbd {
        /// The id of an image that has the name already.
        existing: Option<String>,
        /// Space.
        space: RbdPoolSpace,
        /// Whether the pool's libvirt secret exists; true for a pool without authentication.
        secret_exists: bool,
    },
    /// A folder.
    File {
        /// What has the name already.
        existing: Option<Identity>,
        /// The folder.
        folder: FolderObservation,
        /// Who may use files there; not looked at while the folder lies on no mount although it must.
        access: Option<FolderAccess>,
    },
}

impl SourceFacts {
    /// What makes the volume itself.
    pub fn identity(&self) -> Identity {
        match self {
            Self::Image(image) => Identity::Rbd { image_id: image.image_id.clone() },
            Self::File(file) => file.identity.clone(),
        }
    }
}

/// Two monitor lists name the same cluster, as far as can be told: an empty list may be any cluster.
pub fn may_be_one_cluster(one: Option<&MonitorList>, other: Option<&MonitorList>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.shares_a_monitor_with(other),
        _ => true,
    }
}
