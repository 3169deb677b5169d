//! Which domain of this host uses a volume: asked before a move, before the source gets another name, and before
//! what was left behind is removed.

use std::path::{Path, PathBuf};

use rbdutils::qemu::RbdString;
use volferry_xml::{Disk, DomainXml, Source};

use crate::plan::qemu_view;
use crate::plan::source::Named;
use crate::ports::{DomainObservation, ErrorClass, PortError, Ports};
use crate::spec::{DomainUuid, VolumeLocation};

/// A domain other than `own` (any domain without it), running or not, that has an image for which `is_it` holds as a
/// disk, below a disk or as the target of a block job. Looks at the live and the stored XML.
pub async fn other_user(
    ports: &Ports,
    own: Option<&DomainUuid>,
    is_it: impl Fn(&Named) -> bool,
) -> Result<Option<String>, PortError> {
    let others = others(ports, own).await?;
    Ok(by_xml(&others, is_it))
}

/// The same, with what lies below the files of other domains as their headers name it: the XML of a domain that does
/// not run tells nothing of backing files. For removals; one hung file of another domain is then enough not to know.
pub async fn other_user_by_headers(
    ports: &Ports,
    own: Option<&DomainUuid>,
    is_it: impl Fn(&Named) -> bool,
) -> Result<Option<String>, PortError> {
    let others = others(ports, own).await?;
    if let Some(other) = by_xml(&others, &is_it) {
        return Ok(Some(other));
    }
    for other in &others {
        for xml in texts(other) {
            let Ok(xml) = DomainXml::parse(xml) else { continue };
            for disk in xml.disks() {
                if is_below(ports, disk, &is_it).await? {
                    return Ok(Some(other.name.clone()));
                }
            }
        }
    }
    Ok(None)
}

/// A domain, running or not, that names the libvirt secret of this uuid. Looked for in the whole text, for any layer of
/// a disk may use it, and a name too many only keeps it.
///
/// Errors: a domain cannot be described, so what it names is not known.
pub async fn naming_secret(ports: &Ports, uuid: &str) -> Result<Option<String>, PortError> {
    let names = |xml: &str| DomainXml::parse(xml).is_err() || xml.contains(uuid);
    let all = every(ports).await?;
    let user = all.into_iter().find(|domain| texts(domain).any(names));
    Ok(user.map(|domain| domain.name))
}

/// Every domain of the host, described.
///
/// Errors: one of them cannot be described, so what it uses is not known.
pub async fn every(ports: &Ports) -> Result<Vec<DomainObservation>, PortError> {
    others(ports, None).await
}

/// Every domain but `own`.
///
/// Errors: one of them cannot be described, so what it uses is not known.
async fn others(
    ports: &Ports,
    own: Option<&DomainUuid>,
) -> Result<Vec<DomainObservation>, PortError> {
    let mut others = Vec::new();
    for other in ports.domains.list().await? {
        if own == Some(&other.uuid) {
            continue;
        }
        match ports.domains.observe(&other.uuid.clone().into()).await {
            Ok(domain) => others.push(domain),
            // A domain that went away meanwhile uses nothing.
            Err(error) if error.class == ErrorClass::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(others)
}

fn texts(domain: &DomainObservation) -> impl Iterator<Item = &str> {
    std::iter::once(domain.live_xml.as_str()).chain(domain.inactive_xml.as_deref())
}

fn by_xml(others: &[DomainObservation], is_it: impl Fn(&Named) -> bool) -> Option<String> {
    let user = others.iter().find(|other| texts(other).any(|xml| uses(xml, &is_it)));
    user.map(|other| other.name.clone())
}

/// Longer chains are not built by anybody; the bound ends a circle.
const LONGEST_CHAIN: usize = 64;

async fn is_below(
    ports: &Ports,
    disk: &Disk,
    is_it: impl Fn(&Named) -> bool,
) -> Result<bool, PortError> {
    let Source::File { path, .. } = &disk.source else { return Ok(false) };
    let mut path = PathBuf::from(path);
    for _ in 0..LONGEST_CHAIN {
        if !path.is_absolute() {
            return Ok(false);
        }
        let Some(name) = ports.files.backing_file(&path).await? else { return Ok(false) };
        let Some(below) = named(&path, &name) else {
            // A name in a form that is not read here may name anything.
            return Ok(true);
        };
        if is_it(&below) {
            return Ok(true);
        }
        match below {
            Named::File(file) => path = file,
            Named::Rbd { .. } => return Ok(false),
        }
    }
    Ok(false)
}

/// What the name of a backing file in the header of `overlay` stands for.
pub(super) fn named(overlay: &Path, name: &str) -> Option<Named> {
    if name.starts_with("rbd:") {
        let image: RbdString = name.parse().ok()?;
        return Some(Named::Rbd { monitors: image.monitors, image: image.image });
    }
    let plain = name.strip_prefix("file:").unwrap_or(name);
    if !plain.starts_with('/') && plain.contains(':') {
        return None;
    }
    let path = overlay.parent()?.join(plain);
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                parts.pop();
            }
            std::path::Component::CurDir => {}
            part => parts.push(part),
        }
    }
    Some(Named::File(parts))
}

fn uses(xml: &str, is_it: impl Fn(&Named) -> bool) -> bool {
    // What cannot be read may name anything.
    let Ok(xml) = DomainXml::parse(xml) else { return true };
    xml.disks().iter().any(|disk| {
        std::iter::once(&disk.source)
            .chain(disk.backing_chain.iter().map(|layer| &layer.source))
            .chain(disk.mirror.iter().map(|mirror| &mirror.source))
            .filter_map(Named::of)
            .any(|image| is_it(&image))
    })
}

/// Who has a volume open, in words, up to `ours` clients of ours left out. Opens nothing for writing.
pub async fn open_by(
    ports: &Ports,
    volume: &VolumeLocation,
    ours: usize,
) -> Result<Vec<String>, PortError> {
    match volume {
        VolumeLocation::File { path } => ports.files.users(path).await,
        VolumeLocation::Rbd { address, image } => {
            let seen = ports.images.observe(address, image).await?;
            let watchers = seen.map_or_else(Vec::new, |image| image.watchers);
            // Which of them is ours cannot be told from its address.
            Ok(match watchers.len() > ours {
                true => watchers.into_iter().map(|watcher| format!("client {watcher}")).collect(),
                false => vec![],
            })
        }
    }
}

/// Whether the domain's QEMU, asked, may have one of these names open: an image that was renamed while it was open
/// still has its old name there, whatever the XML says by now.
pub async fn qemu_may_use(
    ports: &Ports,
    domain: &DomainUuid,
    names: &[VolumeLocation],
) -> Result<bool, PortError> {
    let devices = match ports.domains.qemu_devices(domain).await {
        Ok(devices) => devices,
        // It does not run.
        Err(error) if error.class == ErrorClass::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let loaded = devices.iter().filter(|device| device.file_name.is_some());
    Ok(loaded
        .into_iter()
        .any(|device| names.iter().any(|name| qemu_view::uses(device, name) != Some(false))))
}
