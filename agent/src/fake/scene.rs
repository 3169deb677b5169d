//! A small host to start from: two Ceph clusters, two folders, and guests with one disk each.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rbdutils::monitors::MonitorList;

use super::World;
use super::domain::Domain;
use super::folder::{File, Folder};
use super::rbd::{CephPool, Cluster, Image};
use super::secret::{Header, Secret};
use super::state::State;
use super::xml::{self, escaped};
use crate::facts::HostFacts;
use crate::ports::{DomainState, FileOwner, Snapshots};
use crate::spec::{
    DiskReference, DomainReference, DomainUuid, EncryptionWish, FilePool, FilePoolKind, HeaderKind,
    Limits, Method, MigrateSpec, OperationId, Passphrases, Pool, PoolKind, PoolName, RbdPool,
    RbdPoolAddress, RequestPools, Subject, VolumeFormat, VolumeLocation, VolumeName,
};

/// What every disk of a guest holds.
pub const DISK_SIZE: u64 = 1 << 30;
/// What of it is written.
pub const DISK_ALLOCATED: u64 = 512 << 20;
/// Room in every pool at first.
pub const ROOM: u64 = 100 << 30;

/// The target of a running guest's disk, with the name QEMU has for its device.
pub(super) const TARGET_WITH_ALIAS: &str =
    "<target dev='vda' bus='virtio'/>\n      <alias name='virtio-disk0'/>";

/// The secret of an encrypted disk of a guest.
pub const SOURCE_SECRET: &str = "20000000-0000-4000-8000-0000000000bb";

const SECRET: &str = "10000000-0000-4000-8000-0000000000aa";
const FOLDERS: [(&str, &str, FilePoolKind); 2] = [
    ("nfs-1", "/mnt/nfs-1", FilePoolKind::Nfs),
    ("smp-1", "/srv/smp-1", FilePoolKind::SharedMountPoint),
];
const CEPH: [(&str, &str, &str); 2] =
    [("ceph-hdd", "192.0.2.11:6789", "hdd"), ("ceph-ssd", "198.51.100.21:6789", "ssd")];

/// A world with pools, and the configuration an agent has for it.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The world.
    pub world: World,
    /// The configuration.
    pub host: HostFacts,
}

/// Where a guest's disk lies at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// On pool `ceph-hdd`.
    Rbd,
    /// On pool `nfs-1`, as qcow2.
    File,
}

/// A guest with the disk `vda`.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Its uuid.
    pub uuid: DomainUuid,
    /// Its name.
    pub name: String,
    /// Where its disk is at first.
    pub volume: VolumeLocation,
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// Pools `ceph-hdd`, `ceph-ssd`, `nfs-1` and `smp-1`, all empty.
    pub fn new() -> Self {
        let world = World::new();
        let mut pools = Vec::new();
        for (name, monitors, pool) in CEPH {
            let kind = PoolKind::Rbd(ceph(&world, monitors, pool));
            pools.push(Pool { name: pool_name(name), kind, operations: None });
        }
        for (index, (name, path, kind)) in FOLDERS.into_iter().enumerate() {
            let path = PathBuf::from(path);
            let device = 40 + index as u64;
            let owner = FileOwner { uid: 0, gid: 0, mode: 0o755 };
            let folder = Folder {
                device,
                available: ROOM,
                total: 2 * ROOM,
                mounted: true,
                owner,
                root_is_root: true,
                probed: true,
                forces_owner: None,
            };
            world.with(|state| state.folders.insert(path.clone(), folder));
            let kind = PoolKind::File(FilePool { kind, path, host: None, must_be_mounted: true });
            pools.push(Pool { name: pool_name(name), kind, operations: None });
        }
        world.with(|state| state.secrets.insert(SECRET.to_owned()));
        let host = HostFacts {
            host_name: "host-a".to_owned(),
            pools,
            limits: Limits::default(),
            source_retention: std::time::Duration::ZERO,
            request_pools: RequestPools::default(),
        };
        Self { world, host }
    }

    /// Where a volume of that name is in a pool.
    ///
    /// # Panics
    /// When the scene has no such pool.
    pub fn place(&self, pool: &str, volume: &str) -> VolumeLocation {
        let found = self.host.pools.iter().find(|known| known.name.as_str() == pool);
        match &found.expect("a pool of the scene").kind {
            PoolKind::Rbd(rbd) => {
                VolumeLocation::Rbd { address: rbd.address.clone(), image: volume.to_owned() }
            }
            PoolKind::File(folder) => VolumeLocation::File { path: folder.path.join(volume) },
        }
    }

    /// A running guest whose disk `vda` is called `NAME-root` on RBD, `NAME-root.qcow2` in a folder.
    pub fn guest(&self, name: &str, home: Home, persistent: bool) -> Guest {
        let volume = match home {
            Home::Rbd => self.place("ceph-hdd", &format!("{name}-root")),
            Home::File => self.place("nfs-1", &format!("{name}-root.qcow2")),
        };
        self.world.with(|state| {
            put(state, &volume, DISK_SIZE, DISK_ALLOCATED);
            let number = state.number();
            let uuid = format!("70000000-0000-4000-8000-{number:012x}");
            let uuid = DomainUuid::new(uuid).expect("a uuid in its canonical form");
            let stored = domain_xml(name, &uuid, &[("vda", &volume)], None);
            let domain = Domain {
                name: name.to_owned(),
                state: DomainState::ShutOff,
                persistent,
                live_xml: stored.clone(),
                inactive_xml: persistent.then_some(stored),
                snapshots: Snapshots::default(),
                managed_save: false,
                qemu: None,
                stray: false,
            };
            state.domains.insert(uuid.clone(), domain);
            let live = domain_xml(name, &uuid, &[("vda", &volume)], Some(number));
            state.start(&uuid, &live);
            Guest { uuid, name: name.to_owned(), volume }
        })
    }
}

