//! The images port over librbd, through rbdutils.
//!
//! Clones are in `clones`, connections in `clusters`, keys in `key_file` and with libvirt. Nothing is decided here.

mod clones;
mod clusters;
mod error;
mod key_file;

pub(in crate::host) use key_file::read as read_key_file;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rbdutils::images::{Features, ImageId, LuksVersion, Pool};
use rbdutils::names::{ImageName, SnapshotName};

use self::clusters::Clusters;
pub(super) use self::clusters::Pace;
pub(super) use self::error::Failure;
use super::keys::KeySource;
use super::luks;
use super::qemu_img::QemuImg;
use crate::ports::{
    Done, ErrorClass, ImageObservation, Images, ParentSnapshot, PortError, RbdPoolSpace,
};
use crate::spec::{Bytes, EncryptionScheme, HeaderKind, Passphrase, RbdPoolAddress};

/// Read to warm up a connection; nothing ever has this name.
const NOBODY: &str = ".volferry-warm-up";

/// How long calls to a cluster are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageTimeouts {
    /// Calls of a few requests, connecting included.
    pub quick: Duration,
    /// Calls that touch every object of an image: removing and measuring.
    pub slow: Duration,
    /// Calls that read and write all of an image. Each request of theirs is bounded by `quick`.
    pub long: Duration,
    /// A connection that is not used for so long is closed.
    pub idle: Duration,
}

impl Default for ImageTimeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let long = seconds(30 * 24 * 3600);
        Self { quick: seconds(10), slow: seconds(600), long, idle: seconds(120) }
    }
}

/// The RBD images this host can reach.
#[derive(Debug)]
pub struct HostImages {
    clusters: Clusters,
    timeouts: ImageTimeouts,
    qemu_img: QemuImg,
}

impl HostImages {
    /// Images reached with keys from `keys` (for pools with a secret) or from key files. Within a tokio runtime.
    pub fn new(keys: Arc<dyn KeySource>, timeouts: ImageTimeouts) -> Self {
        let clusters = Clusters::new(keys, timeouts.quick, timeouts.idle);
        Self { clusters, timeouts, qemu_img: QemuImg::new("qemu-img") }
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        pool: &RbdPoolAddress,
        operation: String,
        pace: Pace,
        call: impl FnOnce(&Pool) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, PortError> {
        let bound = match pace {
            Pace::Quick => self.timeouts.quick,
            Pace::Slow => self.timeouts.slow,
            Pace::Long => self.timeouts.long,
        };
        self.clusters.run(pool, &operation, pace, bound, call).await
    }
}

fn name(image: &str, operation: &str) -> Result<ImageName, PortError> {
    ImageName::new(image).map_err(|error| PortError::new(ErrorClass::Other, operation, error))
}

#[async_trait]
impl Images for HostImages {
    async fn prepare(&self, pool: &RbdPoolAddress) -> Result<(), PortError> {
        let operation = format!("connect to Ceph pool {}", pool.pool);
        let nobody = name(NOBODY, &operation)?;
        self.run(pool, operation, Pace::Quick, move |pool| Ok(pool.image_id(&nobody).map(drop)?))
            .await
    }

    async fn fsid(&self, pool: &RbdPoolAddress) -> Result<String, PortError> {
        let operation = format!("ask for the cluster of Ceph pool {}", pool.pool);
        self.run(pool, operation, Pace::Quick, |pool| Ok(pool.fsid()?)).await
    }

