//! PURE: from a domain's XML and the configuration to a route: which volume, to which place, under which name, with
//! which XML and flags. What the world looks like is judged later, in `complete`.

use std::path::PathBuf;
use std::time::Duration;

use rbdutils::names::ImageSpec;
use volferry_xml::{
    DestinationFormat, DestinationHost, DestinationSource, Disk, DomainXml, FindDiskError,
    build_destination, is_representable,
};

use super::naming::destination_name;
use super::refusal::{Refusal, RefusalCode};
use super::source::{Named, belongs_here, lies_in_no_pool, other_hosts, source_volume};
use super::{encryption, policy};
use crate::facts::HostFacts;
use crate::spec::{
    CopyFlag, CopyFlags, DiskReference, DiskTarget, EncryptionScheme, EncryptionWish, FilePool,
    HeaderKind, Pool, PoolKind, PoolName, RbdPool, VolumeFormat, VolumeLocation, VolumeName,
};

/// What a route is chosen from, besides the host.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The disk, by target or exact source.
    pub disk: &'a DiskReference,
    /// The destination pool.
    pub to: &'a PoolName,
    /// Another name for the destination.
    pub destination_volume: Option<&'a VolumeName>,
    /// Guest writes wait for both sides.
    pub write_blocking: bool,
    /// Nobody uses the volume: any pair of pools will do.
    pub offline: bool,
    /// What is wanted of encryption.
    pub encryption: &'a EncryptionWish,
}

/// The volume a disk is on.
#[derive(Debug, Clone)]
pub struct SourceVolume {
    /// Where it is.
    pub location: VolumeLocation,
    /// The same, in the form that compares clusters.
    pub named: Named,
    /// The pool of the configuration it lies in.
    pub pool: Option<PoolName>,
    /// The folder of that pool, where it must be a mount.
    pub mount: Option<PathBuf>,
    /// Its format.
    pub format: VolumeFormat,
    /// The header it has by its XML; none of a plain one, and where it cannot be told.
    pub header: Option<HeaderKind>,
}

/// Where the volume goes.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The pool.
    pub pool: PoolName,
    /// It is libvirt's, not one of the configuration.
    pub of_libvirt: bool,
    /// The pool's folder; none for RBD.
    pub folder: Option<FilePool>,
    /// The volume's name.
    pub volume: VolumeName,
    /// Where it will be.
    pub location: VolumeLocation,
    /// The format there.
    pub format: VolumeFormat,
    /// What it may be encrypted with, best first; nothing: plain.
    pub schemes: Vec<EncryptionScheme>,
    /// The place as libvirt is told of it.
    pub source: DestinationSource,
    /// The format as libvirt is told of it.
    pub xml_format: DestinationFormat,
    /// The destination `<disk>` of a plain volume.
    pub xml: String,
}

/// A route: everything that follows from the request, the XML and the configuration.
#[derive(Debug, Clone)]
pub struct Route {
    /// The domain's parsed XML.
    pub domain: DomainXml,
    /// The disk's target.
    pub target: DiskTarget,
    /// The disk.
    pub disk: Disk,
    /// From where.
    pub source: SourceVolume,
    /// To where.
    pub destination: Destination,
    /// Flags of the block copy, [`CopyFlag::TransientJob`] included as if the domain were persistent.
    pub flags: CopyFlags,
    /// How long the source can be restored after the move.
    pub source_retention: Duration,
}

/// Chooses the route of a live move to a pool of the configuration.
///
/// Errors, in this order: the XML, the disk, the pools, the pair, the names.
pub fn choose(host: &HostFacts, xml: &str, request: &Request<'_>) -> Result<Route, Refusal> {
    choose_among(host, &[], xml, request)
}

