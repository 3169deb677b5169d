//! The laboratory's settings, guests without an operating system, and waiting for events.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::{Mutex, MutexGuard};
use virt::connect::Connect;
use virt::domain::Domain;
use volferry_agent::libvirt::{LibvirtPorts, Timeouts};
use volferry_agent::ports::{CopyRequest, EventKind, Events, PortError, TimedEvent};
use volferry_agent::spec::{
    BytesPerSecond, CopyFlag, CopyFlags, DiskTarget, DomainUuid, RbdPoolAddress,
};

/// The lab has one daemon and one cluster: one test at a time.
static LAB: Mutex<()> = Mutex::const_new(());
static NUMBER: AtomicU32 = AtomicU32::new(0);

pub struct Lab {
    pub uri: String,
    pub scripts: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// The lab, or none (loudly) when it is not up.
pub async fn lab(test: &str) -> Option<Lab> {
    let (Some(uri), Some(scripts)) = (var("VOLFERRY_LAB_URI"), var("VOLFERRY_LAB_SCRIPTS")) else {
        eprintln!("SKIPPED {test}: VOLFERRY_LAB_URI is not set, the laboratory is not up");
        return None;
    };
    Some(Lab { uri, scripts: scripts.into(), _turn: LAB.lock().await })
}

pub fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub fn need(name: &str) -> String {
    var(name).unwrap_or_else(|| panic!("the lab's settings have {name}"))
}

impl Lab {
    /// Connected ports with waits short enough for a test.
    pub async fn ports(&self) -> Arc<LibvirtPorts> {
        let timeouts = Timeouts {
            read: Duration::from_secs(5),
            qemu: Duration::from_secs(2),
            ..Timeouts::default()
        };
        let ports = LibvirtPorts::connect(&self.uri, timeouts).expect("the URI is valid");
        connected(&ports).await;
        ports
    }

    pub fn ctl(&self, arguments: &[&str]) {
        let script = self.scripts.join("ctl.sh");
        let status = Command::new(script).args(arguments).status().expect("ctl.sh can be run");
        assert!(status.success(), "ctl.sh {arguments:?}");
    }

    pub fn restart_daemon(&self) {
        let mode = var("VOLFERRY_LAB_LIBVIRT_MODE").unwrap_or_else(|| "root".to_owned());
        self.ctl(&["libvirtd-start", "main", &mode]);
    }

    pub fn daemon_pid(&self) -> i32 {
        pid(&daemon_folder(&self.uri).join("libvirtd.pid"))
    }

