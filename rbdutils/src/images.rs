//! RBD images of one pool and namespace: create, look at, rename, remove.
//!
//! An image is what its id says, not its name: a name can be given to another image at any time.
//! All calls block and are bounded by the connection's timeouts. What is reported is in `facts` and
//! `space`, snapshots, clones and the trash have files of their own, failures are in `error`. No policy: nothing here decides whether an image may go.

mod clones;
mod encryption;
mod error;
mod facts;
mod snapshots;
mod space;
mod trash;

use std::sync::Arc;

pub use encryption::LuksVersion;
pub use error::{ImageError, Operation};
pub use facts::{Features, ImageFacts, ImageId, LinkedImage, Parent, Snapshot, Watcher};
pub use space::{PoolFlags, PoolSpace};
pub use trash::TrashEntry;

use crate::cluster::ClusterError;
use crate::errno::Errno;
use crate::ffi::{ClusterHandle, ImageHandle, ImageOptions, PoolHandle};
use crate::names::{ImageName, NamespaceName, PoolName};

/// A pool of a connected cluster, in one namespace. Keeps the connection alive; clones share it, and
/// any thread may use it.
#[derive(Clone, Debug)]
pub struct Pool {
    handle: Arc<PoolHandle>,
    cluster: Arc<ClusterHandle>,
    name: PoolName,
    namespace: Option<NamespaceName>,
}

/// What a new image shall be like; librbd's defaults where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// The pool for the data, where it is another one than that of the image (erasure coding).
    pub data_pool: Option<PoolName>,
    /// The features. librbd's default is layering, exclusive-lock, object-map, fast-diff and
    /// deep-flatten.
    pub features: Option<Features>,
    /// The size of the objects: a power of two from 4 KiB to 32 MiB. librbd's default is 4 MiB.
    pub object_size_bytes: Option<u64>,
}

impl Pool {
    pub(crate) fn new(
        handle: PoolHandle,
        cluster: Arc<ClusterHandle>,
        name: PoolName,
        namespace: Option<NamespaceName>,
    ) -> Self {
        Self { handle: Arc::new(handle), cluster, name, namespace }
    }

    /// The pool's name.
    pub fn name(&self) -> &PoolName {
        &self.name
    }

    /// The namespace; `None` is the default namespace.
    pub fn namespace(&self) -> Option<&NamespaceName> {
        self.namespace.as_ref()
    }

    /// Another pool of the same cluster, over the same connection.
    ///
    /// # Errors
    /// [`ClusterError::Pool`].
    pub fn sibling(
        &self,
        name: &PoolName,
        namespace: Option<&NamespaceName>,
    ) -> Result<Self, ClusterError> {
        let text = namespace.map(NamespaceName::as_str);
        let handle = PoolHandle::open(Arc::clone(&self.cluster), name.as_str(), text)
            .map_err(|source| ClusterError::Pool { pool: name.clone(), source })?;
        Ok(Self::new(handle, Arc::clone(&self.cluster), name.clone(), namespace.cloned()))
    }

    /// The id of the cluster the pool is in. Equal ids are the proof that two lists of monitors lead to one cluster.
    ///
    /// # Errors
    /// [`ClusterError::Fsid`].
    pub fn fsid(&self) -> Result<String, ClusterError> {
        self.cluster.fsid().map_err(ClusterError::Fsid)
    }

    /// Space, quota and full flags of the pool, in two requests to the monitors.
    ///
    /// The numbers are some seconds old: OSDs report them in intervals. The capability
    /// `mon 'profile rbd'` suffices.
    ///
    /// # Errors
    /// [`ClusterError`]. Flags the user may not read are `None`, no error.
    pub fn space(&self) -> Result<PoolSpace, ClusterError> {
        space::read(&self.cluster, &self.name)
    }

