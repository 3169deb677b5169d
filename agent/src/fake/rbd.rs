//! Ceph clusters: pools, images, and the rules of renaming and removing them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rbdutils::monitors::MonitorList;

use super::secret::Header;
use super::state::State;
use crate::ports::{ErrorClass, PortError};
use crate::spec::{Identity, RbdPoolAddress};

/// One cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Its id.
    pub fsid: String,
    /// Its monitors.
    pub monitors: MonitorList,
    /// Whether they answer.
    pub reachable: bool,
    /// Whether they accept the agent's key.
    pub key_accepted: bool,
    /// Its pools; one with a namespace is `pool/namespace`.
    pub pools: BTreeMap<String, CephPool>,
}

/// One pool.
#[derive(Debug, Clone, Default)]
pub struct CephPool {
    /// Images by name.
    pub images: BTreeMap<String, Image>,
    /// Bytes that can still be written.
    pub available: u64,
    /// The quota.
    pub quota: Option<u64>,
    /// Writes wait until there is room.
    pub full: bool,
    /// Soon they will.
    pub near_full: bool,
    /// Images in the trash by id, and until when they are kept.
    pub trash: BTreeMap<String, (Image, SystemTime)>,
}

impl CephPool {
    /// What can still be written, as a cluster tells it: the quota counts what is written already.
    pub fn writable(&self) -> u64 {
        let quota = self.quota.map_or(u64::MAX, |quota| quota.saturating_sub(self.used()));
        if self.full { 0 } else { self.available.min(quota) }
    }

    /// What is written.
    pub fn used(&self) -> u64 {
        let trash = self.trash.values().map(|(image, _)| image);
        self.images.values().chain(trash).map(|image| image.allocated).sum()
    }
}

/// One image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Its id.
    pub id: String,
    /// Virtual size.
    pub size: u64,
    /// What it occupies.
    pub allocated: u64,
    /// Names of snapshots.
    pub snapshots: Vec<String>,
    /// Clones, `pool/image`.
    pub children: Vec<String>,
    /// Watchers besides the guests of this host.
    pub watchers: Vec<String>,
    /// Its encryption header.
    pub header: Option<Header>,
    /// What it shares its content with.
    pub parent: Option<Parent>,
    /// Its features do not allow clones.
    pub no_layering: bool,
}

/// A snapshot that a clone depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The id of the image.
    pub image_id: String,
    /// The snapshot.
    pub snapshot: String,
}

pub(super) fn key(address: &RbdPoolAddress) -> String {
    match &address.namespace {
        Some(namespace) => format!("{}/{namespace}", address.pool),
        None => address.pool.clone(),
    }
}

impl State {
    fn cluster_index(&self, monitors: &str) -> Option<usize> {
        let monitors = MonitorList::parse(monitors, 0).ok()?;
        self.clusters.iter().position(|cluster| cluster.monitors.shares_a_monitor_with(&monitors))
    }

    pub(super) fn checked(&self, address: &RbdPoolAddress) -> Result<usize, PortError> {
        let error = |class, text| {
            Err(PortError::new(class, format!("reach Ceph pool {}", key(address)), text))
        };
        // The agent's own key comes from libvirt.
        let secret = address.secret_uuid.as_ref().filter(|_| address.key_file.is_none());
        if secret.is_some_and(|uuid| !self.secrets.contains(uuid)) {
            return error(ErrorClass::NotFound, "Secret not found");
        }
        let Some(index) = self.cluster_index(&address.monitors) else {
            return error(ErrorClass::Unavailable, "Connection timed out");
        };
        let cluster = &self.clusters[index];
        if !cluster.reachable {
            error(ErrorClass::Unavailable, "Connection timed out")
        } else if !cluster.key_accepted {
            error(ErrorClass::PermissionDenied, "Permission denied")
        } else if !cluster.pools.contains_key(&key(address)) {
            error(ErrorClass::NotFound, "No such pool")
        } else {
            Ok(index)
        }
    }

    /// A pool, by its address.
    ///
    /// Errors: as a real cluster has them: no answer from the monitors, the key, the pool.
    pub fn pool(&self, address: &RbdPoolAddress) -> Result<&CephPool, PortError> {
        let index = self.checked(address)?;
        Ok(&self.clusters[index].pools[&key(address)])
    }

    /// The id of the cluster at this address.
    ///
    /// Errors: the same.
    pub fn fsid(&self, address: &RbdPoolAddress) -> Result<String, PortError> {
        self.checked(address).map(|index| self.clusters[index].fsid.clone())
    }

    /// A pool, to change it.
    ///
    /// Errors: the same.
    pub fn pool_mut(&mut self, address: &RbdPoolAddress) -> Result<&mut CephPool, PortError> {
        let index = self.checked(address)?;
        let missing = || PortError::new(ErrorClass::NotFound, "reach a Ceph pool", "No such pool");
        self.clusters[index].pools.get_mut(&key(address)).ok_or_else(missing)
    }

