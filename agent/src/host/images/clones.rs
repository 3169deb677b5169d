//! Clones by librbd: snapshots for them, the clones, and their flattening, which lasts as long as the data are many.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rbdutils::images::{ImageId, Pool};
use rbdutils::names::{ImageName, NamespaceName, PoolName, SnapshotName};

use super::{Failure, HostImages, Pace, name};
use crate::ports::{Done, ErrorClass, ParentSnapshot, PortError};
use crate::spec::{Bytes, RbdPoolAddress};

/// Ends the work of a thread when whoever waits for it is gone.
struct EndWhenDropped(Arc<AtomicBool>);

impl Drop for EndWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A snapshot of an image with an identity, by names that librbd takes.
struct Named {
    image: ImageName,
    id: ImageId,
    snapshot: SnapshotName,
}

impl Named {
    fn new(image: &str, id: &str, snapshot: &str, operation: &str) -> Result<Self, PortError> {
        Ok(Self {
            image: name(image, operation)?,
            id: ImageId::new(id),
            snapshot: snapshot_name(snapshot, operation)?,
        })
    }
}

fn snapshot_name(snapshot: &str, operation: &str) -> Result<SnapshotName, PortError> {
    SnapshotName::new(snapshot).map_err(|error| PortError::new(ErrorClass::Other, operation, error))
}

impl HostImages {
    pub(super) async fn make_snapshot(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let operation = format!("make snapshot {}@{snapshot}", pool.image_path(image));
        let named = Named::new(image, image_id, snapshot, &operation)?;
        self.run(pool, operation, Pace::Quick, move |pool| {
            Ok(pool.snapshot_create_expected(&named.image, &named.id, &named.snapshot)?)
        })
        .await
    }

    pub(super) async fn delete_childless(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let operation = format!("delete snapshot {}@{snapshot}", pool.image_path(image));
        let named = Named::new(image, image_id, snapshot, &operation)?;
        self.run(pool, operation, Pace::Slow, move |pool| {
            Ok(pool.snapshot_delete_childless(&named.image, &named.id, &named.snapshot)?)
        })
        .await
    }

    pub(super) async fn make_clone(
        &self,
        parent: &ParentSnapshot,
        pool: &RbdPoolAddress,
        image: &str,
    ) -> Result<String, PortError> {
        let operation = format!(
            "clone {}/{}@{} to {}",
            parent.pool,
            parent.image,
            parent.snapshot,
            pool.image_path(image)
        );
        let other = |text: String| PortError::new(ErrorClass::Other, &operation, text);
        let image = name(image, &operation)?;
        let from = name(&parent.image, &operation)?;
        let snapshot = snapshot_name(&parent.snapshot, &operation)?;
        let from_pool = PoolName::new(&parent.pool).map_err(|error| other(error.to_string()))?;
        let namespace = parent.namespace.as_deref().map(NamespaceName::new).transpose();
        let namespace = namespace.map_err(|error| other(error.to_string()))?;
        self.run(pool, operation, Pace::Quick, move |pool: &Pool| {
            let parent = pool.sibling(&from_pool, namespace.as_ref())?;
            let id = pool.clone_from((&parent, &from, &snapshot), &image)?;
            Ok(id.as_str().to_owned())
        })
        .await
    }

    pub(super) async fn make_independent(
        &self,
        pool: &RbdPoolAddress,
        image: &str,
        image_id: &str,
        size: Bytes,
        done: &Done,
    ) -> Result<(), PortError> {
        let operation = format!("flatten image {}", pool.image_path(image));
        let (image, expected) = (name(image, &operation)?, ImageId::new(image_id));
        let given_up = Arc::new(AtomicBool::new(false));
        let _end = EndWhenDropped(Arc::clone(&given_up));
        let done = done.clone();
        self.run(pool, operation, Pace::Long, move |pool| {
            let mut progress = |objects: u64, of: u64| {
                let share = u128::from(size.0) * u128::from(objects) / u128::from(of.max(1));
                done.send_replace(Bytes(u64::try_from(share).unwrap_or(size.0)));
                match given_up.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            pool.flatten(&image, &expected, &mut progress).map_err(Failure::from)
        })
        .await
    }
}