    /// Creates an image with librbd's defaults and returns its id.
    ///
    /// # Errors
    /// [`ImageError::Exists`] when the name is taken; [`ImageError::Failed`] with class `NoSpace` in
    /// a full pool, `NotFound` without the namespace. After any other class the image may exist.
    pub fn create(&self, image: &ImageName, size_bytes: u64) -> Result<ImageId, ImageError> {
        self.create_with(image, size_bytes, &CreateOptions::default())
    }

    /// Creates an image and returns its id.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub fn create_with(
        &self,
        image: &ImageName,
        size_bytes: u64,
        options: &CreateOptions,
    ) -> Result<ImageId, ImageError> {
        let fail = |source| self.fail(Operation::Create, image, source);
        let options = native_options(options).map_err(fail)?;
        self.handle.create(image.as_str(), size_bytes, &options).map_err(fail)?;
        self.existing_id(image)
    }

    /// The id of the image of that name, `None` when the name is free. One read of one object, the
    /// image is not opened.
    ///
    /// Images of the old format 1 have no id and are not seen here.
    ///
    /// # Errors
    /// [`ImageError::Failed`].
    pub fn image_id(&self, image: &ImageName) -> Result<Option<ImageId>, ImageError> {
        let object = format!("rbd_id.{image}");
        match self.handle.read(&object, facts::ID_OBJECT_BYTES) {
            Ok(content) => ImageId::decode(&content).map(Some).ok_or_else(|| {
                // The object was made but not filled: a creation is on its way, or died there.
                self.fail(Operation::ReadId, image, Errno(libc::ENODATA))
            }),
            Err(Errno(libc::ENOENT)) => Ok(None),
            Err(source) => Err(self.fail(Operation::ReadId, image, source)),
        }
    }

    /// Opens the image for reading and describes it. No watch is set, a writer is not disturbed.
    ///
    /// # Errors
    /// [`ImageError::NotFound`] without such an image, else [`ImageError::Failed`].
    pub fn describe(&self, image: &ImageName) -> Result<ImageFacts, ImageError> {
        let fail = |source| self.fail(Operation::Describe, image, source);
        facts::read(&self.open(image, false, Operation::Describe)?).map_err(fail)
    }

    /// Bytes of the objects the image occupies, those of its parent and snapshots left out.
    ///
    /// Quick with the feature fast-diff; without it every object is looked for.
    ///
    /// # Errors
    /// As [`Pool::describe`].
    pub fn allocated_bytes(&self, image: &ImageName) -> Result<u64, ImageError> {
        let fail = |source| self.fail(Operation::Allocated, image, source);
        let open = self.open(image, false, Operation::Allocated)?;
        let (size_bytes, _) = open.sizes().map_err(fail)?;
        open.allocated(size_bytes).map_err(fail)
    }

    /// Gives the image another name. Works while it is open: who has it open goes on by its id.
    ///
    /// RBD makes the new name with an exclusive create, so an image of that name is never replaced.
    /// But librbd reports success also when that create lost against another client, with nothing
    /// renamed; so the new name is read back, and only the image's own id there counts as success.
    /// RBD removes the old name last: after a crash in between both names lead to the same id.
    ///
    /// # Errors
    /// [`ImageError::Exists`] when the new name is taken, [`ImageError::NotFound`] without the old.
    /// After [`ImageError::Failed`] look at the ids of both names.
    pub fn rename_no_replace(&self, from: &ImageName, to: &ImageName) -> Result<(), ImageError> {
        let exists = || ImageError::Exists { image: self.spec(to) };
        let id = self.existing_id(from)?;
        match self.handle.rename(from.as_str(), to.as_str()) {
            Ok(()) if self.image_id(to)?.as_ref() == Some(&id) => Ok(()),
            Ok(()) | Err(Errno(libc::EEXIST)) => Err(exists()),
            Err(source) => Err(self.fail(Operation::Rename { to: to.clone() }, from, source)),
        }
    }

    /// Removes the image if it still is the expected one.
    ///
    /// librbd removes by name; between the look at the id and the removal another client could swap
    /// the images. A name that nobody else uses closes that gap: rename first.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::IdMismatch`], [`ImageError::HasChildren`],
    /// [`ImageError::HasSnapshots`], [`ImageError::Busy`] with the watchers; then nothing was
    /// removed. After [`ImageError::Failed`] a part may be gone: repeat the removal.
    pub fn remove(&self, image: &ImageName, expected: &ImageId) -> Result<(), ImageError> {
        self.remove_with_progress(image, expected, &mut |_, _| {})
    }

    /// [`Pool::remove`], telling how many of how many objects are done, from a thread of librbd.
    ///
    /// # Errors
    /// As [`Pool::remove`].
    pub fn remove_with_progress(
        &self,
        image: &ImageName,
        expected: &ImageId,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<(), ImageError> {
        let found = self.existing_id(image)?;
        if found != *expected {
            let expected = expected.clone();
            return Err(ImageError::IdMismatch { image: self.spec(image), expected, found });
        }
        self.handle.remove(image.as_str(), progress).map_err(|source| match source {
            Errno(libc::EBUSY | libc::ENOTEMPTY) => self.why_not_removable(image, source),
            source => self.fail(Operation::Remove, image, source),
        })
    }

    /// Names of all images of the pool. One whose name is none this crate takes is left out.
    ///
    /// # Errors
    /// [`ClusterError::List`].
    pub fn list(&self) -> Result<Vec<ImageName>, ClusterError> {
        let failed = |source| ClusterError::List(self.name.clone(), source);
        let names = self.handle.list().map_err(failed)?;
        Ok(names.iter().filter_map(|name| ImageName::new(name).ok()).collect())
    }

    /// A metadata value of the image, `None` when the key is not set.
    ///
    /// # Errors
    /// As [`Pool::describe`].
    pub fn get_metadata(&self, image: &ImageName, key: &str) -> Result<Option<String>, ImageError> {
        match self.open(image, false, Operation::Metadata)?.metadata(key) {
            Ok(value) => Ok(Some(value)),
            Err(Errno(libc::ENOENT)) => Ok(None),
            Err(source) => Err(self.fail(Operation::Metadata, image, source)),
        }
    }

    /// Sets a metadata value of the image. Opens it for writing, which others see as a watcher.
    ///
    /// # Errors
    /// As [`Pool::describe`].
    pub fn set_metadata(
        &self,
        image: &ImageName,
        key: &str,
        value: &str,
    ) -> Result<(), ImageError> {
        self.open(image, true, Operation::Metadata)?
            .set_metadata(key, value)
            .map_err(|source| self.fail(Operation::Metadata, image, source))
    }

    fn existing_id(&self, image: &ImageName) -> Result<ImageId, ImageError> {
        self.image_id(image)?.ok_or_else(|| ImageError::NotFound { image: self.spec(image) })
    }

    fn open(
        &self,
        image: &ImageName,
        writable: bool,
        operation: Operation,
    ) -> Result<ImageHandle<'_>, ImageError> {
        ImageHandle::open(&self.handle, image.as_str(), writable)
            .map_err(|source| self.fail(operation, image, source))
    }
}

fn native_options(options: &CreateOptions) -> Result<ImageOptions, Errno> {
    let mut native = ImageOptions::new();
    if let Some(features) = options.features {
        native.set_number(ImageOptions::FEATURES, features.bits())?;
    }
    if let Some(size) = options.object_size_bytes {
        if !size.is_power_of_two() {
            return Err(Errno(libc::EINVAL));
        }
        native.set_number(ImageOptions::ORDER, u64::from(size.trailing_zeros()))?;
    }
    if let Some(pool) = &options.data_pool {
        native.set_text(ImageOptions::DATA_POOL, pool.as_str())?;
    }
    Ok(native)
}
