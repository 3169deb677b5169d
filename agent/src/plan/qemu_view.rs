//! PURE: reading what QEMU says a device really uses, and comparing it with where we believe the volume is.

use std::path::Path;

use rbdutils::monitors::MonitorList;
use serde_json::Value;

use crate::ports::QemuBlockDevice;
use crate::spec::VolumeLocation;

/// QEMU's device of the disk with this alias.
///
/// libvirt names devices by alias; `query-block` prints it bare (`scsi0-0-1`) or as the path
/// `/machine/peripheral/ALIAS[/..]`.
pub fn device<'a>(devices: &'a [QemuBlockDevice], alias: &str) -> Option<&'a QemuBlockDevice> {
    devices.iter().find(|device| {
        let path = device.qdev.strip_prefix("/machine/peripheral/").unwrap_or(&device.qdev);
        path.split('/').next() == Some(alias)
    })
}

/// Whether the device's top image is `volume`; none when QEMU's words are not understood.
pub fn uses(device: &QemuBlockDevice, volume: &VolumeLocation) -> Option<bool> {
    let name = device.file_name.as_deref()?;
    let Some(json) = name.strip_prefix("json:") else {
        return Some(match volume {
            VolumeLocation::File { path } => Path::new(name) == path,
            VolumeLocation::Rbd { .. } => false,
        });
    };
    let options: Value = serde_json::from_str(json).ok()?;
    let protocol = innermost(&options);
    let text = |key: &str| protocol.get(key).and_then(Value::as_str);
    match (text("driver")?, volume) {
        ("rbd", VolumeLocation::Rbd { address, image }) => Some(
            text("pool") == Some(address.pool.as_str())
                && text("image") == Some(image.as_str())
                && text("namespace").filter(|namespace| !namespace.is_empty())
                    == address.namespace.as_deref()
                && same_cluster(protocol, &address.monitors),
        ),
        ("file", VolumeLocation::File { path }) => {
            Some(text("filename").is_some_and(|name| Path::new(name) == path))
        }
        (_, _) => Some(false),
    }
}

/// The protocol layer: QEMU nests it under `file`.
fn innermost(options: &Value) -> &Value {
    let mut layer = options;
    // A block graph is never nested this deep; the bound only ends a hostile text.
    for _ in 0..64 {
        match layer.get("file") {
            Some(file) if file.is_object() => layer = file,
            _ => break,
        }
    }
    layer
}

/// A cluster is another one only when both sides name monitors and share none.
fn same_cluster(protocol: &Value, monitors: &str) -> bool {
    let servers: Vec<String> = servers(protocol)
        .into_iter()
        .map(|(host, port)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        })
        .collect();
    match (MonitorList::from_entries(&servers, 0), MonitorList::parse(monitors, 0)) {
        (Ok(qemu), Ok(ours)) => qemu.shares_a_monitor_with(&ours),
        _ => true,
    }
}

/// `server` as an array of objects, or flattened as `server.N.host`.
fn servers(protocol: &Value) -> Vec<(String, String)> {
    let port_of = |value: Option<&Value>| match value {
        Some(Value::String(port)) => port.clone(),
        Some(Value::Number(port)) => port.to_string(),
        _ => "0".to_owned(),
    };
    if let Some(array) = protocol.get("server").and_then(Value::as_array) {
        return array
            .iter()
            .filter_map(|server| {
                let host = server.get("host")?.as_str()?.to_owned();
                Some((host, port_of(server.get("port"))))
            })
            .collect();
    }
    (0..)
        .map_while(|index| {
            let host = protocol.get(format!("server.{index}.host"))?.as_str()?.to_owned();
            Some((host, port_of(protocol.get(format!("server.{index}.port")))))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::RbdPoolAddress;

    fn qemu(qdev: &str, file: &str) -> QemuBlockDevice {
        QemuBlockDevice {
            qdev: qdev.to_owned(),
            node_name: None,
            driver: None,
            file_name: Some(file.to_owned()),
            image_json: None,
            io_status: None,
        }
    }

    fn image(pool: &str, image: &str, monitors: &str) -> VolumeLocation {
        let address = RbdPoolAddress {
            monitors: monitors.to_owned(),
            user: None,
            secret_uuid: None,
            key_file: None,
            pool: pool.to_owned(),
            namespace: None,
        };
        VolumeLocation::Rbd { address, image: image.to_owned() }
    }

    const SEEN: &str = r#"json:{"driver": "raw", "file": {"pool": "vf-a", "image": "q", "server.0.host": "127.0.0.1", "driver": "rbd", "server.0.port": "28147", "user": "volferry"}}"#;

    #[test]
    fn a_device_is_found_by_its_alias_in_both_spellings() {
        let devices = [
            qemu("/machine/peripheral/virtio-disk10/virtio-backend", "/ten"),
            qemu("/machine/peripheral/virtio-disk1/virtio-backend", "/one"),
            qemu("scsi0-0-1", "/scsi"),
        ];
        let file = |alias| device(&devices, alias).and_then(|found| found.file_name.as_deref());
        assert_eq!(file("virtio-disk1"), Some("/one"));
        assert_eq!(file("scsi0-0-1"), Some("/scsi"));
        assert_eq!(file("virtio-disk"), None);
    }

    #[test]
    fn an_image_is_the_same_only_in_the_same_pool_and_cluster() {
        let device = qemu("d", SEEN);
        assert_eq!(uses(&device, &image("vf-a", "q", "127.0.0.1:28147")), Some(true));
        assert_eq!(uses(&device, &image("vf-a", "q2", "127.0.0.1:28147")), Some(false));
        assert_eq!(uses(&device, &image("vf-b", "q", "127.0.0.1:28147")), Some(false));
        assert_eq!(uses(&device, &image("vf-a", "q", "127.0.0.2:28147")), Some(false));
        let file = VolumeLocation::File { path: "/q".into() };
        assert_eq!(uses(&device, &file), Some(false));
    }

    #[test]
    fn a_file_is_compared_by_its_path() {
        let path = VolumeLocation::File { path: "/p/v.qcow2".into() };
        assert_eq!(uses(&qemu("d", "/p/v.qcow2"), &path), Some(true));
        assert_eq!(uses(&qemu("d", "/p/w.qcow2"), &path), Some(false));
        let json = r#"json:{"driver":"qcow2","file":{"driver":"file","filename":"/p/v.qcow2"}}"#;
        assert_eq!(uses(&qemu("d", json), &path), Some(true));
        assert_eq!(uses(&qemu("d", "json:{broken"), &path), None);
    }
}
