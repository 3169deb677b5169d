//! What libvirt writes into a domain's XML when a copy starts, becomes ready, ends and is switched to.

use rbdutils::monitors::{MonitorHost, MonitorList};
use volferry_xml::{
    DestinationEncryption, DestinationFormat, DestinationHost, DestinationSource, Disk, DomainXml,
    EncryptionEngine, EncryptionFormat, Source,
};

use super::state::State;
use crate::plan::source::Named;
use crate::spec::{IoTune, RbdPoolAddress, VolumeLocation};

/// The disk of a `<disk>` that stands alone.
pub fn lone_disk(xml: &str) -> Option<Disk> {
    let domain = DomainXml::parse(&format!("<domain><devices>{xml}</devices></domain>")).ok()?;
    domain.disks().first().cloned()
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

/// The hosts of a source element for monitors in the form of ceph.conf; none of those libvirt has no form for.
pub(super) fn hosts(monitors: &str) -> String {
    let parsed = MonitorList::parse(monitors, 0).and_then(|list| list.to_libvirt_hosts());
    let host = |host: MonitorHost| match host.port {
        Some(port) => format!("<host name='{}' port='{port}'/>", escaped(&host.name)),
        None => format!("<host name='{}'/>", escaped(&host.name)),
    };
    parsed.map(|hosts| hosts.into_iter().map(host).collect()).unwrap_or_default()
}

/// The volume a source element names.
pub fn volume(state: &State, source: &Source, user: Option<&str>) -> Option<VolumeLocation> {
    match Named::of(source)? {
        Named::File(path) => Some(VolumeLocation::File { path }),
        Named::Rbd { monitors, image } => {
            let cluster = state.clusters.iter().find(|cluster| {
                monitors.as_ref().is_none_or(|list| list.shares_a_monitor_with(&cluster.monitors))
            })?;
            let address = RbdPoolAddress {
                monitors: cluster.monitors.to_ceph_conf(),
                user: user.map(str::to_owned),
                secret_uuid: None,
                key_file: None,
                pool: image.pool.to_string(),
                namespace: image.namespace.as_ref().map(ToString::to_string),
            };
            Some(VolumeLocation::Rbd { address, image: image.image.to_string() })
        }
    }
}

fn source_xml(source: &Source) -> (&'static str, String) {
    match source {
        Source::Network { protocol, name, hosts, .. } => {
            let hosts: String = hosts
                .iter()
                .map(|host| {
                    let name = escaped(host.name.as_deref().unwrap_or_default());
                    match &host.port {
                        Some(port) => format!("<host name='{name}' port='{port}'/>"),
                        None => format!("<host name='{name}'/>"),
                    }
                })
                .collect();
            let name = escaped(name.as_deref().unwrap_or_default());
            ("network", format!("<source protocol='{protocol}' name='{name}'>{hosts}</source>"))
        }
        other => {
            let path = escaped(&other.reference().unwrap_or_default());
            ("file", format!("<source file='{path}'/>"))
        }
    }
}

/// The domain's XML with a `<mirror>` on the disk, in place of the one it has.
pub fn with_mirror(xml: &str, target: &str, copy: &Disk, ready: bool) -> String {
    let plain = without_mirror(xml, target);
    let (kind, source) = source_xml(&copy.source);
    let format = copy.driver.format.as_deref().unwrap_or("raw");
    let ready = if ready { " ready='yes'" } else { "" };
    let mirror = format!(
        "<mirror type='{kind}' job='copy'{ready}>\n        <format type='{format}'/>\n        {source}\n      \
         </mirror>\n    </disk>"
    );
    edited(&plain, target, |disk| disk.replace("</disk>", &mirror))
}

/// The domain's XML without a `<mirror>` on the disk.
pub fn without_mirror(xml: &str, target: &str) -> String {
    const END: &str = "</mirror>\n    ";
    edited(xml, target, |disk| match (disk.find("<mirror "), disk.find(END)) {
        (Some(start), Some(end)) => format!("{}{}", &disk[..start], &disk[end + END.len()..]),
        _ => disk.to_owned(),
    })
}

/// The domain's XML with these limits on the disk, beside those it has.
pub fn with_iotune(xml: &str, target: &str, tune: &IoTune) -> String {
    const END: &str = "</iotune>\n    ";
    edited(xml, target, |disk| {
        let (rest, mut limits) = match (disk.find("<iotune>"), disk.find(END)) {
            (Some(start), Some(end)) => {
                let found = disk[start + "<iotune>".len()..end].to_owned();
                (format!("{}{}", &disk[..start], &disk[end + END.len()..]), found)
            }
            _ => (disk.to_owned(), String::new()),
        };
        for (limit, value) in tune.iter() {
            let (open, close) = (format!("<{limit}>"), format!("</{limit}>"));
            if let (Some(start), Some(end)) = (limits.find(&open), limits.find(&close)) {
                limits.replace_range(start..end + close.len(), "");
            }
            if value > 0 {
                limits.push_str(&format!("{open}{value}{close}"));
            }
        }
        rest.replace("</disk>", &format!("<iotune>{limits}{END}</disk>"))
    })
}

/// The domain's XML without the disk.
pub fn without_disk(xml: &str, target: &str) -> String {
    let Ok(domain) = DomainXml::parse(xml) else { return xml.to_owned() };
    let Ok(disk) = domain.find_disk(target) else { return xml.to_owned() };
    xml.replacen(disk.element_text(&domain), "", 1)
}

fn edited(xml: &str, target: &str, edit: impl FnOnce(&str) -> String) -> String {
    let Ok(domain) = DomainXml::parse(xml) else { return xml.to_owned() };
    let Ok(disk) = domain.find_disk(target) else { return xml.to_owned() };
    let element = edit(disk.element_text(&domain));
    domain.with_disk_replaced(target, &element).unwrap_or_else(|_| xml.to_owned())
}

/// The domain's XML with the disk on the copy.
pub fn moved(xml: &str, target: &str, copy: &Disk) -> String {
    let Ok(domain) = DomainXml::parse(xml) else { return xml.to_owned() };
    let format = match copy.driver.format.as_deref() {
        Some("qcow2") => DestinationFormat::Qcow2,
        _ => DestinationFormat::Raw,
    };
    let source = destination_source(copy);
    let encryption = copy.encryption.as_ref().map(|known| DestinationEncryption {
        format: match known.format.as_deref() {
            Some("luks2") => EncryptionFormat::Luks2,
            _ => EncryptionFormat::Luks,
        },
        engine: match known.engine.as_deref() {
            Some("librbd") => EncryptionEngine::Librbd,
            _ => EncryptionEngine::Qemu,
        },
        secret_uuid: known.secret_uuid.clone().unwrap_or_default(),
    });
    domain
        .with_disk_volume_replaced(target, &source, format, encryption.as_ref())
        .unwrap_or_else(|_| xml.to_owned())
}

fn destination_source(copy: &Disk) -> DestinationSource {
    match &copy.source {
        Source::Network { name, hosts, .. } => DestinationSource::Rbd {
            name: name.clone().unwrap_or_default(),
            hosts: hosts
                .iter()
                .map(|host| DestinationHost {
                    name: host.name.clone().unwrap_or_default(),
                    port: host.port.as_deref().and_then(|port| port.parse().ok()),
                })
                .collect(),
            user: copy.auth().and_then(|auth| auth.username.clone()),
            secret_uuid: copy.auth().and_then(|auth| auth.uuid.clone()),
        },
        other => DestinationSource::File { path: other.reference().unwrap_or_default() },
    }
}

/// Whether a disk of two texts has the same source.
pub fn same_source(one: &str, other: &str, target: &str) -> bool {
    let source = |text: &str| {
        let xml = DomainXml::parse(text).ok()?;
        xml.find_disk(target).ok().map(|disk| disk.source.clone())
    };
    match (source(one).as_ref().map(Named::of), source(other).as_ref().map(Named::of)) {
        (Some(Some(one)), Some(Some(other))) => one.may_be(&other),
        _ => false,
    }
}

/// A file name as `query-block` prints it.
pub fn qemu_file_name(volume: &VolumeLocation) -> String {
    match volume {
        VolumeLocation::File { path } => path.display().to_string(),
        VolumeLocation::Rbd { address, image } => {
            let mut file = serde_json::json!({
                "driver": "rbd", "pool": address.pool, "image": image,
            });
            if let Some(namespace) = &address.namespace {
                file["namespace"] = namespace.as_str().into();
            }
            let hosts = MonitorList::parse(&address.monitors, 0)
                .and_then(|monitors| monitors.to_libvirt_hosts())
                .unwrap_or_default();
            for (index, host) in hosts.iter().enumerate() {
                file[format!("server.{index}.host")] = host.name.as_str().into();
                let port = host.port.unwrap_or(0).to_string();
                file[format!("server.{index}.port")] = port.into();
            }
            format!("json:{}", serde_json::json!({ "driver": "raw", "file": file }))
        }
    }
}
