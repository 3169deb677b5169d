//! PURE: a volume that belongs to no domain, as the XML of a domain that has nothing else, so that the rules for disks
//! judge it too.

use rbdutils::monitors::MonitorList;
use volferry_xml::{DestinationFormat, DestinationHost, DestinationSource, DomainXml};

use super::encryption;
use super::refusal::{Refusal, RefusalCode};
use super::route::find_pool;
use crate::facts::HostFacts;
use crate::spec::{
    DiskTarget, EncryptionWish, HeaderKind, PoolKind, PoolName, VolumeFormat, VolumeLocation,
    VolumeName,
};

/// The disk is there only to be replaced.
const TEMPLATE: &str = "<domain><devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>\
    <source file='/'/><target dev='volume'/></disk></devices></domain>";

/// Where the volume is.
///
/// Errors: the pool.
pub fn location(
    host: &HostFacts,
    pool: &PoolName,
    volume: &VolumeName,
) -> Result<VolumeLocation, Refusal> {
    let (pool, _) = find_pool(host, &[], pool)?;
    Ok(match &pool.kind {
        PoolKind::File(folder) => VolumeLocation::File { path: folder.path.join(volume.as_str()) },
        PoolKind::Rbd(rbd) => {
            VolumeLocation::Rbd { address: rbd.address.clone(), image: volume.to_string() }
        }
    })
}

/// The encryption header a volume is said to have; none of a plain one.
///
/// Errors: a header that no volume of the kind has, and one that is not said although only that tells it.
pub fn header(
    location: &VolumeLocation,
    format: VolumeFormat,
    said: Option<HeaderKind>,
    wish: &EncryptionWish,
) -> Result<Option<HeaderKind>, Refusal> {
    let refuse = |why: String| Err(Refusal::new(RefusalCode::EncryptionUnsupported, why));
    let is_rbd = matches!(location, VolumeLocation::Rbd { .. });
    match (said, format) {
        (Some(header), _) if header.is_librbds() && !(is_rbd && format == VolumeFormat::Raw) => {
            refuse(format!("{location} is {format}, and {header} is only for raw images of Ceph"))
        }
        (Some(header), _) => Ok(Some(header)),
        (None, VolumeFormat::Qcow2) if wish.source_passphrase || wish.decrypt => {
            Ok(Some(HeaderKind::QemuLuks1))
        }
        (None, VolumeFormat::Raw) if wish.source_passphrase || wish.decrypt => {
            let known: Vec<_> = HeaderKind::ALL
                .into_iter()
                .filter(|header| is_rbd || !header.is_librbds())
                .map(HeaderKind::as_str)
                .collect();
            refuse(format!(
                "{location}: how a raw volume is encrypted is never guessed: say it with --volume-encryption ({})",
                known.join(", ")
            ))
        }
        (None, _) => Ok(None),
    }
}

/// The XML; its disk is [`DiskTarget::of_volume`]. The secret it names for an encrypted volume is nobody's.
///
/// Errors: a name that XML cannot carry, monitors that cannot be told.
pub fn xml(
    location: &VolumeLocation,
    format: VolumeFormat,
    header: Option<HeaderKind>,
) -> Result<String, Refusal> {
    let nobodys = uuid::Uuid::nil().to_string();
    let encryption = header.map(|header| encryption::xml_of(header, &nobodys));
    let invalid = |text: String| Refusal::new(RefusalCode::InvalidName, text);
    let source = source(location).map_err(invalid)?;
    let target = DiskTarget::of_volume();
    DomainXml::parse(TEMPLATE)
        .ok()
        .and_then(|xml| {
            let (target, format) = (target.as_str(), xml_format(format));
            xml.with_disk_volume_replaced(target, &source, format, encryption.as_ref()).ok()
        })
        .ok_or_else(|| invalid(format!("{location} has a character that XML cannot carry")))
}

/// The format in the words of the XML.
pub fn xml_format(format: VolumeFormat) -> DestinationFormat {
    match format {
        VolumeFormat::Raw => DestinationFormat::Raw,
        VolumeFormat::Qcow2 => DestinationFormat::Qcow2,
    }
}

/// A volume as the source of a disk.
///
/// Errors: why it cannot be written there.
pub fn source(volume: &VolumeLocation) -> Result<DestinationSource, String> {
    match volume {
        VolumeLocation::File { path } => match path.to_str() {
            Some(path) => Ok(DestinationSource::File { path: path.to_owned() }),
            None => Err(format!("{path:?} is not UTF-8")),
        },
        VolumeLocation::Rbd { address, image } => {
            let hosts = MonitorList::parse(&address.monitors, 0)
                .and_then(|monitors| monitors.to_libvirt_hosts())
                .map_err(|error| error.to_string())?;
            Ok(DestinationSource::Rbd {
                name: address.image_path(image),
                hosts: hosts
                    .into_iter()
                    .map(|host| DestinationHost { name: host.name, port: host.port })
                    .collect(),
                user: address.user.clone(),
                secret_uuid: address.secret_uuid.clone(),
            })
        }
    }
}
