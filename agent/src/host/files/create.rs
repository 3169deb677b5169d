//! Creating an image file: the name first and exclusively, then the content, the owner, and durability.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use nix::fcntl::OFlag;

use super::{HostFiles, disk, parent};
use crate::host::luks;
use crate::ports::{ErrorClass, FileOwner, PortError};
use crate::spec::{Bytes, Identity, Passphrase, VolumeFormat};

/// Until the owner is set, nobody else may look into a new image.
const PRIVATE_MODE: u32 = 0o600;

/// What is to be in a new file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'a> {
    /// An empty image.
    Plain(VolumeFormat),
    /// An empty qcow2 image that is encrypted inside.
    Encrypted(&'a Passphrase),
}

impl std::fmt::Display for Content<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(format) => write!(f, "{format}"),
            Self::Encrypted(_) => f.write_str("encrypted qcow2"),
        }
    }
}

/// Creates an image file. After an error other than `NoAnswer` nothing of it is left.
pub(super) async fn create(
    files: &HostFiles,
    path: &Path,
    content: Content<'_>,
    size: Bytes,
    owner: Option<FileOwner>,
) -> Result<Identity, PortError> {
    let operation = format!("create {} ({content}, {} bytes)", path.display(), size.0);
    let folder = parent(path, &operation)?;
    let target = path.to_owned();
    let ours = files.run(folder, operation.clone(), move || reserve(&target)).await?;
    let made = fill(files, folder, path, content, size, owner, &operation, &ours).await;
    match &made {
        Err(error) if error.class != ErrorClass::NoAnswer => {
            let (target, ours) = (path.to_owned(), ours);
            let undone = files.run(folder, operation, move || disk::remove(&target, &ours)).await;
            if let Err(error) = undone {
                tracing::warn!(%error, path = %path.display(), "cannot remove a half-made file");
            }
        }
        _ => {}
    }
    made
}

#[expect(clippy::too_many_arguments, reason = "one private step of `create`")]
async fn fill(
    files: &HostFiles,
    folder: &Path,
    path: &Path,
    content: Content<'_>,
    size: Bytes,
    owner: Option<FileOwner>,
    operation: &str,
    ours: &Identity,
) -> Result<Identity, PortError> {
    match content {
        Content::Plain(VolumeFormat::Qcow2) => qemu_img(files, path, size, operation).await?,
        Content::Plain(VolumeFormat::Raw) => {}
        Content::Encrypted(passphrase) => {
            luks::create_qcow2(&files.qemu_img, path, size, passphrase, operation).await?;
        }
    }
    let (target, expected) = (path.to_owned(), ours.clone());
    let raw_size = matches!(content, Content::Plain(VolumeFormat::Raw)).then_some(size);
    let finished = files
        .run(folder, operation.to_owned(), move || finish(&target, &expected, raw_size, owner))
        .await?;
    finished.map_err(|found| {
        let text = format!("the new file has {found}, not {ours}: it was replaced");
        PortError::new(ErrorClass::Replaced, operation, text)
    })
}

/// Takes the name; whatever has it already is left alone.
fn reserve(path: &Path) -> io::Result<Identity> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE_MODE)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    Ok(disk::identity_of(&file.metadata()?))
}

/// Sets size (of a raw image) and owner, and makes file and name durable; else the identity of a stranger's file.
fn finish(
    path: &Path,
    expected: &Identity,
    raw_size: Option<Bytes>,
    owner: Option<FileOwner>,
) -> io::Result<Result<Identity, Identity>> {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    let found = disk::identity_of(&file.metadata()?);
    if found != *expected {
        return Ok(Err(found));
    }
    if let Some(size) = raw_size {
        file.set_len(size.0)?;
    }
    if let Some(owner) = owner {
        give_to(&file, owner)?;
    }
    file.sync_all()?;
    disk::sync_folder_of(path)?;
    Ok(Ok(found))
}

pub(super) fn give_to(file: &File, owner: FileOwner) -> io::Result<()> {
    let now = file.metadata()?;
    // A server that maps root to nobody refuses even what would change nothing.
    if (now.uid(), now.gid()) != (owner.uid, owner.gid) {
        fchown(file, Some(owner.uid), Some(owner.gid)).map_err(|error| {
            let FileOwner { uid, gid, .. } = owner;
            let text = format!("the file cannot be given to {uid}:{gid} (root_squash?): {error}");
            io::Error::new(error.kind(), text)
        })?;
    }
    if now.mode() & 0o7777 != owner.mode {
        file.set_permissions(Permissions::from_mode(owner.mode))?;
    }
    Ok(())
}

/// Writes an empty qcow2 image into the reserved file. An absolute path is never taken for a protocol or `json:`.
async fn qemu_img(
    files: &HostFiles,
    path: &Path,
    size: Bytes,
    operation: &str,
) -> Result<(), PortError> {
    let mut words: Vec<OsString> =
        ["create", "-q", "-f", "qcow2", "--"].into_iter().map(OsString::from).collect();
    words.push(path.as_os_str().to_owned());
    words.push(size.0.to_string().into());
    files.qemu_img.run(&words, files.bound, operation).await.map(drop)
}