    async fn image_id(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<Option<String>, PortError> {
        let operation = format!("look at image {}", pool.image_path(image));
        let image = name(image, &operation)?;
        self.run(pool, operation, Pace::Quick, move |pool| {
            Ok(pool.image_id(&image)?.map(|id| id.as_str().to_owned()))
        })
        .await
    }

    async fn observe(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<Option<ImageObservation>, PortError> {
        let operation = format!("look into image {}", pool.image_path(image));
        let image = name(image, &operation)?;
        self.run(pool, operation, Pace::Quick, move |pool| {
            let facts = match pool.describe(&image) {
                Ok(facts) => facts,
                Err(error) if error.class() == rbdutils::errno::ErrorClass::NotFound => {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            Ok(Some(ImageObservation {
                image_id: facts.id.as_str().to_owned(),
                size: Bytes(facts.size_bytes),
                snapshots: facts.snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
                // A user who may not look for clones is told of none; a removal is refused by librbd all the same.
                children: facts
                    .children
                    .unwrap_or_default()
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                watchers: facts.watchers.into_iter().map(|watcher| watcher.address).collect(),
                clonable: facts.features.contains(Features::LAYERING),
            }))
        })
        .await
    }

    async fn create(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        size: Bytes,
    ) -> Result<String, PortError> {
        let operation = format!("create image {} ({} bytes)", pool.image_path(image), size.0);
        let image = name(image, &operation)?;
        self.run(pool, operation, Pace::Quick, move |pool| {
            Ok(pool.create(&image, size.0)?.as_str().to_owned())
        })
        .await
    }

    async fn create_encrypted(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        size: Bytes,
        scheme: EncryptionScheme,
        passphrase: &Passphrase,
    ) -> Result<String, PortError> {
        let path = pool.image_path(image);
        let operation = format!("create image {path} ({scheme}, {} bytes)", size.0);
        let name = name(image, &operation)?;
        match scheme {
            EncryptionScheme::Luks2Librbd => {
                let passphrase = passphrase.clone();
                self.run(pool, operation, Pace::Slow, move |pool| {
                    let id = pool.create_encrypted(&name, size.0, passphrase.expose())?;
                    Ok(id.as_str().to_owned())
                })
                .await
            }
            EncryptionScheme::Luks1Qemu => {
                let header = luks::new_header(&self.qemu_img, size, passphrase, &operation).await?;
                self.run(pool, operation, Pace::Quick, move |pool| {
                    let id = pool.create(&name, size.0 + header.len() as u64)?;
                    pool.write_head(&name, &header)?;
                    Ok(id.as_str().to_owned())
                })
                .await
            }
        }
    }

    async fn open_encrypted(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        header: HeaderKind,
        passphrase: &Passphrase,
    ) -> Result<Bytes, PortError> {
        let operation = format!("open the encryption header of image {}", pool.image_path(image));
        let name = name(image, &operation)?;
        let version = match header {
            HeaderKind::LibrbdLuks1 => LuksVersion::Luks1,
            HeaderKind::LibrbdLuks2 => LuksVersion::Luks2,
            HeaderKind::QemuLuks1 => {
                let read = self.run(pool, operation.clone(), Pace::Quick, move |pool| {
                    Ok(pool.read_head(&name, luks::LONGEST_HEADER)?)
                });
                let (head, length) = read.await?;
                return luks::open_header(&self.qemu_img, &head, length, passphrase, &operation)
                    .await;
            }
        };
        let passphrase = passphrase.clone();
        self.run(pool, operation, Pace::Slow, move |pool| {
            Ok(Bytes(pool.usable_bytes(&name, version, passphrase.expose())?))
        })
        .await
    }

    async fn rename(&self, pool: &RbdPoolAddress, from: &str, to: &str) -> Result<(), PortError> {
        let operation = format!("rename image {} to {to}", pool.image_path(from));
        let (from, to) = (name(from, &operation)?, name(to, &operation)?);
        self.run(pool, operation, Pace::Quick, move |pool| Ok(pool.rename_no_replace(&from, &to)?))
            .await
    }

    async fn remove(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
    ) -> Result<(), PortError> {
        let operation = format!("remove image {}", pool.image_path(image));
        let (image, expected) = (name(image, &operation)?, ImageId::new(image_id));
        self.run(pool, operation, Pace::Slow, move |pool| Ok(pool.remove(&image, &expected)?)).await
    }

    async fn create_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        self.make_snapshot(pool, image, image_id, snapshot).await
    }

    async fn drop_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        self.delete_childless(pool, image, image_id, snapshot).await
    }

    async fn clone_image(
        &self,
        parent: &ParentSnapshot,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<String, PortError> {
        self.make_clone(parent, pool, image).await
    }

    async fn flatten(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        size: Bytes,
        done: &Done,
    ) -> Result<(), PortError> {
        self.make_independent(pool, image, image_id, size, done).await
    }

    async fn remove_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let operation = format!("delete snapshot {}@{snapshot}", pool.image_path(image));
        let (image, expected) = (name(image, &operation)?, ImageId::new(image_id));
        let snapshot = SnapshotName::new(snapshot)
            .map_err(|error| PortError::new(ErrorClass::Other, &operation, error))?;
        self.run(pool, operation, Pace::Slow, move |pool| {
            Ok(pool.snapshot_delete(&image, &expected, &snapshot)?)
        })
        .await
    }

    async fn trash(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        keep: Duration,
    ) -> Result<(), PortError> {
        let operation = format!("move image {} to the trash", pool.image_path(image));
        let (image, expected) = (name(image, &operation)?, ImageId::new(image_id));
        self.run(pool, operation, Pace::Quick, move |pool| {
            Ok(pool.trash_move_expected(&image, &expected, keep)?)
        })
        .await
    }

    async fn trashed(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
    ) -> Result<Option<SystemTime>, PortError> {
        let operation = format!("look for image {} in the trash", pool.image_path(image));
        let (image, id) = (name(image, &operation)?, ImageId::new(image_id));
        self.run(pool, operation, Pace::Quick, move |pool| {
            Ok(pool.trash_entry(&image, &id)?.map(|entry| entry.deferred_until))
        })
        .await
    }

    async fn allocated(&self, pool: &RbdPoolAddress, image: &str) -> Result<Bytes, PortError> {
        let operation = format!("measure image {}", pool.image_path(image));
        let image = name(image, &operation)?;
        self.run(pool, operation, Pace::Slow, move |pool| Ok(Bytes(pool.allocated_bytes(&image)?)))
            .await
    }

    async fn space(&self, pool: &RbdPoolAddress) -> Result<RbdPoolSpace, PortError> {
        let operation = format!("ask for the space of Ceph pool {}", pool.pool);
        self.run(pool, operation, Pace::Quick, move |pool| match pool.space() {
            Ok(space) => Ok(RbdPoolSpace {
                available: Some(Bytes(space.writable_bytes())),
                quota: space.quota_max_bytes.map(Bytes),
                total: Some(Bytes(space.max_avail_bytes.saturating_add(space.used_bytes))),
                full: space.flags.is_some_and(|flags| flags.full),
                near_full: space.flags.is_some_and(|flags| flags.nearfull),
            }),
            Err(error) if error.class() == rbdutils::errno::ErrorClass::PermissionDenied => {
                Ok(RbdPoolSpace::default())
            }
            Err(error) => Err(error.into()),
        })
        .await
    }
}