impl Scene {
    /// A volume of a pool that no domain uses, as a guest that is not there.
    ///
    /// # Panics
    /// When the scene has no such pool.
    pub fn volume(&self, pool: &str, name: &str) -> Guest {
        let volume = self.place(pool, name);
        self.world.with(|state| put(state, &volume, DISK_SIZE, DISK_ALLOCATED));
        Guest { uuid: DomainUuid::none(), name: format!("{pool}/{name}"), volume }
    }
}

impl Scene {
    /// Encrypts the disk of a guest as if it had always been, and gives libvirt its secret.
    ///
    /// # Panics
    /// When the guest's disk is not where it was at first.
    pub fn encrypt(&self, guest: &Guest, kind: HeaderKind, passphrase: &[u8]) {
        let (format, engine) = match kind {
            HeaderKind::QemuLuks1 => ("luks", ""),
            HeaderKind::LibrbdLuks1 => ("luks", " engine='librbd'"),
            HeaderKind::LibrbdLuks2 => ("luks2", " engine='librbd'"),
        };
        let element = format!(
            "<encryption format='{format}'{engine}><secret type='passphrase' uuid='{SOURCE_SECRET}'/></encryption>"
        );
        let encrypted =
            |text: &str| text.replacen("<target dev", &format!("{element}\n      <target dev"), 1);
        self.world.with(|state| {
            let header = Header { kind, passphrase: passphrase.to_vec() };
            state.set_header(&guest.volume, Some(header));
            let secret = Secret {
                usage: guest.volume.to_string(),
                description: None,
                ephemeral: false,
                value: Some(passphrase.to_vec()),
            };
            state.volume_secrets.insert(SOURCE_SECRET.to_owned(), secret);
            let domain = state.domains.get_mut(&guest.uuid).expect("a guest of the scene");
            domain.live_xml = encrypted(&domain.live_xml);
            domain.inactive_xml = domain.inactive_xml.as_deref().map(encrypted);
        });
    }
}

impl Scene {
    /// Encrypts a volume that no domain uses, as if it had always been.
    ///
    /// # Panics
    /// When there is no such volume.
    pub fn encrypt_volume(&self, volume: &Guest, kind: HeaderKind, passphrase: &[u8]) {
        let header = Header { kind, passphrase: passphrase.to_vec() };
        self.world.with(|state| state.set_header(&volume.volume, Some(header)));
    }
}

impl Guest {
    /// The request to move the volume, which no domain uses, to `pool`.
    ///
    /// # Panics
    /// When it is not one of [`Scene::volume`].
    pub fn volume_request(&self, pool: &str) -> MigrateSpec {
        let (from, name) = self.name.split_once('/').expect("a volume of the scene");
        let raw = name.rsplit_once('.').is_none_or(|(_, suffix)| suffix != "qcow2");
        MigrateSpec {
            subject: Subject::Volume {
                volume_pool: pool_name(from),
                volume_name: VolumeName::new(name).expect("a plain name"),
                volume_format: if raw { VolumeFormat::Raw } else { VolumeFormat::Qcow2 },
                volume_encryption: None,
            },
            ..self.request(pool)
        }
    }

    /// The request to move its disk to `pool`, under a new operation id.
    pub fn request(&self, pool: &str) -> MigrateSpec {
        MigrateSpec {
            operation: OperationId::random(),
            subject: Subject::Disk {
                domain: DomainReference::from(self.uuid.clone()),
                disk: DiskReference::new("vda").expect("a plain target"),
            },
            to: pool_name(pool),
            pool: None,
            destination_volume: None,
            bandwidth: None,
            keep_source: false,
            keep_source_name: false,
            delete_source_snapshots: false,
            write_blocking: false,
            manual_pivot: false,
            deadline: None,
            allow_checkpoint_loss: BTreeSet::new(),
            live: false,
            no_compare: false,
            expected_size: None,
            encryption: EncryptionWish::default(),
            passphrases: Passphrases::default(),
            method: Method::Auto,
            iotune: None,
        }
    }
}

