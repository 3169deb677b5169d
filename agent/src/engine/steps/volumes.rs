//! What the steps do to volumes of either kind: look, create, rename, remove; each names the identity it means.

use std::time::Duration;

use crate::engine::backoff::Backoff;
use crate::engine::context::Context;
use crate::ports::{Done, ErrorClass, FileOwner, PortError, Ports};
use crate::spec::{
    Bytes, EncryptionScheme, HeaderKind, Identity, OperationId, Passphrase, VolumeFormat,
    VolumeLocation,
};

/// Whether the same call may succeed later.
pub fn may_pass(error: &PortError) -> bool {
    matches!(error.class, ErrorClass::Busy | ErrorClass::NoAnswer | ErrorClass::Unavailable)
}

/// The identity of whatever has the name now.
pub async fn identity(
    ports: &Ports,
    volume: &VolumeLocation,
) -> Result<Option<Identity>, PortError> {
    match volume {
        VolumeLocation::Rbd { address, image } => Ok(ports
            .images
            .image_id(address, image)
            .await?
            .map(|image_id| Identity::Rbd { image_id })),
        VolumeLocation::File { path } => ports.files.identity(path).await,
    }
}

/// Creates a volume and returns its identity. `Exists` when the name is taken.
pub async fn create(
    ports: &Ports,
    volume: &VolumeLocation,
    format: VolumeFormat,
    size: Bytes,
    owner: Option<FileOwner>,
) -> Result<Identity, PortError> {
    match volume {
        VolumeLocation::Rbd { address, image } => {
            let image_id = ports.images.create(address, image, size).await?;
            Ok(Identity::Rbd { image_id })
        }
        VolumeLocation::File { path } => ports.files.create(path, format, size, owner).await,
    }
}

/// Creates an encrypted volume and returns its identity. `Exists` when the name is taken.
pub async fn create_encrypted(
    ports: &Ports,
    volume: &VolumeLocation,
    size: Bytes,
    owner: Option<FileOwner>,
    scheme: EncryptionScheme,
    passphrase: &Passphrase,
) -> Result<Identity, PortError> {
    match (volume, scheme) {
        (VolumeLocation::Rbd { address, image }, scheme) => {
            let created =
                ports.images.create_encrypted(address, image, size, scheme, passphrase).await;
            created.map(|image_id| Identity::Rbd { image_id })
        }
        (VolumeLocation::File { path }, EncryptionScheme::Luks1Qemu) => {
            ports.files.create_encrypted(path, size, owner, passphrase).await
        }
        (VolumeLocation::File { .. }, EncryptionScheme::Luks2Librbd) => Err(PortError::new(
            ErrorClass::Unsupported,
            format!("create {volume}"),
            "librbd encrypts no files",
        )),
    }
}

/// Opens the encryption header of a volume and returns what is usable behind it.
pub async fn open_encrypted(
    ports: &Ports,
    volume: &VolumeLocation,
    format: VolumeFormat,
    header: HeaderKind,
    passphrase: &Passphrase,
) -> Result<Bytes, PortError> {
    match volume {
        VolumeLocation::Rbd { address, image } => {
            ports.images.open_encrypted(address, image, header, passphrase).await
        }
        VolumeLocation::File { path } => ports.files.open_encrypted(path, format, passphrase).await,
    }
}

/// How many times a mark is tried to be taken away.
const UNMARKING: u32 = 3;

/// Takes the mark of an operation away from its destination. What stays says too much and harms nothing.
pub async fn unmark(context: &Context, volume: &VolumeLocation, operation: &OperationId) {
    let mut backoff = Backoff::unbounded(&context.tuning);
    for left in (0..UNMARKING).rev() {
        match context.ports.marks.clear(volume, operation).await {
            Ok(()) => return,
            Err(error) if left == 0 => {
                tracing::warn!(%operation, %error, "the mark of a destination stays");
            }
            Err(_) => {
                backoff.wait().await;
            }
        }
    }
}

/// Renames without replacing, inside one pool.
pub async fn rename(
    ports: &Ports,
    from: &VolumeLocation,
    to: &VolumeLocation,
) -> Result<(), PortError> {
    match (from, to) {
        (VolumeLocation::Rbd { address, image: from }, VolumeLocation::Rbd { image: to, .. }) => {
            ports.images.rename(address, from, to).await
        }
        (VolumeLocation::File { path: from }, VolumeLocation::File { path: to }) => {
            ports.files.rename(from, to).await
        }
        (from, to) => Err(PortError::new(
            ErrorClass::Unsupported,
            format!("rename {from} to {to}"),
            "a volume keeps its kind when it is renamed",
        )),
    }
}