/// The same with other pools, the request's own or libvirt's: where no pool of the configuration has the name, or
/// holds the source, one of these may.
pub fn choose_among(
    host: &HostFacts,
    others: &[Pool],
    xml: &str,
    request: &Request<'_>,
) -> Result<Route, Refusal> {
    let domain = DomainXml::parse(xml)
        .map_err(|error| Refusal::new(RefusalCode::MalformedXml, error.to_string()))?;
    let disk = find_disk(&domain, request.disk)?.clone();
    policy::check_disk(&domain, &disk)?;
    let mut source = source_volume(host, others, &disk)?;
    let header = encryption::source_header(&disk)?;
    // Before the pools: it depends on none of them.
    encryption::schemes(&disk, &without_list(request.encryption), true)?;
    let (pool, of_libvirt) = find_pool(host, others, request.to)?;
    check_representable(pool, request)?;
    let target = DiskTarget::new(disk.target.as_str())
        .map_err(|error| Refusal::new(RefusalCode::InvalidName, error.to_string()))?;
    let (mut destination, named) = match &pool.kind {
        PoolKind::Rbd(rbd) => to_rbd(pool, rbd, &domain, &disk, &source, request)?,
        PoolKind::File(folder) => to_file(pool, folder, &domain, &disk, &source, request)?,
    };
    source.header = header;
    destination.of_libvirt = of_libvirt;
    destination.schemes =
        encryption::schemes(&disk, request.encryption, matches!(pool.kind, PoolKind::Rbd(_)))?;
    policy::check_same_volume(&domain, &disk, &named, &destination.location)?;
    let flags = flags(&source, &destination, request);
    let source_retention = host.source_retention;
    Ok(Route { domain, target, disk, source, destination, flags, source_retention })
}

/// The volume a disk is on; none where a route would be refused anyway.
pub fn find_source(host: &HostFacts, xml: &str, disk: &DiskReference) -> Option<VolumeLocation> {
    let domain = DomainXml::parse(xml).ok()?;
    let disk = find_disk(&domain, disk).ok()?;
    Some(source_volume(host, &[], disk).ok()?.location)
}

/// The wish without what it accepts: the list is about one pool, the rest about the disk alone.
fn without_list(wish: &EncryptionWish) -> EncryptionWish {
    EncryptionWish { accept: Default::default(), ..wish.clone() }
}

/// The target of the disk a request means.
///
/// Errors: the XML, or the disk: as [`choose`] refuses them.
pub fn find_target(xml: &str, disk: &DiskReference) -> Result<DiskTarget, Refusal> {
    let domain = DomainXml::parse(xml)
        .map_err(|error| Refusal::new(RefusalCode::MalformedXml, error.to_string()))?;
    let disk = find_disk(&domain, disk)?;
    if disk.target.is_empty() {
        policy::check_disk(&domain, disk)?;
    }
    DiskTarget::new(disk.target.as_str())
        .map_err(|error| Refusal::new(RefusalCode::InvalidName, error.to_string()))
}

/// Whether only a pool of libvirt can hold the disk a request means. What cannot be read is refused elsewhere.
pub fn source_lies_in_no_pool(host: &HostFacts, xml: &str, disk: &DiskReference) -> bool {
    DomainXml::parse(xml)
        .is_ok_and(|domain| find_disk(&domain, disk).is_ok_and(|disk| lies_in_no_pool(host, disk)))
}

fn find_disk<'a>(domain: &'a DomainXml, disk: &DiskReference) -> Result<&'a Disk, Refusal> {
    domain.find_disk(disk.as_str()).map_err(|error| {
        let code = match &error {
            FindDiskError::NotFound { .. } => RefusalCode::DiskNotFound,
            // The same image twice in one guest: moving either would take it from the other.
            FindDiskError::Ambiguous { .. } => RefusalCode::Shareable,
        };
        Refusal::new(code, error.to_string())
    })
}

/// The pool, and whether it is one of the others: the configuration comes first.
pub(super) fn find_pool<'a>(
    host: &'a HostFacts,
    others: &'a [Pool],
    name: &PoolName,
) -> Result<(&'a Pool, bool), Refusal> {
    let Some(pool) = host.pools.iter().find(|pool| pool.name == *name) else {
        let found = others.iter().find(|pool| pool.name == *name);
        if let Some(pool) = found
            && let PoolKind::File(folder) = &pool.kind
            && folder.host.as_ref().is_some_and(|owner| *owner != host.host_name)
        {
            return Err(other_hosts(host, pool));
        }
        return found.map(|pool| (pool, true)).ok_or_else(|| {
            let known: Vec<&str> = host.pools.iter().map(|pool| pool.name.as_str()).collect();
            Refusal::new(
                RefusalCode::PoolUnknown,
                format!(
                    "there is no pool {name} in the configuration or in libvirt; the configuration has: {}",
                    known.join(", ")
                ),
            )
        });
    };
    match &pool.kind {
        PoolKind::File(folder) if !belongs_here(host, folder) => Err(other_hosts(host, pool)),
        _ => Ok((pool, false)),
    }
}

