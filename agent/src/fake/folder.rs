//! Folders and files.

use std::path::Path;

use super::secret::Header;
use super::state::State;
use crate::ports::{BackingName, ErrorClass, FileOwner, ImageHeader, PortError};
use crate::spec::{Bytes, Identity, VolumeFormat};

/// A folder on a file system of its own.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The file system's device number.
    pub device: u64,
    /// Bytes that can still be written.
    pub available: u64,
    /// Its size.
    pub total: u64,
    /// Whether it lies on another mount than the root file system.
    pub mounted: bool,
    /// Owner and mode.
    pub owner: FileOwner,
    /// Whether root of this host is root there; where not (`root_squash`), no file can be given away.
    pub root_is_root: bool,
    /// Whether that shows without a file of a name.
    pub probed: bool,
    /// What every file has as owner and mode, whatever was asked for.
    pub forces_owner: Option<FileOwner>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its inode.
    pub inode: u64,
    /// The name is a symbolic link to it.
    pub link: bool,
    /// The format of its content.
    pub format: VolumeFormat,
    /// What a guest sees.
    pub size: u64,
    /// What it occupies.
    pub allocated: u64,
    /// Its owner.
    pub owner: FileOwner,
    /// Internal snapshots.
    pub snapshots: Vec<String>,
    /// The backing file its header names.
    pub backing: Option<String>,
    /// The format of that, where the header says it.
    pub backing_format: Option<String>,
    /// Its header says that its data lie in another file.
    pub data_file: bool,
    /// Its encryption header.
    pub encryption: Option<Header>,
    /// It is marked so that QEMU does not write to it.
    pub sealed: bool,
}

impl File {
    /// What its header says.
    pub fn header(&self) -> ImageHeader {
        let named = self.backing.clone();
        ImageHeader {
            virtual_size: Bytes(self.size),
            backing: named.map(|name| BackingName { name, format: self.backing_format.clone() }),
            has_data_file: self.data_file,
            is_encrypted: self.encryption.is_some(),
            is_sealed: self.sealed,
        }
    }
}

/// The owner of files nobody gave away.
pub const ROOT: FileOwner = FileOwner { uid: 0, gid: 0, mode: 0o600 };

/// What an empty qcow2 file occupies.
const QCOW2_METADATA: u64 = 192 << 10;

impl State {
    /// Device and inode of the file of that name.
    pub fn file_identity(&self, path: &Path) -> Option<Identity> {
        let inode = self.files.get(path)?.inode;
        let device = self.folders.get(path.parent()?).map_or(0, |folder| folder.device);
        Some(Identity::File { device, inode })
    }

    pub(super) fn folder_of(&self, path: &Path, what: &str) -> Result<&Folder, PortError> {
        let folder = path.parent().and_then(|parent| self.folders.get(parent));
        folder.ok_or_else(|| missing(what.to_owned()))
    }

    pub(super) fn create_file(
        &mut self,
        path: &Path,
        format: VolumeFormat,
        size: u64,
        owner: Option<FileOwner>,
    ) -> Result<Identity, PortError> {
        let what = format!("create {}", path.display());
        let device = self.folder_of(path, &what)?.device;
        if self.files.contains_key(path) {
            return Err(exists(what));
        }
        if let Some(owner) = owner {
            self.may_give(path.parent().unwrap_or(path), owner)?;
        }
        let allocated = match format {
            VolumeFormat::Qcow2 => QCOW2_METADATA,
            VolumeFormat::Raw => 0,
        };
        let forced = self.folder_of(path, &what)?.forces_owner;
        let folder = path.parent().and_then(|parent| self.folders.get_mut(parent));
        match folder.map(|folder| &mut folder.available) {
            Some(available) if *available >= allocated => *available -= allocated,
            _ => return Err(PortError::new(ErrorClass::NoSpace, what, "No space left on device")),
        }
        let inode = self.number();
        let owner = forced.or(owner).unwrap_or(ROOT);
        let file = File {
            link: false,
            inode,
            format,
            size,
            allocated,
            owner,
            snapshots: vec![],
            backing: None,
            backing_format: None,
            data_file: false,
            encryption: None,
            sealed: false,
        };
        self.files.insert(path.to_owned(), file);
        Ok(Identity::File { device, inode })
    }

    /// The server of a folder with `root_squash` lets no file be given to another user.
    pub(super) fn may_give(&self, folder: &Path, owner: FileOwner) -> Result<(), PortError> {
        let squashed = self.folders.get(folder).is_some_and(|folder| !folder.root_is_root);
        if !squashed {
            return Ok(());
        }
        let FileOwner { uid, gid, .. } = owner;
        let text = format!("the file cannot be given to {uid}:{gid}: Operation not permitted");
        let what = format!("create a file in {}", folder.display());
        Err(PortError::new(ErrorClass::PermissionDenied, what, text))
    }

    pub(super) fn rename_file(&mut self, from: &Path, to: &Path) -> Result<(), PortError> {
        let what = format!("rename {} to {}", from.display(), to.display());
        self.folder_of(to, &what)?;
        if !self.files.contains_key(from) {
            return Err(missing(what));
        }
        if self.files.contains_key(to) {
            return Err(exists(what));
        }
        let Some(file) = self.files.remove(from) else { return Err(missing(what)) };
        self.files.insert(to.to_owned(), file);
        Ok(())
    }

    /// The folder that is made lies on the file system of its parent.
    pub(super) fn trash_file(&mut self, from: &Path, to: &Path) -> Result<(), PortError> {
        let parent = to.parent().unwrap_or(to);
        let what = format!("make {}", parent.display());
        let folder = self.folder_of(parent, &what)?.clone();
        self.folders.entry(parent.to_owned()).or_insert(folder);
        self.rename_file(from, to)
    }

    /// That the file of this name is the one meant.
    fn is_meant(&self, path: &Path, meant: &Identity, what: String) -> Result<(), PortError> {
        match self.file_identity(path) {
            None => Err(missing(what)),
            Some(found) if found != *meant => {
                let text = format!("it has {found} and not {meant}");
                Err(PortError::new(ErrorClass::Replaced, what, text))
            }
            Some(_) => Ok(()),
        }
    }

    pub(super) fn seal_file(&mut self, path: &Path, meant: &Identity) -> Result<(), PortError> {
        let what = format!("seal {}", path.display());
        self.is_meant(path, meant, what.clone())?;
        match self.files.get_mut(path) {
            Some(file) if file.format == VolumeFormat::Qcow2 => file.sealed = true,
            _ => return Err(PortError::new(ErrorClass::Unsupported, what, "it is no qcow2 file")),
        }
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path, meant: &Identity) -> Result<(), PortError> {
        self.is_meant(path, meant, format!("remove {}", path.display()))?;
        let freed = self.files.remove(path).map_or(0, |file| file.allocated);
        if let Some(folder) = path.parent().and_then(|parent| self.folders.get_mut(parent)) {
            folder.available += freed;
        }
        Ok(())
    }
}

fn exists(what: String) -> PortError {
    PortError::new(ErrorClass::Exists, what, "File exists")
}

fn missing(what: String) -> PortError {
    PortError::new(ErrorClass::NotFound, what, "No such file or directory")
}
