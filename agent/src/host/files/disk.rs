//! What is done to files and folders, with plain blocking calls. No bound and no port is here.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt, FileExt as _, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, renameat2};
use nix::sys::stat::fstatat;
use nix::sys::statvfs::statvfs;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::host::{mounts, qcow2};
use crate::ports::{FileObservation, FileOwner, FolderObservation};
use crate::spec::{Bytes, Identity, VolumeFormat};

/// Size of the units `st_blocks` counts, whatever the file system's own are.
const STAT_BLOCK: u64 = 512;

/// Device and inode behind a path, as whoever opens it would get them.
pub(in crate::host) fn identity(path: &Path) -> io::Result<Option<Identity>> {
    Ok(look(path)?.as_ref().map(identity_of))
}

pub(super) fn identity_of(metadata: &Metadata) -> Identity {
    Identity::File { device: metadata.dev(), inode: metadata.ino() }
}

fn look(path: &Path) -> io::Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the header of a qcow2 file names as its backing file.
pub(super) fn backing_file(path: &Path) -> io::Result<Option<String>> {
    match look(path)? {
        Some(metadata) if metadata.is_file() => {}
        _ => return Ok(None),
    }
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    match file {
        Ok(mut file) => qcow2::backing_file(&mut file),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Everything of interest about an image file.
pub(super) fn observe(path: &Path, format: VolumeFormat) -> io::Result<Option<FileObservation>> {
    let Some(metadata) = look(path)? else { return Ok(None) };
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::Unsupported, "it is no regular file"));
    }
    let (internal_snapshots, header) = match format {
        VolumeFormat::Raw => (Vec::new(), None),
        VolumeFormat::Qcow2 => {
            // Should the name have gone to a pipe meanwhile, opening must not wait for its writer.
            let file =
                OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
            let mut file = BufReader::new(file);
            // What has no such header is judged by whoever knows what it was said to be.
            match qcow2::header(&mut file)? {
                Some(header) => (qcow2::snapshot_names(&mut file)?, Some(header)),
                None => (Vec::new(), None),
            }
        }
    };
    Ok(Some(FileObservation {
        link: std::fs::symlink_metadata(path)?.is_symlink(),
        identity: identity_of(&metadata),
        length: Bytes(metadata.len()),
        allocated: Bytes(metadata.blocks() * STAT_BLOCK),
        owner: FileOwner {
            uid: metadata.uid(),
            gid: metadata.gid(),
            mode: metadata.mode() & 0o7777,
        },
        internal_snapshots,
        header,
    }))
}

/// Space of the file system a folder is on.
pub(super) fn folder(path: &Path) -> io::Result<FolderObservation> {
    if !std::fs::metadata(path)?.is_dir() {
        return Err(io::Error::new(ErrorKind::NotADirectory, "it is no folder"));
    }
    let space = statvfs(path)?;
    let unit = space.fragment_size();
    Ok(FolderObservation {
        available: Bytes(space.blocks_available() * unit),
        total: Bytes(space.blocks() * unit),
        mounted: mounts::is_mounted(&path.canonicalize()?)?,
    })
}

/// Gives a file another name, which must be free; both names are durable afterwards.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        Ok(()) => {}
        // NFS and older cluster file systems do not know the flag. A second name is refused as well where one
        // exists; a crash in between leaves both names on the same inode.
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)?;
        }
        Err(errno) => return Err(errno.into()),
    }
    for path in [from, to] {
        sync_folder_of(path)?;
    }
    Ok(())
}

/// Renames into a folder that is made when it is missing, and must be a folder itself, no link to one.
pub(super) fn trash(from: &Path, to: &Path) -> io::Result<()> {
    let folder = to.parent().ok_or(ErrorKind::InvalidInput)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => sync_folder_of(folder)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if !std::fs::symlink_metadata(folder)?.is_dir() {
                let text = format!("{} is no folder", folder.display());
                return Err(io::Error::new(ErrorKind::NotADirectory, text));
            }
        }
        Err(error) => return Err(error),
    }
    rename(from, to)
}

/// Removes the file of that name if it has that identity; else the identity it has.
///
/// Between the look and the removal somebody could put another file there. The agent therefore removes only under
/// names that are its own (`.volferry-..`, `NAME.moved-..`).
pub(super) fn remove(path: &Path, expected: &Identity) -> io::Result<Result<(), Identity>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let folder = File::open(folder)?;
    // The name itself: a symbolic link to the file is not the file.
    let found = fstatat(&folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let found = Identity::File { device: found.st_dev, inode: found.st_ino };
    if found != *expected {
        return Ok(Err(found));
    }
    unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir)?;
    sync(&folder)?;
    Ok(Ok(()))
}

/// Marks a qcow2 file of that identity so that QEMU does not open it for writing; else the identity it has.
pub(super) fn seal(path: &Path, expected: &Identity) -> io::Result<Result<(), Identity>> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let found = identity_of(&metadata);
    if found != *expected {
        return Ok(Err(found));
    }
    if metadata.nlink() > 1 {
        let text = "the file has another name too, by which somebody may use it";
        return Err(io::Error::new(ErrorKind::Unsupported, text));
    }
    let mut header = Vec::with_capacity(qcow2::LONG_HEADER);
    (&file).take(qcow2::LONG_HEADER as u64).read_to_end(&mut header)?;
    let Some((at, features)) = qcow2::sealed_features(&header) else {
        let text =
            "only qcow2 files of version 3 can be marked so that QEMU does not write to them";
        return Err(io::Error::new(ErrorKind::Unsupported, text));
    };
    file.write_all_at(&features, at)?;
    file.sync_all()?;
    Ok(Ok(()))
}

/// Makes the names in the folder of `path` durable.
pub(in crate::host) fn sync_folder_of(path: &Path) -> io::Result<()> {
    sync(&File::open(path.parent().unwrap_or(Path::new(OsStr::new("/"))))?)
}

fn sync(folder: &File) -> io::Result<()> {
    match folder.sync_all() {
        // Some network file systems have no such call for folders.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}
