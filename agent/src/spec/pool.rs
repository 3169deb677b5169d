//! Storage pools as the configuration names them.

use std::path::PathBuf;

use rbdutils::monitors::MonitorList;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