    /// The lab's Ceph pool `A` or `B`, by the file with the key.
    pub fn rbd(&self, pool: char) -> RbdPoolAddress {
        RbdPoolAddress {
            monitors: format!(
                "{}:{}",
                need("VOLFERRY_LAB_MON_HOST"),
                need("VOLFERRY_LAB_MON_PORT")
            ),
            user: Some(need("VOLFERRY_LAB_RBD_USER")),
            secret_uuid: None,
            key_file: Some(need("VOLFERRY_LAB_KEY_FILE").into()),
            pool: need(&format!("VOLFERRY_LAB_RBD_POOL_{pool}")),
            namespace: None,
        }
    }
}

fn daemon_folder(uri: &str) -> PathBuf {
    let socket = uri.split("socket=").nth(1).expect("the lab's own socket");
    let folder = Path::new(socket).parent().and_then(Path::parent).expect("DIR/sock/NAME");
    folder.to_owned()
}

fn pid(file: &Path) -> i32 {
    let text = std::fs::read_to_string(file).expect("a pid file was written");
    text.trim().parse().expect("a pid")
}

/// The process of a guest of the daemon behind `uri`.
pub fn qemu_pid(uri: &str, guest: &str) -> i32 {
    pid(&daemon_folder(uri).join("run/qemu").join(format!("{guest}.pid")))
}

pub async fn connected(ports: &LibvirtPorts) {
    let mut events = ports.subscribe();
    if !ports.connected() {
        wait(&mut events, |event| event.event.kind == EventKind::ConnectionRestored).await;
    }
}

/// The first event that fits, within twenty seconds.
pub async fn wait(
    events: &mut Receiver<TimedEvent>,
    fits: impl Fn(&TimedEvent) -> bool,
) -> TimedEvent {
    wait_for(events, Duration::from_secs(20), fits).await
}

/// The first event that fits, within `bound`.
pub async fn wait_for(
    events: &mut Receiver<TimedEvent>,
    bound: Duration,
    fits: impl Fn(&TimedEvent) -> bool,
) -> TimedEvent {
    let find = async {
        loop {
            let event = events.recv().await.expect("the hub lives");
            if fits(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(bound, find).await.expect("the event arrives")
}

pub async fn wait_kind(events: &mut Receiver<TimedEvent>, kind: EventKind) -> TimedEvent {
    wait(events, |event| event.event.kind == kind).await
}

pub fn unique(word: &str) -> String {
    format!("ports-{}-{word}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

pub fn vda() -> DiskTarget {
    DiskTarget::new("vda").expect("a valid target")
}

/// A running guest with one qcow2 disk; it and its disk go when it is dropped.
pub struct Guest {
    domain: Domain,
    pub name: String,
    pub uuid: DomainUuid,
    pub disk: PathBuf,
    connection: Connect,
}

impl Guest {
    /// A guest with a disk of `mib`, half of it written.
    pub fn start(uri: &str, mib: u64) -> Self {
        let name = unique("guest");
        let disk = Path::new(&need("VOLFERRY_LAB_POOL_LOCAL")).join(format!("{name}.qcow2"));
        run("qemu-img", &["create", "-q", "-f", "qcow2", text(&disk), &format!("{mib}M")]);
        let write = format!("write -q -P 0x5a 0 {}M", mib / 2);
        run("qemu-io", &["-f", "qcow2", "-c", &write, text(&disk)]);
        let connection = Connect::open(Some(uri)).expect("the lab's libvirtd is up");
        let xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64'>hvm</type></os><devices>\
             <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='writeback'/>\
             <source file='{}'/><target dev='vda' bus='virtio'/></disk></devices></domain>",
            disk.display()
        );
        let domain = connection.define_domain_xml(&xml).expect("the definition is valid");
        domain.create().expect("the guest starts");
        let uuid = DomainUuid::new(domain.uuid_string().expect("it has one")).expect("a uuid");
        Self { domain, name, uuid, disk, connection }
    }

    /// Writes from inside QEMU, as the guest would.
    pub fn write(&self, offset_mib: u64, mib: u64) {
        let command = format!(
            "qemu-io -d /machine/peripheral/virtio-disk0/virtio-backend \"write -P 0xab {offset_mib}M {mib}M\""
        );
        self.domain.qemu_monitor_command(&command, 1).expect("QEMU takes the command");
    }

    /// A request to copy the disk onto a prepared destination.
    pub fn copy(&self, destination_xml: &str, bandwidth: Option<u64>) -> CopyRequest {
        CopyRequest {
            domain: self.uuid.clone(),
            target: vda(),
            destination_xml: destination_xml.to_owned(),
            flags: CopyFlags::from([CopyFlag::ReuseExt, CopyFlag::TransientJob]),
            bandwidth: bandwidth.map(|rate| BytesPerSecond::new(rate).expect("a valid rate")),
        }
    }

    pub fn qemu_pid(&self) -> i32 {
        qemu_pid(&self.connection.uri().expect("it has one"), &self.name)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.domain.destroy();
        if self.domain.undefine().is_err() {
            // After a restart of the daemon the old handle's connection is dead.
            if let Ok(uri) = self.connection.uri()
                && let Ok(connection) = Connect::open(Some(&uri))
                && let Ok(domain) = connection.lookup_domain_by_name(&self.name)
            {
                let _ = domain.destroy();
                let _ = domain.undefine();
            }
        }
        let _ = std::fs::remove_file(&self.disk);
    }
}

/// A file of the lab's local pool that goes when dropped.
pub struct TempFile(pub PathBuf);

impl TempFile {
    pub fn qcow2(folder: &str, mib: u64) -> Self {
        let path = Path::new(&need(folder)).join(format!("{}.qcow2", unique("copy")));
        run("qemu-img", &["create", "-q", "-f", "qcow2", text(&path), &format!("{mib}M")]);
        Self(path)
    }

    pub fn xml(&self) -> String {
        format!(
            "<disk type='file'><driver name='qemu' type='qcow2'/><source file='{}'/></disk>",
            self.0.display()
        )
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("the lab's paths are plain")
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program is installed");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
pub fn class_is<T: std::fmt::Debug>(
    result: &Result<T, PortError>,
    class: volferry_agent::ports::ErrorClass,
) {
    match result {
        Err(error) => {
            eprintln!("  [{class:?}] {error}");
            assert_eq!(error.class, class, "{error}");
        }
        Ok(value) => panic!("expected {class:?}, got {value:?}"),
    }
}
