//! Snapshots of an image: made, protected, deleted.

use super::{ImageError, ImageId, Operation, Pool};
use crate::errno::Errno;
use crate::names::{ImageName, SnapshotName};

impl Pool {
    /// Makes a snapshot. A writer that holds the exclusive lock makes it on request.
    ///
    /// # Errors
    /// [`ImageError::NotFound`] without the image, [`ImageError::Failed`] with class `Exists` when
    /// the snapshot exists.
    pub fn snapshot_create(&self, image: &ImageName, s: &SnapshotName) -> Result<(), ImageError> {
        let fail = |source| self.fail_snapshot(image, s, source);
        self.open(image, true, Operation::Snapshot)?.create_snapshot(s.as_str()).map_err(fail)
    }

    /// Removes a snapshot that is not protected. One with clones of format 2 is only hidden by this:
    /// [`Pool::snapshot_delete`] looks for clones first.
    ///
    /// # Errors
    /// [`ImageError::Failed`] with class `NotFound` without it, `Busy` while it is protected.
    pub fn snapshot_remove(&self, image: &ImageName, s: &SnapshotName) -> Result<(), ImageError> {
        let fail = |source| self.fail_snapshot(image, s, source);
        self.open(image, true, Operation::Snapshot)?.remove_snapshot(s.as_str()).map_err(fail)
    }

    /// Protects a snapshot from removal, as clones of format 1 need it.
    ///
    /// # Errors
    /// [`ImageError::Failed`] with class `NotFound` without it, `Busy` when it is protected already.
    pub fn snapshot_protect(&self, image: &ImageName, s: &SnapshotName) -> Result<(), ImageError> {
        let fail = |source| self.fail_snapshot(image, s, source);
        self.open(image, true, Operation::Snapshot)?.protect_snapshot(s.as_str()).map_err(fail)
    }

    /// Deletes a snapshot, protected or not, of the image that is expected under that name, unless any
    /// clone depends on the image.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::IdMismatch`], [`ImageError::HasChildren`],
    /// [`ImageError::Failed`] with class `NotFound` without the snapshot and `PermissionDenied` when
    /// the user may not look for clones; then nothing was deleted.
    pub fn snapshot_delete(
        &self,
        name: &ImageName,
        expected: &ImageId,
        snapshot: &SnapshotName,
    ) -> Result<(), ImageError> {
        let fail = |source| self.fail_snapshot(name, snapshot, source);
        let image = self.open(name, true, Operation::Snapshot)?;
        let found = ImageId::new(image.id().map_err(fail)?);
        if found != *expected {
            let expected = expected.clone();
            return Err(ImageError::IdMismatch { image: self.spec(name), expected, found });
        }
        let children = image.children().map_err(fail)?;
        if !children.is_empty() {
            let children = children.into_iter().map(Into::into).collect();
            return Err(ImageError::HasChildren { image: self.spec(name), children });
        }
        if image.is_protected(snapshot.as_str()).map_err(fail)? {
            match image.unprotect_snapshot(snapshot.as_str()) {
                // Somebody else took the protection away meanwhile.
                Ok(()) | Err(Errno(libc::EINVAL)) => {}
                Err(source) => return Err(fail(source)),
            }
        }
        image.remove_snapshot(snapshot.as_str()).map_err(fail)
    }
}