    /// Watchers of an image, the guests of this host among them.
    pub fn watchers(&self, image: &Image) -> Vec<String> {
        let id = Identity::Rbd { image_id: image.id.clone() };
        let guests = self.domains.values().filter(|domain| domain.opens(&id));
        let guests = guests.map(|domain| format!("192.0.2.1:0/{}", domain.name));
        let ours = (0..self.readers(&id)).map(|number| format!("192.0.2.1:0/{number}"));
        let now = tokio::time::Instant::now();
        let dead =
            self.dead_watches.iter().filter(|(id, _, until)| *id == image.id && now < *until);
        let dead = dead.map(|(_, client, _)| client.clone());
        image.watchers.iter().cloned().chain(guests).chain(ours).chain(dead).collect()
    }

    pub(super) fn create_image(
        &mut self,
        address: &RbdPoolAddress,
        name: &str,
        size: u64,
    ) -> Result<String, PortError> {
        let id = format!("{:012x}", 0xabc000 + self.number());
        let pool = self.pool_mut(address)?;
        if pool.images.contains_key(name) {
            return Err(exists(format!("create image {}", address.image_path(name))));
        }
        let image = Image { id: id.clone(), size, ..Image::default() };
        pool.images.insert(name.to_owned(), image);
        Ok(id)
    }

    pub(super) fn rename_image(
        &mut self,
        address: &RbdPoolAddress,
        from: &str,
        to: &str,
    ) -> Result<(), PortError> {
        let what = format!("rename image {} to {to}", address.image_path(from));
        let pool = self.pool_mut(address)?;
        if !pool.images.contains_key(from) {
            return Err(missing(what));
        }
        if pool.images.contains_key(to) {
            return Err(exists(what));
        }
        let Some(image) = pool.images.remove(from) else { return Err(missing(what)) };
        pool.images.insert(to.to_owned(), image);
        Ok(())
    }

    /// Takes an image away from under its name, open or not; it keeps its space.
    ///
    /// Errors: there is none of that name.
    pub fn trash_image(&mut self, address: &RbdPoolAddress, name: &str) -> Result<(), PortError> {
        let what = format!("move image {} to the trash", address.image_path(name));
        let removed = self.pool_mut(address)?.images.remove(name);
        removed.map(drop).ok_or_else(|| missing(what))
    }

    /// The image of that name, if it has that id.
    pub(super) fn expected(
        &self,
        address: &RbdPoolAddress,
        name: &str,
        id: &str,
        what: &str,
    ) -> Result<&Image, PortError> {
        let image = self.pool(address)?.images.get(name);
        let image = image.ok_or_else(|| missing(what.to_owned()))?;
        if image.id != id {
            let text = format!("its id is {} and not {id}", image.id);
            return Err(PortError::new(ErrorClass::Replaced, what, text));
        }
        Ok(image)
    }

    /// A snapshot goes while the image is open, but never while clones depend on the image.
    pub(super) fn remove_snapshot(
        &mut self,
        address: &RbdPoolAddress,
        name: &str,
        id: &str,
        snapshot: &str,
    ) -> Result<(), PortError> {
        let what = format!("delete snapshot {}@{snapshot}", address.image_path(name));
        let image = self.expected(address, name, id, &what)?;
        let children = self.children(image);
        if !children.is_empty() {
            let text = format!("it has children: {}", children.join(", "));
            return Err(PortError::new(ErrorClass::Busy, what, text));
        }
        if !image.snapshots.iter().any(|known| known == snapshot) {
            return Err(missing(what));
        }
        if let Some(image) = self.pool_mut(address)?.images.get_mut(name) {
            image.snapshots.retain(|known| known != snapshot);
        }
        Ok(())
    }

    /// An image goes to the trash with its snapshots, and while it is open.
    pub(super) fn keep_in_trash(
        &mut self,
        address: &RbdPoolAddress,
        name: &str,
        id: &str,
        until: SystemTime,
    ) -> Result<(), PortError> {
        let what = format!("move image {} to the trash", address.image_path(name));
        self.expected(address, name, id, &what)?;
        let pool = self.pool_mut(address)?;
        if let Some(image) = pool.images.remove(name) {
            pool.trash.insert(id.to_owned(), (image, until));
        }
        Ok(())
    }

    pub(super) fn remove_image(
        &mut self,
        address: &RbdPoolAddress,
        name: &str,
        id: &str,
    ) -> Result<(), PortError> {
        let what = format!("remove image {}", address.image_path(name));
        let image = self.expected(address, name, id, &what)?;
        let (watchers, children) = (self.watchers(image), self.children(image));
        let holders =
            [("watchers", &watchers), ("snapshots", &image.snapshots), ("children", &children)];
        if let Some((kind, names)) = holders.iter().find(|(_, names)| !names.is_empty()) {
            let text = format!("it has {kind}: {}", names.join(", "));
            return Err(PortError::new(ErrorClass::Busy, what, text));
        }
        let allocated = image.allocated;
        let pool = self.pool_mut(address)?;
        pool.images.remove(name);
        pool.available += allocated;
        Ok(())
    }
}

pub(super) fn exists(what: String) -> PortError {
    PortError::new(ErrorClass::Exists, what, "File exists")
}

pub(super) fn missing(what: String) -> PortError {
    PortError::new(ErrorClass::NotFound, what, "No such file or directory")
}
