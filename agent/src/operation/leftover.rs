//! What an operation could not remove: a record of its own, so that the finished operation never changes.

use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::spec::{Bytes, DomainUuid, Identity, LeftoverId, OperationId, VolumeLocation};

/// What is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftoverKind {
    /// The source of a move.
    Source,
    /// The destination of a move that was rolled back, under its final name.
    Destination,
    /// The same, under the operation's private name.
    Private,
    /// A source in the trash folder of its pool, removed when its time is over.
    Trash,
    /// The libvirt secret of a volume that is gone.
    Secret,
    /// The operation's own snapshot of its source, with what may still depend on it.
    Snapshot,
}

/// A volume that shares data with a snapshot of its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependentVolume {
    /// Where it is.
    pub location: VolumeLocation,
    /// What makes it itself.
    pub identity: Identity,
    /// Its size.
    pub size: Bytes,
}

/// One volume, or the secret of one, that is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Its id.
    pub id: LeftoverId,
    /// The operation that left it.
    pub operation: OperationId,
    /// The domain that operation was about.
    pub domain: DomainUuid,
    /// What it is.
    pub kind: LeftoverKind,
    /// Where it is, as far as it is known.
    pub location: VolumeLocation,
    /// The name that is only this volume's: it may have it already, and is removed under it alone.
    pub own_name: VolumeLocation,
    /// The name under which the domain's QEMU opened it, where it may still have it open unseen: a file that was
    /// renamed keeps its old name there. (An image that is open has a watcher, and is not removed.)
    pub opened_as: Option<VolumeLocation>,
    /// What makes it itself; none for whatever has the operation's private name.
    pub identity: Option<Identity>,
    /// Snapshots that were to be deleted with it.
    pub snapshots: Vec<String>,
    /// What is to be made independent of it first.
    #[serde(default)]
    pub dependent: Option<DependentVolume>,
    /// The libvirt secret that goes once the volume is gone.
    #[serde(default)]
    pub secret: Option<String>,
    /// The folder that must be a mount: where nothing is mounted a free name proves nothing.
    #[serde(default)]
    pub mount: Option<PathBuf>,
    /// Not removed before.
    #[serde(default)]
    pub due: Option<SystemTime>,
    /// Since when it is left.
    pub since: SystemTime,
    /// Why it could not be removed, at the last try.
    pub reason: String,
    /// How many times its removal was tried again.
    pub tries: u32,
    /// When it was last tried again.
    pub last_try: Option<SystemTime>,
}

impl LeftoverKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Source, Self::Destination, Self::Private, Self::Trash, Self::Secret, Self::Snapshot];

    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Private => "private",
            Self::Trash => "trash",
            Self::Secret => "secret",
            Self::Snapshot => "snapshot",
        }
    }
}

impl Leftover {
    /// Whether what has the name `at` now is this volume.
    ///
    /// A network file system may get another device number when it is mounted again; under a name that is only this
    /// volume's the inode decides.
    pub fn is(&self, at: &VolumeLocation, found: &Identity) -> bool {
        match (&self.identity, found) {
            (None, _) => *at == self.own_name,
            (Some(Identity::File { inode, .. }), Identity::File { inode: found, .. })
                if *at == self.own_name =>
            {
                inode == found
            }
            (Some(meant), found) => meant == found,
        }
    }

    /// The names it can have.
    pub fn names(&self) -> Vec<VolumeLocation> {
        let mut names = vec![self.location.clone()];
        if self.own_name != self.location {
            names.push(self.own_name.clone());
        }
        names
    }
}