fn pool_name(name: &str) -> PoolName {
    PoolName::new(name).expect("a plain name")
}

fn ceph(world: &World, monitors: &str, pool: &str) -> RbdPool {
    let monitors =
        MonitorList::parse(monitors, 6789).expect("monitors of the scene are well formed");
    let empty = CephPool { available: ROOM, ..CephPool::default() };
    let number = world.with(|state| state.number());
    let cluster = Cluster {
        fsid: format!("40000000-0000-4000-8000-{number:012x}"),
        monitors: monitors.clone(),
        reachable: true,
        key_accepted: true,
        pools: [(pool.to_owned(), empty)].into(),
    };
    world.with(|state| state.clusters.push(cluster));
    let address = RbdPoolAddress {
        monitors: monitors.to_ceph_conf(),
        user: Some("volferry".to_owned()),
        secret_uuid: Some(SECRET.to_owned()),
        key_file: None,
        pool: pool.to_owned(),
        namespace: None,
    };
    RbdPool { monitors, address }
}

/// Puts a volume there, in place of whatever has the name.
///
/// # Panics
/// When its pool does not exist.
pub fn put(state: &mut State, place: &VolumeLocation, size: u64, allocated: u64) {
    let number = state.number();
    match place {
        VolumeLocation::Rbd { address, image } => {
            let id = format!("{:012x}", 0xdef000 + number);
            let pool = state.pool_mut(address).expect("a pool of the scene");
            pool.images.insert(image.clone(), Image { id, size, allocated, ..Image::default() });
        }
        VolumeLocation::File { path } => {
            let raw = path.extension().is_none_or(|suffix| suffix != "qcow2");
            let format = if raw { VolumeFormat::Raw } else { VolumeFormat::Qcow2 };
            let owner = FileOwner { uid: 64055, gid: 108, mode: 0o600 };
            let inode = number;
            let file = File {
                link: false,
                inode,
                format,
                size,
                allocated,
                owner,
                snapshots: vec![],
                backing: None,
                backing_format: None,
                data_file: false,
                encryption: None,
                sealed: false,
            };
            state.files.insert(path.clone(), file);
        }
    }
    if let Some(volume) = state.volume(place) {
        state.scribble(&volume.identity);
    }
}

/// A disk of a domain, by its target; QEMU's name of the device is in the XML of a running one.
fn disk_xml(target: &str, number: usize, volume: &VolumeLocation, runs: bool) -> String {
    let (kind, format, source) = match volume {
        VolumeLocation::File { path } => {
            ("file", "qcow2", format!("<source file='{}'/>", escaped(&path.display().to_string())))
        }
        VolumeLocation::Rbd { address, image } => {
            let hosts = xml::hosts(&address.monitors);
            let name = escaped(&address.image_path(image));
            let user = address.user.as_deref().unwrap_or("admin");
            let secret = address.secret_uuid.as_deref().unwrap_or(SECRET);
            let source = format!(
                "<auth username='{user}'>\n        <secret type='ceph' uuid='{secret}'/>\n      </auth>\n      \
                 <source protocol='rbd' name='{name}'>\n        {hosts}\n      </source>"
            );
            ("network", "raw", source)
        }
    };
    let alias = match runs {
        true => format!("\n      <alias name='virtio-disk{number}'/>"),
        false => String::new(),
    };
    let slot = 6 + number;
    format!(
        "    <disk type='{kind}' device='disk'>
      <driver name='qemu' type='{format}' cache='none' discard='unmap'/>
      {source}
      <target dev='{target}' bus='virtio'/>{alias}
      <address type='pci' domain='0x0000' bus='0x00' slot='0x{slot:02x}' function='0x0'/>
    </disk>
"
    )
}

/// A domain with these disks; with an id it is the XML of a running one.
pub(super) fn domain_xml(
    name: &str,
    uuid: &DomainUuid,
    disks: &[(&str, &VolumeLocation)],
    id: Option<u64>,
) -> String {
    let mut all = String::new();
    for (number, (target, volume)) in disks.iter().enumerate() {
        all += &disk_xml(target, number, volume, id.is_some());
    }
    let id = id.map_or_else(String::new, |id| format!(" id='{id}'"));
    format!(
        "<domain type='kvm'{id}>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>256</memory>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
  </os>
  <devices>
{all}  </devices>
  <seclabel type='dynamic' model='dac' relabel='yes'>
    <label>+64055:+108</label>
  </seclabel>
</domain>
"
    )
}