/// Names that XML cannot carry would come out of libvirt as others.
fn check_representable(pool: &Pool, request: &Request<'_>) -> Result<(), Refusal> {
    let folder = match &pool.kind {
        PoolKind::File(folder) => folder.path.to_string_lossy().into_owned(),
        PoolKind::Rbd(rbd) => rbd.address.image_path(""),
    };
    let volume = request.destination_volume.map_or("", VolumeName::as_str);
    match [folder.as_str(), volume].into_iter().find(|text| !is_representable(text)) {
        None => Ok(()),
        Some(text) => Err(Refusal::new(
            RefusalCode::InvalidName,
            format!("{text:?} has a character that XML cannot carry"),
        )),
    }
}

fn to_rbd(
    pool: &Pool,
    rbd: &RbdPool,
    domain: &DomainXml,
    disk: &Disk,
    source: &SourceVolume,
    request: &Request<'_>,
) -> Result<(Destination, Named), Refusal> {
    let volume =
        destination_name(&source.location.name(), request.destination_volume, VolumeFormat::Raw)?;
    let hosts = rbd.monitors.to_libvirt_hosts().map_err(|error| {
        Refusal::new(RefusalCode::PoolUnavailable, format!("pool {}: {error}", pool.name))
    })?;
    let path = rbd.address.image_path(volume.as_str());
    let image: ImageSpec = path.parse().map_err(|error| {
        Refusal::new(RefusalCode::InvalidName, format!("destination {path:?}: {error}"))
    })?;
    let place = DestinationSource::Rbd {
        name: path,
        hosts: hosts
            .into_iter()
            .map(|host| DestinationHost { name: host.name, port: host.port })
            .collect(),
        user: rbd.address.user.clone(),
        secret_uuid: rbd.address.secret_uuid.clone(),
    };
    let location = VolumeLocation::Rbd { address: rbd.address.clone(), image: volume.to_string() };
    let named = Named::Rbd { monitors: Some(rbd.monitors.clone()), image };
    let destination = Destination {
        pool: pool.name.clone(),
        of_libvirt: false,
        folder: None,
        volume,
        location,
        format: VolumeFormat::Raw,
        schemes: Vec::new(),
        xml: build_destination(domain, disk, &place, DestinationFormat::Raw),
        source: place,
        xml_format: DestinationFormat::Raw,
    };
    Ok((destination, named))
}

fn to_file(
    pool: &Pool,
    folder: &FilePool,
    domain: &DomainXml,
    disk: &Disk,
    source: &SourceVolume,
    request: &Request<'_>,
) -> Result<(Destination, Named), Refusal> {
    if !request.offline {
        let place = VolumeLocation::File { path: folder.path.clone() };
        policy::check_pair(disk, &source.location, &place)?;
    }
    let volume =
        destination_name(&source.location.name(), request.destination_volume, VolumeFormat::Qcow2)?;
    let path = folder.path.join(volume.as_str());
    let text = path.to_str().ok_or_else(|| {
        Refusal::new(RefusalCode::InvalidName, format!("path {path:?} is not UTF-8"))
    })?;
    let place = DestinationSource::File { path: text.to_owned() };
    let destination = Destination {
        pool: pool.name.clone(),
        of_libvirt: false,
        folder: Some(folder.clone()),
        volume,
        location: VolumeLocation::File { path: path.clone() },
        format: VolumeFormat::Qcow2,
        schemes: Vec::new(),
        xml: build_destination(domain, disk, &place, DestinationFormat::Qcow2),
        source: place,
        xml_format: DestinationFormat::Qcow2,
    };
    Ok((destination, Named::File(path)))
}

fn flags(source: &SourceVolume, destination: &Destination, request: &Request<'_>) -> CopyFlags {
    let mut flags = CopyFlags::from([CopyFlag::ReuseExt, CopyFlag::TransientJob]);
    // Sources of more than one layer were refused, so an RBD source has exactly one.
    if matches!(
        (&source.location, &destination.location),
        (VolumeLocation::Rbd { .. }, VolumeLocation::Rbd { .. })
    ) {
        flags.insert(CopyFlag::Shallow);
    }
    if request.write_blocking {
        flags.insert(CopyFlag::SynchronousWrites);
    }
    flags
}
