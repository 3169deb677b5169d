//! PURE: which volume a disk's source is, and in which pool of this host it lies.

use std::path::{Component, Path, PathBuf};

use rbdutils::monitors::MonitorList;
use rbdutils::names::ImageSpec;
use volferry_xml::{Disk, Host, Source};

use super::refusal::{Refusal, RefusalCode};
use super::route::SourceVolume;
use crate::facts::{HostFacts, may_be_one_cluster};
use crate::spec::{
    FilePool, FilePoolKind, Pool, PoolKind, RbdPoolAddress, VolumeFormat, VolumeLocation,
};

/// An RBD image or a file as some disk, backing layer or mirror names it; enough to compare with others.
#[derive(Debug, Clone)]
pub enum Named {
    /// An image; no monitors when the XML names none.
    Rbd {
        /// The monitors.
        monitors: Option<MonitorList>,
        /// Pool, namespace and image.
        image: ImageSpec,
    },
    /// A file, its path normalised.
    File(PathBuf),
}

impl Named {
    /// What a source element names; none when it is neither an image nor a file with an absolute path.
    pub fn of(source: &Source) -> Option<Self> {
        match source {
            Source::File { path, .. } => normalised(path).map(Self::File),
            Source::Network { protocol, name: Some(name), hosts, .. } if protocol == "rbd" => {
                Some(Self::Rbd { monitors: monitors(hosts), image: name.parse().ok()? })
            }
            _ => None,
        }
    }

    /// The same of a volume that is known; none when its names are not what Ceph allows.
    pub fn of_volume(volume: &VolumeLocation) -> Option<Self> {
        match volume {
            VolumeLocation::File { path } => Some(Self::File(path.clone())),
            VolumeLocation::Rbd { address, image } => Some(Self::Rbd {
                monitors: MonitorList::parse(&address.monitors, 0).ok(),
                image: address.image_path(image).parse().ok()?,
            }),
        }
    }

    /// Whether both may be one volume. Clusters count as one when they share a monitor, or when a list is missing.
    pub fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => one == other,
            (
                Self::Rbd { monitors: one, image },
                Self::Rbd { monitors: other, image: other_image },
            ) => {
                image.pool == other_image.pool
                    && image.namespace == other_image.namespace
                    && image.image == other_image.image
                    && may_be_one_cluster(one.as_ref(), other.as_ref())
            }
            _ => false,
        }
    }
}

/// An absolute path without `.`, doubled slashes; none when it is relative or goes up.
pub fn normalised(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    (path.is_absolute() && path.components().all(plain)).then(|| path.components().collect())
}

/// The monitors `<host>` elements name; none when there are none, or one is not understood.
pub fn monitors(hosts: &[Host]) -> Option<MonitorList> {
    let entries: Vec<String> = hosts
        .iter()
        .filter_map(|host| {
            let name = host.name.as_deref()?;
            let bare_v6 = name.contains(':') && !name.starts_with('[');
            match (host.port.as_deref(), bare_v6) {
                (Some(port), true) => Some(format!("[{name}]:{port}")),
                (Some(port), false) => Some(format!("{name}:{port}")),
                (None, _) => Some(name.to_owned()),
            }
        })
        .collect();
    MonitorList::from_entries(&entries, 0).ok()
}

/// Whether a disk is a file outside of every pool of the configuration: only a pool of libvirt can hold it then.
pub fn lies_in_no_pool(host: &HostFacts, disk: &Disk) -> bool {
    let Source::File { path, .. } = &disk.source else { return false };
    normalised(path).is_some_and(|path| !host.pools.iter().any(|pool| holds(pool, &path)))
}

fn holds(pool: &Pool, path: &Path) -> bool {
    matches!(&pool.kind, PoolKind::File(folder) if path.starts_with(&folder.path))
}

/// The volume behind `disk`, or why the agent does not move it. A file outside of the configuration's pools may lie in
/// one of libvirt's.
pub fn source_volume(
    host: &HostFacts,
    of_libvirt: &[Pool],
    disk: &Disk,
) -> Result<SourceVolume, Refusal> {
    let unsupported = |why: &str| {
        let what = disk.source.describe();
        Refusal::new(
            RefusalCode::UnsupportedSource,
            format!("disk {} is {what}: {why}", disk.target),
        )
    };
    if disk.data_store {
        return Err(unsupported("its data lie in another image than the one named"));
    }
    if disk.slices {
        return Err(unsupported("it is a part of an image, not a whole volume"));
    }
    if disk.fd_group.is_some() {
        return Err(unsupported("libvirt was handed an open file, its path is only a label"));
    }
    match &disk.source {
        Source::File { path, .. } => file_volume(host, of_libvirt, disk, path),
        Source::Network { protocol, name: Some(name), hosts, snapshot, .. }
            if protocol == "rbd" =>
        {
            if snapshot.is_some() {
                return Err(unsupported("a snapshot is read-only"));
            }
            rbd_volume(host, disk, name, hosts)
        }
        _ => Err(unsupported("only RBD images and files of a pool can be moved")),
    }
}

