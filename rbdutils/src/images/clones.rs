//! Clones: made from a snapshot, flattened until they depend on it no more.

use std::ops::ControlFlow;

use super::{ImageError, ImageId, Operation, Pool};
use crate::errno::Errno;
use crate::ffi::{ImageHandle, ImageOptions};
use crate::names::{ImageName, SnapshotName};

impl Pool {
    /// Makes an image in this pool as a clone of a snapshot, which needs no protection
    /// (clone format 2), and returns its id.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub fn clone_from(
        &self,
        (parent_pool, parent, snapshot): (&Pool, &ImageName, &SnapshotName),
        image: &ImageName,
    ) -> Result<ImageId, ImageError> {
        let fail = |source| self.fail(Operation::Clone, image, source);
        let mut options = ImageOptions::new();
        options.set_number(ImageOptions::CLONE_FORMAT, 2).map_err(fail)?;
        let parent = (&*parent_pool.handle, parent.as_str(), snapshot.as_str());
        self.handle.clone_image(parent, image.as_str(), &options).map_err(fail)?;
        self.existing_id(image)
    }

    /// Copies what the image still shares with its parent, by whoever holds its exclusive lock: a guest's QEMU does it
    /// beside its own work. An image without a parent is left as it is. What an earlier call copied is not copied again.
    ///
    /// `progress` gets done and total objects, from threads of librbd. Where it breaks the work ends with an
    /// error; what another client does is not ended by that.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::IdMismatch`], else [`ImageError::Failed`]; the image is whole and as
    /// usable as before.
    pub fn flatten(
        &self,
        name: &ImageName,
        expected: &ImageId,
        progress: &mut (dyn FnMut(u64, u64) -> ControlFlow<()> + Send),
    ) -> Result<(), ImageError> {
        let fail = |source| self.fail(Operation::Flatten, name, source);
        let image = self.open_expected(name, expected, Operation::Flatten)?;
        if !has_parent(&image).map_err(fail)? {
            return Ok(());
        }
        match image.flatten(progress) {
            Ok(()) => Ok(()),
            // Somebody else brought it to its end meanwhile.
            Err(Errno(libc::EINVAL)) if !has_parent(&image).map_err(fail)? => Ok(()),
            Err(source) => Err(fail(source)),
        }
    }

    fn open_expected(
        &self,
        name: &ImageName,
        expected: &ImageId,
        operation: Operation,
    ) -> Result<ImageHandle<'_>, ImageError> {
        let image = self.open(name, true, operation.clone())?;
        let found = image.id().map_err(|source| self.fail(operation, name, source))?;
        let found = ImageId::new(found);
        if found != *expected {
            let expected = expected.clone();
            return Err(ImageError::IdMismatch { image: self.spec(name), expected, found });
        }
        Ok(image)
    }

    /// Makes a snapshot of the image that is expected under that name.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::IdMismatch`], [`ImageError::Failed`] with class `Exists` when the
    /// snapshot exists.
    pub fn snapshot_create_expected(
        &self,
        name: &ImageName,
        expected: &ImageId,
        snapshot: &SnapshotName,
    ) -> Result<(), ImageError> {
        self.open_expected(name, expected, Operation::Snapshot)?
            .create_snapshot(snapshot.as_str())
            .map_err(|source| self.fail_snapshot(name, snapshot, source))
    }

    /// Deletes an unprotected snapshot of the image that is expected under that name, unless a clone depends on that very
    /// snapshot; clones of others are no obstacle.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::IdMismatch`], [`ImageError::HasChildren`], [`ImageError::Failed`] with
    /// class `NotFound` without the snapshot and `PermissionDenied` when the user may not look for clones; then
    /// nothing was deleted.
    pub fn snapshot_delete_childless(
        &self,
        name: &ImageName,
        expected: &ImageId,
        snapshot: &SnapshotName,
    ) -> Result<(), ImageError> {
        let fail = |source| self.fail_snapshot(name, snapshot, source);
        let image = self.open_expected(name, expected, Operation::Snapshot)?;
        let at = ImageHandle::open_snapshot(&self.handle, name.as_str(), snapshot.as_str());
        let children = at.and_then(|at| at.children()).map_err(fail)?;
        if !children.is_empty() {
            let children = children.into_iter().map(Into::into).collect();
            return Err(ImageError::HasChildren { image: self.spec(name), children });
        }
        image.remove_snapshot(snapshot.as_str()).map_err(fail)
    }
}

fn has_parent(image: &ImageHandle<'_>) -> Result<bool, Errno> {
    match image.parent() {
        Ok(_) => Ok(true),
        Err(Errno(libc::ENOENT)) => Ok(false),
        Err(errno) => Err(errno),
    }
}