/// Removes the volume of that name if it is the one meant.
pub async fn remove(
    ports: &Ports,
    volume: &VolumeLocation,
    identity: &Identity,
) -> Result<(), PortError> {
    match (volume, identity) {
        (VolumeLocation::Rbd { address, image }, Identity::Rbd { image_id }) => {
            ports.images.remove(address, image, image_id).await
        }
        (VolumeLocation::File { path }, Identity::File { .. }) => {
            ports.files.remove(path, identity).await
        }
        (volume, identity) => Err(PortError::new(
            ErrorClass::Replaced,
            format!("remove {volume}"),
            format!("it cannot have {identity}"),
        )),
    }
}

/// Makes QEMU refuse to start from the volume of that name if it is the one meant. `Unsupported` where nothing does.
pub async fn seal(
    ports: &Ports,
    volume: &VolumeLocation,
    identity: &Identity,
) -> Result<(), PortError> {
    match volume {
        VolumeLocation::File { path } => ports.files.seal(path, identity).await,
        VolumeLocation::Rbd { .. } => Err(PortError::new(
            ErrorClass::Unsupported,
            format!("seal {volume}"),
            "an RBD image has no such mark",
        )),
    }
}

/// Deletes a snapshot of the RBD image of that name if it is the one meant.
pub async fn remove_snapshot(
    ports: &Ports,
    volume: &VolumeLocation,
    identity: &Identity,
    snapshot: &str,
) -> Result<(), PortError> {
    match (volume, identity) {
        (VolumeLocation::Rbd { address, image }, Identity::Rbd { image_id }) => {
            ports.images.remove_snapshot(address, image, image_id, snapshot).await
        }
        (volume, _) => Err(PortError::new(
            ErrorClass::Unsupported,
            format!("delete snapshot {snapshot} of {volume}"),
            "only RBD images have snapshots of their own",
        )),
    }
}

/// Deletes a snapshot that only an operation can have made, of the image meant, under whichever of `names` it has. One that
/// is not there is deleted; so is that of an image that is gone.
pub async fn drop_snapshot(
    ports: &Ports,
    names: &[VolumeLocation],
    meant: &Identity,
    snapshot: &str,
) -> Result<(), PortError> {
    for name in names {
        if identity(ports, name).await?.as_ref() != Some(meant) {
            continue;
        }
        let (VolumeLocation::Rbd { address, image }, Identity::Rbd { image_id }) = (name, meant)
        else {
            continue;
        };
        return match ports.images.drop_snapshot(address, image, image_id, snapshot).await {
            Err(error) if error.class == ErrorClass::NotFound => Ok(()),
            dropped => dropped,
        };
    }
    Ok(())
}

/// Copies what the image still shares with its parent, if it is the one meant. `done` is told how much of `size` is done.
pub async fn flatten(
    ports: &Ports,
    volume: &VolumeLocation,
    identity: &Identity,
    size: Bytes,
    done: &Done,
) -> Result<(), PortError> {
    match (volume, identity) {
        (VolumeLocation::Rbd { address, image }, Identity::Rbd { image_id }) => {
            ports.images.flatten(address, image, image_id, size, done).await
        }
        (volume, _) => Err(PortError::new(
            ErrorClass::Unsupported,
            format!("flatten {volume}"),
            "only RBD images have parents of their own",
        )),
    }
}

/// Puts the volume of that name into the trash if it is the one meant, to be kept for a time.
pub async fn trash(
    ports: &Ports,
    volume: &VolumeLocation,
    identity: &Identity,
    to: &VolumeLocation,
    keep: Duration,
) -> Result<(), PortError> {
    match (volume, identity, to) {
        (VolumeLocation::Rbd { address, image }, Identity::Rbd { image_id }, _) => {
            ports.images.trash(address, image, image_id, keep).await
        }
        // Nobody else can have the retired name; a restored one has the identity all the same.
        (VolumeLocation::File { path }, _, VolumeLocation::File { path: to }) => {
            ports.files.trash(path, to).await
        }
        (volume, identity, _) => Err(PortError::new(
            ErrorClass::Replaced,
            format!("put {volume} into the trash"),
            format!("it cannot have {identity}"),
        )),
    }
}

/// What a volume occupies; none when nothing has the name.
pub async fn allocated(ports: &Ports, volume: &VolumeLocation) -> Result<Option<Bytes>, PortError> {
    match volume {
        VolumeLocation::Rbd { address, image } => {
            ports.images.allocated(address, image).await.map(Some)
        }
        VolumeLocation::File { path } => {
            let file = ports.files.observe(path, VolumeFormat::Raw).await?;
            Ok(file.map(|file| file.allocated))
        }
    }
}
