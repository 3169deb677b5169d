//! Storage pools as the configuration names them.

use std::path::PathBuf;

use rbdutils::monitors::{MonitorError, MonitorList};
use serde::{Deserialize, Serialize};

use super::names::PoolName;
use super::volume::RbdPoolAddress;

/// One storage pool.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The name requests use.
    pub name: PoolName,
    /// Where it is.
    pub kind: PoolKind,
    /// Operations at a time into or out of it, where it has a limit of its own.
    pub operations: Option<usize>,
}

/// A whole pool in a request, under the name the request gives it. It has no place for a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum RequestPool {
    /// A Ceph pool.
    Rbd {
        /// Where and by whom.
        address: RbdPoolAddress,
    },
    /// A folder.
    Folder {
        /// What kind of mount it is.
        kind: FilePoolKind,
        /// Its path.
        path: PathBuf,
        /// The host a local one belongs to; none: the one that is asked.
        host: Option<String>,
        /// Whether one on the root file system is refused.
        must_be_mounted: bool,
    },
}

/// Which whole pools requests may bring along: none, unless the configuration says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestPools {
    /// Folders below these.
    pub paths: Vec<PathBuf>,
    /// Ceph pools, with the libvirt secrets of this host.
    pub rbd: bool,
}

/// The two families of pools.
#[derive(Debug, Clone)]
pub enum PoolKind {
    /// Images of a Ceph pool.
    Rbd(RbdPool),
    /// Files in a folder.
    File(FilePool),
}

/// A Ceph pool (and namespace) with what is needed to reach it.
#[derive(Debug, Clone)]
pub struct RbdPool {
    /// The monitors, parsed.
    pub monitors: MonitorList,
    /// The address that is journaled and handed to the ports.
    pub address: RbdPoolAddress,
}

/// A folder of image files.
#[derive(Debug, Clone)]
pub struct FilePool {
    /// What kind of mount the folder is.
    pub kind: FilePoolKind,
    /// Absolute path of the folder.
    pub path: PathBuf,
    /// The host a local pool belongs to.
    pub host: Option<String>,
    /// Whether a folder that lies on the root file system is refused: its mount is missing then, and what is written
    /// there fills the host and disappears under the mount when it comes back.
    pub must_be_mounted: bool,
}

/// How a file pool is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilePoolKind {
    /// An NFS mount.
    Nfs,
    /// A cluster file system mounted on every host.
    SharedMountPoint,
    /// A folder of one host.
    Local,
}

impl FilePoolKind {
    /// Whether such a pool is a mount of its own, unless the configuration says otherwise.
    pub const fn is_mounted(self) -> bool {
        matches!(self, Self::Nfs | Self::SharedMountPoint)
    }
}

impl RequestPool {
    /// The pool under its name on `host`.
    ///
    /// Errors: monitors that are not understood, which no pool of [`From<Pool>`] has.
    pub fn to_pool(&self, name: &PoolName, host: &str) -> Result<Pool, MonitorError> {
        let kind = match self.clone() {
            Self::Rbd { address } => {
                let monitors = MonitorList::parse(&address.monitors, 0)?;
                PoolKind::Rbd(RbdPool { monitors, address })
            }
            Self::Folder { kind, path, host: of, must_be_mounted } => {
                let own = (kind == FilePoolKind::Local).then(|| host.to_owned());
                PoolKind::File(FilePool { kind, path, host: of.or(own), must_be_mounted })
            }
        };
        Ok(Pool { name: name.clone(), kind, operations: None })
    }
}

impl From<Pool> for RequestPool {
    fn from(pool: Pool) -> Self {
        match pool.kind {
            PoolKind::Rbd(RbdPool { address, .. }) => Self::Rbd { address },
            PoolKind::File(FilePool { kind, path, host, must_be_mounted }) => {
                Self::Folder { kind, path, host, must_be_mounted }
            }
        }
    }
}

impl Pool {
    /// The pool's type as the configuration spells it.
    pub fn type_name(&self) -> &'static str {
        match &self.kind {
            PoolKind::Rbd(_) => "rbd",
            PoolKind::File(pool) => match pool.kind {
                FilePoolKind::Nfs => "nfs",
                FilePoolKind::SharedMountPoint => "shared-mount-point",
                FilePoolKind::Local => "local",
            },
        }
    }
}