fn file_volume(
    host: &HostFacts,
    of_libvirt: &[Pool],
    disk: &Disk,
    path: &str,
) -> Result<SourceVolume, Refusal> {
    let refuse = |why: String| Err(Refusal::new(RefusalCode::UnsupportedSource, why));
    let Some(path) = normalised(path) else {
        return refuse(format!(
            "disk {} has the source path {path:?}: only absolute paths without '..' name a volume",
            disk.target
        ));
    };
    let format = match disk.driver.format.as_deref() {
        None | Some("raw") => VolumeFormat::Raw,
        Some("qcow2") => VolumeFormat::Qcow2,
        Some(other) => {
            return refuse(format!(
                "disk {} has the format {other}: only raw and qcow2 are moved",
                disk.target
            ));
        }
    };
    let holders = || {
        host.pools.iter().filter_map(|pool| match &pool.kind {
            PoolKind::File(folder) if path.starts_with(&folder.path) => Some((pool, folder)),
            _ => None,
        })
    };
    let here = holders()
        .filter(|(_, folder)| belongs_here(host, folder))
        .max_by_key(|(_, folder)| folder.path.components().count());
    let pool = match (here, holders().next()) {
        (Some((pool, _)), _) => Some(pool),
        (None, Some((pool, _))) => return Err(other_hosts(host, pool)),
        // Of two that hold it, any will do: the folder is this host's either way.
        (None, None) => of_libvirt.iter().find(|pool| holds(pool, &path)),
    };
    let Some(pool) = pool else {
        return refuse(format!(
            "disk {} is the file {}, which lies in no pool of the configuration and in no active one of libvirt",
            disk.target,
            path.display()
        ));
    };
    Ok(SourceVolume {
        named: Named::File(path.clone()),
        location: VolumeLocation::File { path },
        pool: Some(pool.name.clone()),
        mount: match &pool.kind {
            PoolKind::File(folder) if folder.must_be_mounted => Some(folder.path.clone()),
            _ => None,
        },
        format,
        header: None,
    })
}

/// A local pool is used by its own host only; other file pools by every host.
pub fn belongs_here(host: &HostFacts, folder: &FilePool) -> bool {
    folder.kind != FilePoolKind::Local || folder.host.as_deref() == Some(host.host_name.as_str())
}

/// The refusal of another host's local pool.
pub fn other_hosts(host: &HostFacts, pool: &Pool) -> Refusal {
    let owner = match &pool.kind {
        PoolKind::File(folder) => folder.host.as_deref().unwrap_or("another host"),
        PoolKind::Rbd(_) => "another host",
    };
    Refusal::new(
        RefusalCode::OtherHostsLocalPool,
        format!(
            "pool {} is local to {owner}, and this host is {}: use a shared pool or a local pool of {}",
            pool.name, host.host_name, host.host_name
        ),
    )
}

fn rbd_volume(
    host: &HostFacts,
    disk: &Disk,
    name: &str,
    hosts: &[Host],
) -> Result<SourceVolume, Refusal> {
    let image: ImageSpec = name.parse().map_err(|error| {
        Refusal::new(
            RefusalCode::InvalidName,
            format!("disk {} has the RBD source {name:?}: {error}", disk.target),
        )
    })?;
    let refuse = |why: &str| {
        Err(Refusal::new(
            RefusalCode::UnsupportedSource,
            format!("disk {} is rbd image {name}: {why}", disk.target),
        ))
    };
    if image.snapshot.is_some() {
        return refuse("a snapshot is read-only");
    }
    if !matches!(disk.driver.format.as_deref(), None | Some("raw"))
        || !disk.backing_chain.is_empty()
    {
        return refuse("only raw images of one layer are moved");
    }
    let monitors = monitors(hosts);
    let pool = configured_pool(host, disk, &image, monitors.as_ref());
    let address = match (pool, &monitors) {
        (Some((_, address)), _) => address.clone(),
        (None, Some(monitors)) => RbdPoolAddress {
            monitors: monitors.to_ceph_conf(),
            user: disk.auth().and_then(|auth| auth.username.clone()),
            secret_uuid: disk.auth().and_then(|auth| auth.uuid.clone()),
            key_file: None,
            pool: image.pool.to_string(),
            namespace: image.namespace.as_ref().map(ToString::to_string),
        },
        (None, None) => {
            return refuse("it names no monitor and is in no pool of the configuration");
        }
    };
    Ok(SourceVolume {
        location: VolumeLocation::Rbd { address, image: image.image.to_string() },
        named: Named::Rbd { monitors, image },
        pool: pool.map(|(pool, _)| pool.name.clone()),
        mount: None,
        format: VolumeFormat::Raw,
        header: None,
    })
}

/// The pool of the configuration that holds the image; among several the one with the disk's own user.
fn configured_pool<'a>(
    host: &'a HostFacts,
    disk: &Disk,
    image: &ImageSpec,
    monitors: Option<&MonitorList>,
) -> Option<(&'a Pool, &'a RbdPoolAddress)> {
    let user = disk.auth().and_then(|auth| auth.username.as_deref());
    let candidates = || {
        host.pools.iter().filter_map(|pool| match &pool.kind {
            PoolKind::Rbd(rbd)
                if rbd.address.pool == image.pool.as_str()
                    && rbd.address.namespace.as_deref()
                        == image.namespace.as_ref().map(|namespace| namespace.as_str())
                    && may_be_one_cluster(monitors, Some(&rbd.monitors)) =>
            {
                Some((pool, &rbd.address))
            }
            _ => None,
        })
    };
    candidates()
        .find(|(_, address)| address.user.as_deref() == user)
        .or_else(|| candidates().next())
}
