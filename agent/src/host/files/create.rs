//! Creating an image file: the name first and exclusively, then the content, the owner, and durability.
//!
//! An empty image is made in memory and written through the file that took the name: qemu-img itself would cut off
//! whatever has the name by then, and unlinks it when it fails.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use nix::fcntl::OFlag;

use super::{HostFiles, disk, parent};
use crate::host::luks;
use crate::host::secret_file::SecretFile;
use crate::ports::{ErrorClass, FileOwner, PortError};
use crate::spec::{Bytes, Identity, Passphrase, VolumeFormat};

/// What is written at once, and left out where it is zeros.
const CHUNK: usize = 64 << 10;
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

/// What is written into the file that took the name.
#[derive(Debug)]
enum Filling {
    /// Nothing: zeros of this size.
    Zeros(Bytes),
    /// A copy of an image in memory.
    Image(SecretFile),
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
    let filling = match content {
        Content::Plain(VolumeFormat::Qcow2) => {
            Filling::Image(empty_qcow2(files, size, operation).await?)
        }
        Content::Plain(VolumeFormat::Raw) => Filling::Zeros(size),
        Content::Encrypted(passphrase) => {
            Filling::Image(luks::new_qcow2(&files.qemu_img, size, passphrase, operation).await?)
        }
    };
    let (target, expected) = (path.to_owned(), ours.clone());
    let finished = files
        .run(folder, operation.to_owned(), move || finish(&target, &expected, &filling, owner))
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

/// Sets content and owner, and makes file and name durable; else the identity of a stranger's file.
fn finish(
    path: &Path,
    expected: &Identity,
    filling: &Filling,
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
    match filling {
        Filling::Zeros(size) => file.set_len(size.0)?,
        Filling::Image(image) => copy(image.file(), &file)?,
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

/// Writes what is not zeros in one file into another, empty one of the same length then.
fn copy(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    while at < length {
        let read = from.read_at(&mut chunk, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if chunk[..read].iter().any(|&byte| byte != 0) {
            to.write_all_at(&chunk[..read], at)?;
        }
        at += read as u64;
    }
    Ok(())
}

/// An empty qcow2 image, in memory.
async fn empty_qcow2(
    files: &HostFiles,
    size: Bytes,
    operation: &str,
) -> Result<SecretFile, PortError> {
    let image = SecretFile::new(&[])
        .map_err(|error| PortError::new(ErrorClass::Unsupported, operation, error))?;
    let mut words: Vec<OsString> =
        ["create", "-q", "-f", "qcow2", "--"].into_iter().map(OsString::from).collect();
    words.push(image.path().as_os_str().to_owned());
    words.push(size.0.to_string().into());
    files.qemu_img.run(&words, files.bound, operation).await?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stranger_who_takes_the_name_meanwhile_keeps_his_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("disk.qcow2");
        let ours = reserve(&path)?;
        std::fs::rename(&path, folder.path().join("elsewhere"))?;
        std::fs::write(&path, "somebody's")?;
        let found = finish(&path, &ours, &Filling::Zeros(Bytes(1 << 20)), None)?;
        assert_eq!(found, Err(disk::identity_of(&std::fs::metadata(&path)?)));
        assert_eq!(std::fs::read(&path)?, b"somebody's");
        Ok(())
    }

    #[test]
    fn an_image_is_copied_whole_and_its_zeros_take_no_room() -> io::Result<()> {
        let image = SecretFile::new(&[])?;
        image.file().set_len((8 << 20) + 5)?;
        image.file().write_all_at(b"head", 0)?;
        image.file().write_all_at(b"tail", (8 << 20) + 1)?;
        let copied = tempfile::NamedTempFile::new()?;
        copy(image.file(), copied.as_file())?;
        let metadata = copied.as_file().metadata()?;
        assert_eq!(metadata.len(), (8 << 20) + 5);
        assert!(metadata.blocks() * 512 <= 3 * CHUNK as u64, "{} blocks", metadata.blocks());
        let bytes = std::fs::read(copied.path())?;
        assert_eq!((&bytes[..4], &bytes[(8 << 20) + 1..]), (&b"head"[..], &b"tail"[..]));
        assert!(bytes[4..=(8 << 20)].iter().all(|&byte| byte == 0));
        Ok(())
    }
}
