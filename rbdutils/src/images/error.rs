//! Failures of image operations, and how the numbers of librbd become them.

use super::{ImageId, LinkedImage, Pool, Watcher};
use crate::errno::{Errno, ErrorClass};
use crate::ffi::ImageHandle;
use crate::names::{ImageName, ImageSpec, SnapshotName};

/// What was being done to an image. `Display` continues "cannot ...".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Operation {
    /// Creating it.
    #[error("create")]
    Create,
    /// Creating it as a clone.
    #[error("clone to")]
    Clone,
    /// Copying what it shares with its parent.
    #[error("flatten")]
    Flatten,
    /// Reading its id.
    #[error("read the id of")]
    ReadId,
    /// Reading its facts.
    #[error("describe")]
    Describe,
    /// Measuring what it occupies.
    #[error("measure")]
    Allocated,
    /// Giving it another name.
    #[error("rename to {to}")]
    Rename {
        /// The new name.
        to: ImageName,
    },
    /// Removing it.
    #[error("remove")]
    Remove,
    /// Moving it to the trash.
    #[error("move to the trash")]
    TrashMove,
    /// Reading or writing metadata.
    #[error("access the metadata of")]
    Metadata,
    /// Making or removing a snapshot.
    #[error("make or remove the snapshot")]
    Snapshot,
    /// Writing its encryption header.
    #[error("encrypt")]
    Encrypt,
    /// Opening its encryption header.
    #[error("open the encryption header of")]
    Decrypt,
    /// Reading its first bytes.
    #[error("read the first bytes of")]
    ReadHead,
    /// Writing its first bytes.
    #[error("write the first bytes of")]
    WriteHead,
}

/// Why an image operation failed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is no image of that name.
    #[error("the image {image} does not exist")]
    NotFound {
        /// The image.
        image: Box<ImageSpec>,
    },
    /// The name is taken.
    #[error("the image {image} exists already")]
    Exists {
        /// The image.
        image: Box<ImageSpec>,
    },
    /// Somebody has the image open, or holds a lock on it.
    #[error("the image {image} is in use by {}", list(watchers, "somebody"))]
    Busy {
        /// The image.
        image: Box<ImageSpec>,
        /// Who has it open; empty when nobody was seen afterwards.
        watchers: Vec<Watcher>,
    },
    /// The image has snapshots.
    #[error("the image {image} has the snapshots {}", list(snapshots, "that are gone by now"))]
    HasSnapshots {
        /// The image.
        image: Box<ImageSpec>,
        /// Their names.
        snapshots: Vec<String>,
    },
    /// Clones depend on the image.
    #[error("the image {image} has the clones {}", list(children, "that are gone by now"))]
    HasChildren {
        /// The image.
        image: Box<ImageSpec>,
        /// The clones.
        children: Vec<LinkedImage>,
    },
    /// Another image has the name.
    #[error("the image {image} has the id {found}, not {expected}: it was replaced")]
    IdMismatch {
        /// The image.
        image: Box<ImageSpec>,
        /// The id it should have.
        expected: ImageId,
        /// The id it has.
        found: ImageId,
    },
    /// The passphrase opens no key of the encryption header.
    #[error("the passphrase does not open the image {image}")]
    WrongPassphrase {
        /// The image.
        image: Box<ImageSpec>,
    },
    /// The image has no encryption header of the version asked for.
    #[error("the image {image} has no such encryption header")]
    NoHeader {
        /// The image.
        image: Box<ImageSpec>,
    },
    /// Anything else.
    #[error("cannot {operation} {image}")]
    Failed {
        /// What was being done.
        operation: Operation,
        /// The image or snapshot.
        image: Box<ImageSpec>,
        /// What librbd said.
        #[source]
        source: Errno,
    },
}

impl ImageError {
    /// The kind of failure.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } => ErrorClass::NotFound,
            Self::Exists { .. } => ErrorClass::Exists,
            Self::Busy { .. } | Self::HasSnapshots { .. } | Self::HasChildren { .. } => {
                ErrorClass::Busy
            }
            Self::IdMismatch { .. } => ErrorClass::Replaced,
            Self::WrongPassphrase { .. } => ErrorClass::WrongPassphrase,
            Self::NoHeader { .. } => ErrorClass::NoHeader,
            Self::Failed { source, .. } => source.class(),
        }
    }

    /// The error number, where the library gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Failed { source, .. } => Some(*source),
            _ => None,
        }
    }
}

fn list<T: ToString>(items: &[T], none: &str) -> String {
    if items.is_empty() {
        return none.to_owned();
    }
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Pool {
    pub(super) fn spec(&self, image: &ImageName) -> Box<ImageSpec> {
        let (pool, namespace) = (self.name.clone(), self.namespace.clone());
        Box::new(ImageSpec { pool, namespace, image: image.clone(), snapshot: None })
    }

    pub(super) fn fail(&self, operation: Operation, name: &ImageName, source: Errno) -> ImageError {
        let image = self.spec(name);
        match (source, &operation) {
            (Errno(libc::EEXIST), Operation::Create | Operation::Clone) => {
                ImageError::Exists { image }
            }
            // Here ENOENT speaks of the namespace, of the data pool or of the clone's parent.
            (source, Operation::Create | Operation::Clone) => {
                ImageError::Failed { operation, image, source }
            }
            (Errno(libc::ENOENT), _) => ImageError::NotFound { image },
            (source, _) => ImageError::Failed { operation, image, source },
        }
    }

    pub(super) fn fail_snapshot(
        &self,
        image: &ImageName,
        snapshot: &SnapshotName,
        source: Errno,
    ) -> ImageError {
        let image = Box::new(ImageSpec { snapshot: Some(snapshot.clone()), ..*self.spec(image) });
        ImageError::Failed { operation: Operation::Snapshot, image, source }
    }

    /// librbd says only "busy" or "not empty": a look at the image tells what is in the way.
    pub(super) fn why_not_removable(&self, name: &ImageName, source: Errno) -> ImageError {
        let facts = ImageHandle::open(&self.handle, name.as_str(), false)
            .and_then(|image| super::facts::read(&image));
        let Ok(facts) = facts else {
            return self.fail(Operation::Remove, name, source);
        };
        let image = self.spec(name);
        match facts.children {
            Some(children) if !children.is_empty() => ImageError::HasChildren { image, children },
            _ if !facts.snapshots.is_empty() => {
                let snapshots = facts.snapshots.into_iter().map(|s| s.name).collect();
                ImageError::HasSnapshots { image, snapshots }
            }
            _ => ImageError::Busy { image, watchers: facts.watchers },
        }
    }
}
