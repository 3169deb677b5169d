//! Image files, by path; every removal names the identity it means.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::error::PortError;
use crate::spec::{Bytes, Identity, Passphrase, VolumeFormat};

/// Owner, group and permission bits of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permission bits, `0o600`.
    pub mode: u32,
}

/// One look at a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileObservation {
    /// The name is a symbolic link; everything else is of the file it leads to.
    pub link: bool,
    /// Device and inode.
    pub identity: Identity,
    /// Length in bytes.
    pub length: Bytes,
    /// Bytes allocated.
    pub allocated: Bytes,
    /// Owner and mode.
    pub owner: FileOwner,
    /// Internal snapshots of a qcow2 file.
    pub internal_snapshots: Vec<String>,
    /// What the header of a qcow2 file says; none of a raw file, and where there is no such header.
    pub header: Option<ImageHeader>,
}

/// What a qcow2 header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageHeader {
    /// What a guest sees.
    pub virtual_size: Bytes,
    /// The backing file it names.
    pub backing: Option<BackingName>,
    /// Its data lie in another file.
    pub has_data_file: bool,
    /// Its data are encrypted.
    pub is_encrypted: bool,
    /// QEMU does not open it for writing: it is marked as damaged, or was sealed.
    pub is_sealed: bool,
}

/// A backing file as a header names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingName {
    /// The name as it is written there.
    pub name: String,
    /// Its format as it is written there; none leaves it to guessing.
    pub format: Option<String>,
}

/// One look at a pool's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderObservation {
    /// Free for an unprivileged user.
    pub available: Bytes,
    /// Size of the file system.
    pub total: Bytes,
    /// The folder lies on another mount than the root file system. Bind mounts count.
    pub mounted: bool,
}

/// Who may pass a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderModes {
    /// The folder.
    pub path: PathBuf,
    /// Owner and mode.
    pub owner: FileOwner,
    /// It has an access control list, so that owner and mode do not tell all.
    pub has_acl: bool,
}

/// What decides whether QEMU's user can open a file of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FolderAccess {
    /// The folder and everything above it, from the root down, symbolic links resolved.
    pub folders: Vec<FolderModes>,
    /// Every group of the user, its first one included.
    pub groups: Vec<u32>,
    /// The security module that confines QEMU beyond owner and mode, in words; none where none is seen.
    pub confinement: Option<&'static str>,
}

/// Image files on this host. Every call is bounded in time, for a path may hang.
#[async_trait]
pub trait Files: Send + Sync {
    /// Device, inode and allocation; none when nothing has that name. Opens nothing.
    async fn identity(&self, path: &Path) -> Result<Option<Identity>, PortError>;

    /// The same with owner and, for `format` qcow2, the internal snapshots.
    async fn observe(
        &self,
        path: &Path,
        format: VolumeFormat,
    ) -> Result<Option<FileObservation>, PortError>;

    /// What the header of a qcow2 file names as its backing file, as it is written there; none when it names none, is
    /// no qcow2 file, or nothing has the name.
    async fn backing_file(&self, path: &Path) -> Result<Option<String>, PortError>;

    /// Who has the file open or locked, in words: processes of this host but this one and its children, and locks of
    /// QEMU, which those of other hosts show too where the file system carries them. Empty when nothing has the name.
    async fn users(&self, path: &Path) -> Result<Vec<String>, PortError>;

    /// The folder of a pool. `NotFound` when it is not there.
    async fn folder(&self, path: &Path) -> Result<FolderObservation, PortError>;

    /// What decides whether `user` can open a file of the folder. Tries, without leaving anything, whether this
    /// process may create files there and give them to the user: `PermissionDenied` when it may not.
    async fn access(
        &self,
        folder: &Path,
        user: Option<FileOwner>,
    ) -> Result<FolderAccess, PortError>;

    /// Creates an image file that guests see with exactly `size`, owned as said, and returns its identity once it
    /// is durable. `Exists` when the name is taken.
    async fn create(
        &self,
        path: &Path,
        format: VolumeFormat,
        size: Bytes,
        owner: Option<FileOwner>,
    ) -> Result<Identity, PortError>;

    /// The same for a qcow2 file that QEMU encrypts inside (LUKS version 1). Deriving the key takes seconds of processor
    /// time.
    async fn create_encrypted(
        &self,
        path: &Path,
        size: Bytes,
        owner: Option<FileOwner>,
        passphrase: &Passphrase,
    ) -> Result<Identity, PortError>;

    /// Opens the header of a file that QEMU encrypts, in use or not, and returns what is usable behind it.
    /// `WrongPassphrase`; `NoHeader` when it is not encrypted like that.
    async fn open_encrypted(
        &self,
        path: &Path,
        format: VolumeFormat,
        passphrase: &Passphrase,
    ) -> Result<Bytes, PortError>;

    /// Renames without replacing (`RENAME_NOREPLACE`). `Exists` when the new name is taken.
    async fn rename(&self, from: &Path, to: &Path) -> Result<(), PortError>;

    /// The same into a folder that is made when it is missing, for the agent alone.
    async fn trash(&self, from: &Path, to: &Path) -> Result<(), PortError>;

    /// Removes the file of that name if it has that identity: `Replaced` when it has another one, `NotFound` when
    /// the name is free.
    async fn remove(&self, path: &Path, identity: &Identity) -> Result<(), PortError>;

    /// Makes QEMU refuse to open a qcow2 file for writing, by the mark its format has for a damaged image
    /// (`incompatible_features` bit 1). Nothing else of the file changes: it can still be read, and `qemu-img check -r all`
    /// takes the mark away. Sealing twice is sealing once.
    ///
    /// `Replaced` and `NotFound` as above; `Unsupported` for what has no such mark (raw files, qcow2 of version 2), and for
    /// a file that has another name (hard links): a name can be taken away alone, a mark cannot.
    async fn seal(&self, path: &Path, identity: &Identity) -> Result<(), PortError>;
}
