//! PURE: a volume that belongs to no domain, as the XML of a domain that has nothing else, so that the rules for disks
//! judge it too.

use rbdutils::monitors::MonitorList;
use volferry_xml::{DestinationFormat, DestinationHost, DestinationSource, DomainXml};

use super::refusal::{Refusal, RefusalCode};
use super::route::find_pool;
use crate::facts::HostFacts;
use crate::spec::{DiskTarget, PoolKind, PoolName, VolumeFormat, VolumeLocation, VolumeName};

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

/// The XML; its disk is [`DiskTarget::of_volume`].
///
/// Errors: a name that XML cannot carry, monitors that cannot be told.
pub fn xml(location: &VolumeLocation, format: VolumeFormat) -> Result<String, Refusal> {
    let invalid = |text: String| Refusal::new(RefusalCode::InvalidName, text);
    let source = source(location).map_err(invalid)?;
    let target = DiskTarget::of_volume();
    DomainXml::parse(TEMPLATE)
        .ok()
        .and_then(|xml| {
            xml.with_disk_volume_replaced(target.as_str(), &source, xml_format(format), None).ok()
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
