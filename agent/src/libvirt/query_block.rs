//! QEMU's answer to `query-block`, read into what the guest really uses. Pure.

use serde::Deserialize;
use serde_json::Value;

use crate::ports::{ErrorClass, PortError, QemuBlockDevice};

/// The command, as the monitor takes it.
pub(super) const COMMAND: &str = r#"{"execute":"query-block"}"#;

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "return")]
    devices: Option<Vec<Device>>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    desc: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Device {
    #[serde(default)]
    device: String,
    qdev: Option<String>,
    io_status: Option<String>,
    inserted: Option<Inserted>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Inserted {
    node_name: Option<String>,
    drv: Option<String>,
    file: Option<String>,
    image: Option<Value>,
}

/// Reads the answer. Errors: QEMU's own refusal, or an answer in another form than known.
pub(super) fn parse(operation: &str, answer: &str) -> Result<Vec<QemuBlockDevice>, PortError> {
    let other = |text: String| PortError::new(ErrorClass::Other, operation, text);
    let answer: Answer = serde_json::from_str(answer)
        .map_err(|error| other(format!("QEMU's answer is not understood: {error}")))?;
    if let Some(failure) = answer.error {
        return Err(other(failure.desc));
    }
    let devices = answer.devices.ok_or_else(|| other("QEMU's answer has no devices".to_owned()))?;
    Ok(devices.into_iter().map(device).collect())
}

fn device(device: Device) -> QemuBlockDevice {
    let inserted = device.inserted;
    let (node_name, driver, file_name, image) = match inserted {
        Some(inserted) => (inserted.node_name, inserted.drv, inserted.file, inserted.image),
        None => (None, None, None, None),
    };
    QemuBlockDevice {
        qdev: device.qdev.unwrap_or(device.device),
        node_name,
        driver,
        file_name,
        image_json: image.map(|image| image.to_string()),
        io_status: device.io_status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_and_an_empty_drive_are_read() {
        let answer = r#"{"return":[
            {"io-status":"ok","device":"","locked":false,"removable":false,"type":"unknown",
             "qdev":"/machine/peripheral/virtio-disk0/virtio-backend",
             "inserted":{"iops_rd":0,"node-name":"libvirt-1-format","drv":"qcow2","file":"/p/a.qcow2",
                         "image":{"filename":"/p/a.qcow2","format":"qcow2","virtual-size":1}}},
            {"device":"","removable":true,"qdev":"ide0-0-0","tray_open":false,"type":"unknown"}
            ],"id":"libvirt-380"}"#;
        let devices = parse("query-block", answer).unwrap_or_default();
        assert_eq!(devices.len(), 2);
        assert_eq!(devices[0].file_name.as_deref(), Some("/p/a.qcow2"));
        assert_eq!(devices[0].driver.as_deref(), Some("qcow2"));
        assert!(devices[0].image_json.as_deref().is_some_and(|json| json.contains("/p/a.qcow2")));
        assert_eq!(devices[1].qdev, "ide0-0-0");
        assert_eq!(devices[1].node_name, None);
    }

    #[test]
    fn a_refusal_is_passed_on_in_qemus_words() {
        let answer = r#"{"id":"libvirt-1","error":{"class":"GenericError","desc":"no"}}"#;
        let error = parse("query-block of x", answer).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("query-block of x: no"));
    }
}
