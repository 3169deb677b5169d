//! Clones of images: whom they depend on, until they are flattened.

use super::rbd::{CephPool, Image, Parent, exists, key, missing};
use super::state::{State, Write};
use crate::ports::{ErrorClass, ParentSnapshot, PortError};
use crate::spec::{Identity, RbdPoolAddress, VolumeLocation};

impl State {
    fn images(&self) -> impl Iterator<Item = (String, &Image)> {
        let pools = self.clusters.iter().flat_map(|cluster| &cluster.pools);
        pools.flat_map(|(pool, content)| {
            let named = content.images.iter().map(|(name, image)| (name.clone(), image));
            let trashed = content.trash.values().map(|(image, _)| (image.id.clone(), image));
            named.chain(trashed).map(move |(name, image)| (format!("{pool}/{name}"), image))
        })
    }

    /// The clones of an image, those of other hosts' images among them.
    pub fn children(&self, of: &Image) -> Vec<String> {
        let ours = self.images().filter(|(_, image)| {
            image.parent.as_ref().is_some_and(|parent| parent.image_id == of.id)
        });
        of.children.iter().cloned().chain(ours.map(|(name, _)| name)).collect()
    }

    pub(super) fn create_snapshot(
        &mut self,
        address: &RbdPoolAddress,
        name: &str,
        id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let what = format!("make snapshot {}@{snapshot}", address.image_path(name));
        if self.expected(address, name, id, &what)?.snapshots.iter().any(|one| one == snapshot) {
            return Err(exists(what));
        }
        if let Some(image) = self.pool_mut(address)?.images.get_mut(name) {
            image.snapshots.push(snapshot.to_owned());
        }
        Ok(())
    }

    /// A snapshot goes unless a clone depends on it.
    pub(super) fn drop_snapshot(
        &mut self,
        address: &RbdPoolAddress,
        name: &str,
        id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let what = format!("delete snapshot {}@{snapshot}", address.image_path(name));
        let image = self.expected(address, name, id, &what)?;
        if !image.snapshots.iter().any(|known| known == snapshot) {
            return Err(missing(what));
        }
        let parent = Some(Parent { image_id: id.to_owned(), snapshot: snapshot.to_owned() });
        if let Some((child, _)) = self.images().find(|(_, image)| image.parent == parent) {
            return Err(PortError::new(
                ErrorClass::Busy,
                what,
                format!("it has the clone {child}"),
            ));
        }
        if let Some(image) = self.pool_mut(address)?.images.get_mut(name) {
            image.snapshots.retain(|known| known != snapshot);
        }
        Ok(())
    }

    pub(super) fn clone_image(
        &mut self,
        parent: &ParentSnapshot,
        address: &RbdPoolAddress,
        name: &str,
    ) -> Result<String, PortError> {
        let what = format!("clone {}@{} to {name}", parent.image, parent.snapshot);
        let cluster = self.checked(address)?;
        let from = RbdPoolAddress {
            pool: parent.pool.clone(),
            namespace: parent.namespace.clone(),
            ..address.clone()
        };
        let pool: Option<&CephPool> = self.clusters[cluster].pools.get(&key(&from));
        let source = pool.and_then(|pool| pool.images.get(&parent.image)).cloned();
        let source = source.filter(|image| image.snapshots.contains(&parent.snapshot));
        let source = source.ok_or_else(|| missing(what.clone()))?;
        if source.no_layering {
            return Err(PortError::new(ErrorClass::Other, what, "Function not implemented"));
        }
        let id = self.create_image(address, name, source.size)?;
        let content = self.content(&Identity::Rbd { image_id: source.id.clone() });
        self.contents.insert(Identity::Rbd { image_id: id.clone() }.to_string(), content);
        if let Some(image) = self.pool_mut(address)?.images.get_mut(name) {
            image.header = source.header;
            image.parent = Some(Parent { image_id: source.id, snapshot: parent.snapshot.clone() });
        }
        Ok(id)
    }

    /// What a flattening has to write; none where nothing is shared.
    pub(super) fn shared(
        &self,
        address: &RbdPoolAddress,
        name: &str,
        id: &str,
    ) -> Result<Option<u64>, PortError> {
        let what = format!("flatten image {}", address.image_path(name));
        let image = self.expected(address, name, id, &what)?;
        let Some(parent) = &image.parent else { return Ok(None) };
        let found = self.images().find(|(_, image)| image.id == parent.image_id);
        Ok(Some(found.map_or(0, |(_, image)| image.allocated)))
    }

    pub(super) fn flatten_share(&mut self, at: &VolumeLocation, id: &str, bytes: f64) -> Write {
        self.write(at, &Identity::Rbd { image_id: id.to_owned() }, bytes as u64)
    }

    pub(super) fn flattened(&mut self, address: &RbdPoolAddress, id: &str) {
        if let Ok(pool) = self.pool_mut(address)
            && let Some(image) = pool.images.values_mut().find(|image| image.id == id)
        {
            image.parent = None;
        }
    }
}
