//! Read-only answers about the host that are no operation: disks, pools, capabilities.

use std::path::PathBuf;

use volferry_xml::{Disk, DomainXml};

use super::context::Context;
use super::observe;
use crate::facts::LibrbdCopy;
use crate::operation::space::takes_nothing;
use crate::plan::source::{belongs_here, lies_in_no_pool, source_volume};
use crate::plan::{Refusal, RefusalCode, encryption, policy};
use crate::ports::{HostVersions, PortError};
use crate::spec::{
    Bytes, DiskTarget, DomainReference, FilePool, Pool, PoolKind, PoolName, RbdPoolAddress,
};

/// One disk of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskListing {
    /// Its target.
    pub target: DiskTarget,
    /// Its source in words, `rbd pool/image` or a path.
    pub source: String,
    /// Its format, as the XML says.
    pub format: Option<String>,
    /// The pool of the configuration, or of libvirt, it lies in.
    pub pool: Option<PoolName>,
    /// Why it cannot be moved live whatever the destination; none when it may.
    pub immovable: Option<(RefusalCode, String)>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolListing {
    /// Its name.
    pub name: PoolName,
    /// It is an active one of libvirt; no pool of the configuration has its name.
    pub of_libvirt: bool,
    /// Its type as the configuration spells it.
    pub type_name: &'static str,
    /// Where it is, in words.
    pub location: String,
    /// Where it is.
    pub place: PoolPlace,
    /// Space left; none when it cannot be told.
    pub available: Option<Bytes>,
    /// Why it cannot be used at this moment.
    pub problem: Option<String>,
}

/// Where a pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolPlace {
    /// A folder of this host.
    Folder(PathBuf),
    /// A Ceph pool.
    Ceph(RbdPoolAddress),
}

/// What this host can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostListing {
    /// The host's name of the configuration.
    pub host_name: String,
    /// The agent's version.
    pub agent_version: &'static str,
    /// libvirt and QEMU; none while libvirt is away.
    pub versions: Option<HostVersions>,
    /// Whether libvirt can be reached.
    pub connected: bool,
    /// Whether a block copy into an image that librbd encrypts works; none as long as nobody asked for one.
    pub librbd: Option<LibrbdCopy>,
}

/// The disks of a domain and whether they can be moved live.
pub(super) async fn disks(
    context: &Context,
    reference: &DomainReference,
) -> Result<Vec<DiskListing>, Refusal> {
    let domain = observe::domain(&context.ports, reference).await?;
    let xml = DomainXml::parse(&domain.live_xml)
        .map_err(|error| Refusal::new(RefusalCode::MalformedXml, error.to_string()))?;
    let host = &context.host();
    let mut of_libvirt = Vec::new();
    if xml.disks().iter().any(|disk| lies_in_no_pool(host, disk)) {
        let active = context.ports.pools.active().await;
        of_libvirt = active.map_err(|error| observe::host_trouble(&error))?;
    }
    let listing = |disk: &Disk| {
        let volume = policy::check_disk(&xml, disk)
            .and_then(|()| source_volume(host, &of_libvirt, disk))
            .and_then(|volume| encryption::source_header(disk).map(|_| volume));
        let target = DiskTarget::new(disk.target.as_str()).ok()?;
        Some(DiskListing {
            target,
            source: disk.source.describe(),
            format: disk.driver.format.clone(),
            pool: volume.as_ref().ok().and_then(|volume| volume.pool.clone()),
            immovable: volume.err().map(|refusal| (refusal.code, refusal.message)),
        })
    };
    Ok(xml.disks().iter().filter_map(listing).collect())
}

/// Every pool of the configuration, then every active one of libvirt under another name. They are looked at side by
/// side: one that hangs delays nobody but itself.
pub(super) async fn pools(context: &Context) -> Vec<PoolListing> {
    let configured = &context.host().pools;
    let active = match context.ports.pools.active().await {
        Ok(active) => active,
        Err(error) => {
            tracing::warn!(%error, "the pools of libvirt are not listed");
            Vec::new()
        }
    };
    let new = |pool: &&Pool| !configured.iter().any(|known| known.name == pool.name);
    let of_libvirt = active.iter().filter(new).map(|pool| (pool, true));
    let all = configured.iter().map(|pool| (pool, false)).chain(of_libvirt);
    futures::future::join_all(all.map(|(pool, of_libvirt)| pool_listing(context, pool, of_libvirt)))
        .await
}

async fn pool_listing(context: &Context, pool: &Pool, of_libvirt: bool) -> PoolListing {
    let (location, place, seen) = match &pool.kind {
        PoolKind::Rbd(rbd) => {
            let location = format!("rbd:{} at {}", rbd.address.pool, rbd.address.monitors);
            let seen = ceph_room(context, pool, &rbd.address).await;
            (location, PoolPlace::Ceph(rbd.address.clone()), seen)
        }
        PoolKind::File(folder) => {
            let seen = folder_room(context, folder, of_libvirt).await;
            (folder.path.display().to_string(), PoolPlace::Folder(folder.path.clone()), seen)
        }
    };
    let (available, problem) = seen.unwrap_or_else(|error| (None, Some(error.to_string())));
    let name = pool.name.clone();
    let type_name = pool.type_name();
    PoolListing { name, of_libvirt, type_name, location, place, available, problem }
}

/// What is free, and why nothing can be put there.
type Room = Result<(Option<Bytes>, Option<String>), PortError>;

async fn ceph_room(context: &Context, pool: &Pool, address: &RbdPoolAddress) -> Room {
    let space = context.ports.images.space(address).await?;
    let problem = takes_nothing(&pool.name, &space, &context.host().limits.reserve);
    Ok((space.available, problem))
}

async fn folder_room(context: &Context, folder: &FilePool, of_libvirt: bool) -> Room {
    if !of_libvirt && !belongs_here(&context.host(), folder) {
        let owner = folder.host.as_deref().unwrap_or_default();
        return Ok((None, Some(format!("it is local to host {owner}"))));
    }
    let seen = context.ports.files.folder(&folder.path).await?;
    let problem = if folder.must_be_mounted && !seen.mounted {
        Some("it lies on the root file system: its mount is missing".to_owned())
    } else if seen.available == Bytes(0) {
        Some("its file system is full".to_owned())
    } else {
        None
    };
    Ok((Some(seen.available), problem))
}

/// The host.
pub(super) async fn host(context: &Context) -> HostListing {
    HostListing {
        host_name: context.host().host_name.clone(),
        agent_version: env!("CARGO_PKG_VERSION"),
        versions: context.ports.domains.versions().await.ok(),
        connected: context.ports.events.connected(),
        librbd: context.librbd.last(),
    }
}
