//! The trash of a pool: images without a name, kept for a time.

use std::time::{Duration, SystemTime};

use super::{ImageError, ImageId, Operation, Pool};
use crate::errno::Errno;
use crate::names::ImageName;

/// An image in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrashEntry {
    /// The name it had.
    pub name: String,
    /// Until then it can be restored for certain; later it may be purged.
    pub deferred_until: SystemTime,
}

impl Pool {
    /// Moves the image to the trash of its pool, out of sight and with its name freed, even while it
    /// is open. It is not purged before `deferment` is over.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], else [`ImageError::Failed`].
    pub fn trash_move(&self, image: &ImageName, deferment: Duration) -> Result<(), ImageError> {
        self.handle
            .trash_move(image.as_str(), deferment.as_secs())
            .map_err(|source| self.fail(Operation::TrashMove, image, source))
    }

    /// [`Pool::trash_move`], if the image of that name still is the expected one.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::IdMismatch`], else [`ImageError::Failed`].
    pub fn trash_move_expected(
        &self,
        image: &ImageName,
        expected: &ImageId,
        deferment: Duration,
    ) -> Result<(), ImageError> {
        let found = self.existing_id(image)?;
        if found != *expected {
            let expected = expected.clone();
            return Err(ImageError::IdMismatch { image: self.spec(image), expected, found });
        }
        self.trash_move(image, deferment)
    }

    /// The image of that id in the trash; `None` when it is not there. `name` only names it in errors.
    ///
    /// # Errors
    /// [`ImageError::Failed`].
    pub fn trash_entry(
        &self,
        name: &ImageName,
        id: &ImageId,
    ) -> Result<Option<TrashEntry>, ImageError> {
        match self.handle.trash_entry(id.as_str()) {
            Ok((name, seconds)) => Ok(Some(TrashEntry {
                name,
                deferred_until: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            })),
            Err(Errno(libc::ENOENT)) => Ok(None),
            Err(source) => Err(self.fail(Operation::TrashMove, name, source)),
        }
    }
}
