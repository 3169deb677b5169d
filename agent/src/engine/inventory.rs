//! Read-only answers about the host that are no operation: disks, pools, capabilities.

use volferry_xml::{Disk, DomainXml};

use super::context::Context;
use super::observe;
use crate::facts::LibrbdCopy;
use crate::plan::source::{belongs_here, source_volume};
use crate::plan::{Refusal, RefusalCode, encryption, policy};
use crate::ports::{ErrorClass, HostVersions, PortError};
use crate::spec::{Bytes, DiskTarget, DomainReference, PoolKind, PoolName};

/// One disk of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskListing {
    /// Its target.
    pub target: DiskTarget,
    /// Its source in words, `rbd pool/image` or a path.
    pub source: String,
    /// Its format, as the XML says.
    pub format: Option<String>,
    /// The pool of the configuration it lies in.
    pub pool: Option<PoolName>,
    /// Why it cannot be moved live whatever the destination; none when it may.
    pub immovable: Option<(RefusalCode, String)>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolListing {
    /// Its name.
    pub name: PoolName,
    /// Its type as the configuration spells it.
    pub type_name: &'static str,
    /// Where it is, in words.
    pub location: String,
    /// Space left; none when it cannot be told.
    pub available: Option<Bytes>,
    /// Why it cannot be used at this moment.
    pub problem: Option<String>,
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
    let listing = |disk: &Disk| {
        let volume = policy::check_disk(&xml, disk)
            .and_then(|()| source_volume(&context.host, disk))
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

/// Every pool of the configuration, looked at side by side: one that hangs delays nobody but itself.
pub(super) async fn pools(context: &Context) -> Vec<PoolListing> {
    let host = &context.host;
    futures::future::join_all(host.pools.iter().map(|pool| async move {
        let (location, available) = match &pool.kind {
            PoolKind::Rbd(rbd) => {
                let location = format!("rbd:{} at {}", rbd.address.pool, rbd.address.monitors);
                let space = context.ports.images.space(&rbd.address).await;
                (location, space.map(|space| space.available))
            }
            PoolKind::File(folder) if !belongs_here(host, folder) => {
                let location = folder.path.display().to_string();
                let owner = folder.host.clone().unwrap_or_default();
                let problem = PortError::new(
                    ErrorClass::Unsupported,
                    format!("look at pool {}", pool.name),
                    format!("it is local to host {owner}"),
                );
                (location, Err(problem))
            }
            PoolKind::File(folder) => {
                let seen = context.ports.files.folder(&folder.path).await;
                (folder.path.display().to_string(), seen.map(|seen| Some(seen.available)))
            }
        };
        PoolListing {
            name: pool.name.clone(),
            type_name: pool.type_name(),
            location,
            available: available.as_ref().ok().copied().flatten(),
            problem: available.err().map(|error| error.to_string()),
        }
    }))
    .await
}

/// The host.
pub(super) async fn host(context: &Context) -> HostListing {
    HostListing {
        host_name: context.host.host_name.clone(),
        agent_version: env!("CARGO_PKG_VERSION"),
        versions: context.ports.domains.versions().await.ok(),
        connected: context.ports.events.connected(),
        librbd: context.librbd.last(),
    }
}
