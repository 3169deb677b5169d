//! RBD images.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::host::WallClock;
use crate::fake::World;
use crate::fake::faults::Method;
use crate::fake::secret::Header;
use crate::ports::{
    Clock, Done, ErrorClass, ImageObservation, Images, ParentSnapshot, PortError, RbdPoolSpace,
};
use crate::spec::{
    Bytes, EncryptionScheme, HeaderKind, Passphrase, RbdPoolAddress, VolumeLocation,
};

#[async_trait]
impl Images for World {
    async fn prepare(&self, pool: &RbdPoolAddress) -> Result<(), PortError> {
        let what = format!("connect to pool {}", pool.pool);
        self.call(Method::PrepareRbd, what, |state| state.pool(pool).map(|_| ())).await
    }

    async fn fsid(&self, pool: &RbdPoolAddress) -> Result<String, PortError> {
        let what = format!("ask for the cluster of pool {}", pool.pool);
        self.call(Method::Fsid, what, |state| state.fsid(pool)).await
    }

    async fn image_id(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<Option<String>, PortError> {
        let what = format!("look up image {}", pool.image_path(image));
        self.call(Method::ImageId, what, |state| {
            Ok(state.pool(pool)?.images.get(image).map(|image| image.id.clone()))
        })
        .await
    }

    async fn observe(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<Option<ImageObservation>, PortError> {
        let what = format!("look at image {}", pool.image_path(image));
        self.call(Method::ObserveImage, what, |state| {
            Ok(state.pool(pool)?.images.get(image).map(|image| ImageObservation {
                image_id: image.id.clone(),
                size: Bytes(image.size),
                snapshots: image.snapshots.clone(),
                children: state.children(image),
                watchers: state.watchers(image),
                clonable: !image.no_layering,
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
        let what = format!("create image {}", pool.image_path(image));
        self.call(Method::CreateImage, what, |state| state.create_image(pool, image, size.0)).await
    }

    async fn create_encrypted(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        size: Bytes,
        scheme: EncryptionScheme,
        passphrase: &Passphrase,
    ) -> Result<String, PortError> {
        let what = format!("create encrypted image {}", pool.image_path(image));
        self.call(Method::CreateEncrypted, what, |state| {
            let id = state.create_image(pool, image, size.0)?;
            let passphrase = passphrase.expose().to_vec();
            let header = Header { kind: scheme.header(), passphrase };
            let place = VolumeLocation::Rbd { address: pool.clone(), image: image.to_owned() };
            state.set_header(&place, Some(header));
            Ok(id)
        })
        .await
    }

    async fn open_encrypted(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        header: HeaderKind,
        passphrase: &Passphrase,
    ) -> Result<Bytes, PortError> {
        let what = format!("open the header of image {}", pool.image_path(image));
        let place = VolumeLocation::Rbd { address: pool.clone(), image: image.to_owned() };
        self.call(Method::OpenEncrypted, what.clone(), |state| {
            state.open_header(&place, header, passphrase.expose(), &what)
        })
        .await
    }

    async fn rename(&self, pool: &RbdPoolAddress, from: &str, to: &str) -> Result<(), PortError> {
        let what = format!("rename image {} to {to}", pool.image_path(from));
        self.call(Method::RenameImage, what, |state| state.rename_image(pool, from, to)).await
    }

    async fn remove(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
    ) -> Result<(), PortError> {
        let what = format!("remove image {}", pool.image_path(image));
        self.call(Method::RemoveImage, what, |state| state.remove_image(pool, image, image_id))
            .await
    }

    async fn create_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let what = format!("make snapshot {}@{snapshot}", pool.image_path(image));
        self.call(Method::CreateSnapshot, what, |state| {
            state.create_snapshot(pool, image, image_id, snapshot)
        })
        .await
    }

    async fn drop_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let what = format!("delete snapshot {}@{snapshot}", pool.image_path(image));
        self.call(Method::DropSnapshot, what, |state| {
            state.drop_snapshot(pool, image, image_id, snapshot)
        })
        .await
    }

    async fn clone_image(
        &self,
        parent: &ParentSnapshot,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<String, PortError> {
        let what = format!("clone {} to {}", parent.image, pool.image_path(image));
        self.call(Method::CloneImage, what, |state| state.clone_image(parent, pool, image)).await
    }

    async fn flatten(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        size: Bytes,
        done: &Done,
    ) -> Result<(), PortError> {
        let what = format!("flatten image {}", pool.image_path(image));
        let shared =
            self.call(Method::FlattenImage, what, |state| state.shared(pool, image, image_id));
        let Some(shared) = shared.await? else { return Ok(()) };
        let at = VolumeLocation::Rbd { address: pool.clone(), image: image.to_owned() };
        self.pass(size.0, None, done, |share| {
            let bytes = shared as f64 * share;
            Ok::<_, PortError>(self.with(|state| state.flatten_share(&at, image_id, bytes)))
        })
        .await?;
        self.point("before the image is flat".to_owned()).await;
        self.with(|state| state.flattened(pool, image_id));
        self.point("after the image is flat".to_owned()).await;
        Ok(())
    }

    async fn remove_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let what = format!("delete snapshot {}@{snapshot}", pool.image_path(image));
        self.call(Method::RemoveSnapshot, what, |state| {
            state.remove_snapshot(pool, image, image_id, snapshot)
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
        let what = format!("move image {} to the trash", pool.image_path(image));
        let until = WallClock.now() + keep;
        self.call(Method::TrashImage, what, |state| {
            state.keep_in_trash(pool, image, image_id, until)
        })
        .await
    }

    async fn trashed(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
    ) -> Result<Option<SystemTime>, PortError> {
        let what = format!("look for image {} in the trash", pool.image_path(image));
        self.call(Method::TrashedImage, what, |state| {
            Ok(state.pool(pool)?.trash.get(image_id).map(|(_, until)| *until))
        })
        .await
    }

    async fn allocated(&self, pool: &RbdPoolAddress, image: &str) -> Result<Bytes, PortError> {
        let what = format!("count image {}", pool.image_path(image));
        self.call(Method::AllocatedImage, what.clone(), |state| {
            match state.pool(pool)?.images.get(image) {
                Some(image) => Ok(Bytes(image.allocated)),
                None => {
                    Err(PortError::new(ErrorClass::NotFound, what, "No such file or directory"))
                }
            }
        })
        .await
    }

    async fn space(&self, pool: &RbdPoolAddress) -> Result<RbdPoolSpace, PortError> {
        let what = format!("ask for the space of pool {}", pool.pool);
        self.call(Method::RbdSpace, what, |state| {
            let pool = state.pool(pool)?;
            Ok(RbdPoolSpace {
                available: Some(Bytes(pool.writable())),
                quota: pool.quota.map(Bytes),
                total: Some(Bytes(pool.available + pool.used())),
                full: pool.full || pool.writable() == 0,
                near_full: pool.near_full,
            })
        })
        .await
    }
}
