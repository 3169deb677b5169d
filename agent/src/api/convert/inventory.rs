//! Disks, pools and the host as the wire has them.

use crate::api::pb;
use crate::engine::{DiskListing, HostListing, PoolListing, PoolPlace};
use crate::facts::LibrbdCopy;
use crate::plan::Refusal;

impl From<&DiskListing> for pb::Disk {
    fn from(disk: &DiskListing) -> Self {
        let immovable = disk
            .immovable
            .as_ref()
            .map(|(code, message)| pb::Refusal::from(&Refusal::new(*code, message.as_str())));
        Self {
            target: disk.target.to_string(),
            source: disk.source.clone(),
            format: disk.format.clone().unwrap_or_default(),
            pool: disk.pool.as_ref().map(ToString::to_string).unwrap_or_default(),
            immovable,
        }
    }
}

impl From<&PoolListing> for pb::Pool {
    fn from(pool: &PoolListing) -> Self {
        let (mut folder, mut ceph_pool, mut monitors) = Default::default();
        match &pool.place {
            PoolPlace::Folder(path) => folder = path.display().to_string(),
            PoolPlace::Ceph(address) => {
                ceph_pool = address.image_path("").trim_end_matches('/').to_owned();
                monitors = address.monitors.clone();
            }
        }
        Self {
            folder,
            ceph_pool,
            monitors,
            name: pool.name.to_string(),
            r#type: pool.type_name.to_owned(),
            location: pool.location.clone(),
            available_bytes: pool.available.map(|bytes| bytes.0),
            problem: pool.problem.clone().unwrap_or_default(),
            of_libvirt: pool.of_libvirt,
        }
    }
}

impl From<&HostListing> for pb::HostCapabilities {
    fn from(host: &HostListing) -> Self {
        let (libvirt, qemu) = match &host.versions {
            Some(versions) => (versions.libvirt.clone(), versions.qemu.clone()),
            None => (String::new(), String::new()),
        };
        Self {
            host_name: host.host_name.clone(),
            agent_version: host.agent_version.to_owned(),
            libvirt_connected: host.connected,
            libvirt_version: libvirt,
            qemu_version: qemu,
            luks2_librbd: match &host.librbd {
                Some(LibrbdCopy::Works) => "works".to_owned(),
                Some(LibrbdCopy::Fails(text)) => format!("fails: {text}"),
                None => String::new(),
            },
        }
    }
}
