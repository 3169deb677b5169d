//! Images that librbd encrypts, and the raw bytes of headers that others encrypt with.
//!
//! A header takes room of the image: what a client sees is smaller by it. No passphrase is kept here.

use super::{ImageError, ImageId, Operation, Pool};
use crate::errno::Errno;
use crate::names::ImageName;

/// What librbd sets aside for the header of a new image of LUKS version 2; checked against the image that was made.
const LUKS2_HEADER_BYTES: u64 = 16 << 20;

/// The header formats librbd knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LuksVersion {
    /// LUKS version 1.
    Luks1,
    /// LUKS version 2.
    Luks2,
}

impl Pool {
    /// Makes an image with a header of LUKS version 2, in which a client with the passphrase sees exactly
    /// `usable_bytes`, and returns its id. Deriving the key takes seconds of processor time.
    ///
    /// # Errors
    /// As [`Pool::create`]; [`ImageError::Failed`] when librbd cannot format, or the size cannot be reached. After
    /// any error but [`ImageError::Exists`] the image may exist, with a header or without.
    pub fn create_encrypted(
        &self,
        image: &ImageName,
        usable_bytes: u64,
        passphrase: &[u8],
    ) -> Result<ImageId, ImageError> {
        let fail = |source| self.fail(Operation::Encrypt, image, source);
        let mut raw = usable_bytes + LUKS2_HEADER_BYTES;
        let id = self.create(image, raw)?;
        self.open(image, true, Operation::Encrypt)?
            .encryption_format(LuksVersion::Luks2, passphrase)
            .map_err(fail)?;
        // Another librbd may set another size aside: then once more with what it did set aside.
        let usable = self.usable_bytes(image, LuksVersion::Luks2, passphrase)?;
        if usable != usable_bytes {
            raw = (raw + usable_bytes)
                .checked_sub(usable)
                .ok_or_else(|| fail(Errno(libc::ERANGE)))?;
            self.open(image, true, Operation::Encrypt)?.resize(raw).map_err(fail)?;
            if self.usable_bytes(image, LuksVersion::Luks2, passphrase)? != usable_bytes {
                return Err(fail(Errno(libc::ERANGE)));
            }
        }
        Ok(id)
    }

    /// What a client with the passphrase sees of an image that librbd encrypts. Opens it for reading only.
    ///
    /// # Errors
    /// [`ImageError::WrongPassphrase`], [`ImageError::NoHeader`] without a header of that version, else as
    /// [`Pool::describe`].
    pub fn usable_bytes(
        &self,
        image: &ImageName,
        version: LuksVersion,
        passphrase: &[u8],
    ) -> Result<u64, ImageError> {
        let open = self.open(image, false, Operation::Decrypt)?;
        open.encryption_load(version, passphrase).map_err(|source| match source {
            Errno(libc::EPERM | libc::EACCES) => {
                ImageError::WrongPassphrase { image: self.spec(image) }
            }
            Errno(libc::EINVAL | libc::ENOENT) => ImageError::NoHeader { image: self.spec(image) },
            source => self.fail(Operation::Decrypt, image, source),
        })?;
        open.effective_size().map_err(|source| self.fail(Operation::Decrypt, image, source))
    }

    /// Up to `length` bytes from the beginning of an image, and its whole size. What the image is said to be
    /// encrypted with makes no difference: the bytes are those that are stored.
    ///
    /// # Errors
    /// As [`Pool::describe`].
    pub fn read_head(
        &self,
        image: &ImageName,
        length: usize,
    ) -> Result<(Vec<u8>, u64), ImageError> {
        let fail = |source| self.fail(Operation::ReadHead, image, source);
        let open = self.open(image, false, Operation::ReadHead)?;
        let (size, _) = open.sizes().map_err(fail)?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(length)];
        let read = open.read(0, &mut bytes).map_err(fail)?;
        bytes.truncate(read);
        Ok((bytes, size))
    }

    /// Writes the first bytes of an image, for a header that was made elsewhere.
    ///
    /// # Errors
    /// As [`Pool::describe`].
    pub fn write_head(&self, image: &ImageName, bytes: &[u8]) -> Result<(), ImageError> {
        self.open(image, true, Operation::WriteHead)?
            .write(0, bytes)
            .map_err(|source| self.fail(Operation::WriteHead, image, source))
    }
}
