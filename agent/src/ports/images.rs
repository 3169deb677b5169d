//! RBD images, by pool address and name; every removal names the identity it means.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::copies::Done;
use super::error::PortError;
use crate::spec::{Bytes, EncryptionScheme, HeaderKind, Passphrase, RbdPoolAddress};

/// One look at an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageObservation {
    /// The image's id: its identity.
    pub image_id: String,
    /// Virtual size.
    pub size: Bytes,
    /// Names of its snapshots.
    pub snapshots: Vec<String>,
    /// Clones that depend on it, `pool/image`.
    pub children: Vec<String>,
    /// Addresses of its watchers.
    pub watchers: Vec<String>,
    /// Its features allow clones.
    pub clonable: bool,
}

/// What a clone is made from: a snapshot of an image in the same cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentSnapshot {
    /// The Ceph pool of the image.
    pub pool: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// The snapshot.
    pub snapshot: String,
}

/// Space in a Ceph pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RbdPoolSpace {
    /// What can still be written, quota included; none when the user may not ask.
    pub available: Option<Bytes>,
    /// The pool's quota.
    pub quota: Option<Bytes>,
    /// What the pool holds and can still hold, the quota apart; none when the user may not ask.
    pub total: Option<Bytes>,
    /// The pool or cluster refuses writes.
    pub full: bool,
    /// The cluster warns that it soon will.
    pub near_full: bool,
}

/// RBD images. All calls are bounded in time.
#[async_trait]
pub trait Images: Send + Sync {
    /// Makes the connection to a pool ahead of use, so that later calls are quick.
    /// Errors: `Unavailable` (monitors), `PermissionDenied` (key), `NotFound` (pool or secret).
    async fn prepare(&self, pool: &RbdPoolAddress) -> Result<(), PortError>;

    /// The id of the cluster the pool is in (`fsid`).
    async fn fsid(&self, pool: &RbdPoolAddress) -> Result<String, PortError>;

    /// The id of the image of that name; none when there is none. One small read, no open.
    async fn image_id(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<Option<String>, PortError>;

    /// Opens an image read-only and describes it; none when there is none.
    async fn observe(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<Option<ImageObservation>, PortError>;

    /// Creates an image and returns its id. `Exists` when the name is taken.
    async fn create(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        size: Bytes,
    ) -> Result<String, PortError>;

    /// Creates an image with an encryption header, behind which exactly `size` is usable, and returns its id. `Exists`
    /// when the name is taken; after any other error the image may exist. Deriving the key takes seconds of processor
    /// time.
    async fn create_encrypted(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        size: Bytes,
        scheme: EncryptionScheme,
        passphrase: &Passphrase,
    ) -> Result<String, PortError>;

    /// Opens the header of an encrypted image, in use or not, and returns what is usable behind it.
    /// `WrongPassphrase`; `NoHeader` when it has none of that kind.
    async fn open_encrypted(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        header: HeaderKind,
        passphrase: &Passphrase,
    ) -> Result<Bytes, PortError>;

    /// Renames without replacing; works while the image is open. `Exists` when the new name is taken.
    async fn rename(&self, pool: &RbdPoolAddress, from: &str, to: &str) -> Result<(), PortError>;

    /// Removes the image of that name if it has that id: `Replaced` when it has another one, `Busy` while it has
    /// watchers, snapshots or children (the message says which), `NotFound` when the name is free.
    async fn remove(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
    ) -> Result<(), PortError>;

    /// Makes a snapshot of the image of that name if it has that id: `Replaced` when it has another one, `Exists` when
    /// it has such a snapshot, `NotFound` when the name is free.
    async fn create_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError>;

    /// Deletes an unprotected snapshot of the image of that name if it has that id: `Replaced` when it has another one,
    /// `Busy` while a clone depends on that very snapshot (the message names it), `NotFound` when there is no such
    /// image or snapshot. Clones of other snapshots are no obstacle.
    async fn drop_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError>;

    /// Makes an image that shares its content with a snapshot until it is written to or flattened, and returns its id;
    /// all by the user of `pool`. `Exists` when the name is taken, `NotFound` without the snapshot.
    async fn clone_image(
        &self,
        parent: &ParentSnapshot,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<String, PortError>;

    /// Copies what the image of that name still shares with its parent, if it has that id, used by a guest or not;
    /// one that shares nothing is left as it is. `done` is told how far it is, with `size` for the whole. Dropping the
    /// future ends the work soon, unless a guest's QEMU does it. `Replaced`, `NotFound` as above; the image is whole
    /// and usable whatever happens.
    async fn flatten(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        size: Bytes,
        done: &Done,
    ) -> Result<(), PortError>;

    /// Deletes a snapshot, protected or not, of the image of that name if it has that id: `Replaced` when it has
    /// another one, `Busy` while any clone depends on the image (the message names the clones), `NotFound` when there
    /// is no such image or snapshot.
    async fn remove_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError>;

    /// Moves the image of that name to the trash of its pool if it has that id, not to be purged before `keep` is over:
    /// `Replaced` when it has another one, `NotFound` when the name is free.
    async fn trash(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        keep: Duration,
    ) -> Result<(), PortError>;

    /// Until when the image of that id is kept in the trash of its pool; none when it is not there.
    async fn trashed(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
    ) -> Result<Option<SystemTime>, PortError>;

    /// Bytes the image occupies, as `rbd du` counts.
    async fn allocated(&self, pool: &RbdPoolAddress, image: &str) -> Result<Bytes, PortError>;

    /// Space left in the pool.
    async fn space(&self, pool: &RbdPoolAddress) -> Result<RbdPoolSpace, PortError>;
}
