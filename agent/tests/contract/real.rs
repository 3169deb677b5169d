//! The stage in the laboratory: domains without an operating system, volumes in its pools. All of it goes in the end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{SIGKILL, kill};
use nix::unistd::Pid;
use virt::connect::Connect;
use virt::domain::Domain;
use volferry_agent::host::images::ImageTimeouts;
use volferry_agent::host::{HostCopies, HostFiles, HostImages, HostMarks};
use volferry_agent::ports::Ports;
use volferry_agent::ports::clock::SystemClock;
use volferry_agent::spec::{DomainUuid, RbdPoolAddress, VolumeLocation};

use crate::lab::{Lab, lab, need, qemu_pid, run, unique};
use crate::stage::{Guest, Kind, Stage, image};

const MIB: u64 = 32;

pub struct RealStage {
    lab: Lab,
    ports: Ports,
    connection: Connect,
    prefix: String,
    domains: Mutex<Vec<Domain>>,
    _folder: tempfile::TempDir,
}

impl RealStage {
    /// The stage, or none (loudly) when the lab is not up.
    pub async fn new(test: &str) -> Option<Self> {
        let lab = lab(test).await?;
        let libvirt = lab.ports().await;
        let timeouts = ImageTimeouts {
            quick: Duration::from_secs(3),
            // Keys of encrypted images take seconds of processor time.
            slow: Duration::from_secs(120),
            long: Duration::from_secs(60),
            idle: Duration::from_secs(60),
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let copies = HostCopies::new(libvirt.clone(), folder.path().join("copies"));
        let copies = copies.expect("a folder can be made");
        let images = Arc::new(HostImages::new(libvirt.clone(), timeouts));
        let files = Arc::new(HostFiles::default());
        let ports = Ports {
            domains: libvirt.clone(),
            jobs: libvirt.clone(),
            events: libvirt.clone(),
            pools: libvirt.clone(),
            secrets: libvirt,
            marks: Arc::new(HostMarks::new(Arc::clone(&images), Arc::clone(&files))),
            images,
            copies: Arc::new(copies),
            files,
            clock: Arc::new(SystemClock),
        };
        let connection = Connect::open(Some(&lab.uri)).expect("the lab's libvirtd is up");
        let prefix = unique("contract");
        Some(Self { lab, ports, connection, prefix, domains: Mutex::default(), _folder: folder })
    }

    fn unique(&self, word: &str) -> String {
        format!("{}-{}", self.prefix, unique(word))
    }

    fn pool(&self, letter: char) -> RbdPoolAddress {
        RbdPoolAddress {
            secret_uuid: Some(need("VOLFERRY_LAB_SECRET_UUID")),
            ..self.lab.rbd(letter)
        }
    }

    fn domain(&self, guest: &Guest) -> Domain {
        let found = self.connection.lookup_domain_by_uuid_string(guest.uuid.as_str());
        found.expect("the domain is there")
    }
}

/// The volume with content in its first half, and its disk element.
fn disk(volume: &VolumeLocation) -> String {
    let (target, format, kind, source) = match volume {
        VolumeLocation::File { path } => {
            let source = format!("<source file='{}'/>", path.display());
            (path.display().to_string(), "qcow2", "file", source)
        }
        VolumeLocation::Rbd { address, image } => {
            let name = address.image_path(image);
            let conf = need("VOLFERRY_LAB_CEPH_CONF");
            let (user, secret) = (need("VOLFERRY_LAB_RBD_USER"), need("VOLFERRY_LAB_SECRET_UUID"));
            let source = format!(
                "<source protocol='rbd' name='{name}'><host name='{}' port='{}'/>\
                 <auth username='{user}'><secret type='ceph' uuid='{secret}'/></auth></source>",
                need("VOLFERRY_LAB_MON_HOST"),
                need("VOLFERRY_LAB_MON_PORT")
            );
            (format!("rbd:{name}:id={user}:conf={conf}"), "raw", "network", source)
        }
    };
    run("qemu-img", &["create", "-q", "-f", format, &target, &format!("{MIB}M")]);
    let write = format!("write -q -P 0x5a 0 {}M", MIB / 2);
    run("qemu-io", &["-f", format, "-c", &write, &target]);
    format!(
        "<disk type='{kind}' device='disk'><driver name='qemu' type='{format}' cache='writeback'/>\
         {source}<target dev='vda' bus='virtio'/></disk>"
    )
}

fn rbd(words: &[&str]) -> std::io::Result<std::process::Output> {
    let (conf, user) = (need("VOLFERRY_LAB_CEPH_CONF"), need("VOLFERRY_LAB_RBD_USER"));
    Command::new("rbd").args(["-c", &conf, "--id", &user]).args(words).output()
}

fn rbd_does(words: &[&str]) -> String {
    let output = rbd(words).expect("rbd is installed");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Stage for RealStage {
    fn ports(&self) -> &Ports {
        &self.ports
    }

    fn size(&self) -> u64 {
        MIB << 20
    }

    fn guest(&self, kind: Kind, persistent: bool) -> Guest {
        let name = self.unique("guest");
        let volume = match kind {
            Kind::Rbd => {
                VolumeLocation::Rbd { address: self.pool('A'), image: format!("{name}-root") }
            }
            Kind::File => VolumeLocation::File {
                path: Path::new(&need("VOLFERRY_LAB_POOL_LOCAL"))
                    .join(format!("{name}-root.qcow2")),
            },
        };
        let xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64'>hvm</type></os><devices>{}</devices></domain>",
            disk(&volume)
        );
        let domain = if persistent {
            let domain = self.connection.define_domain_xml(&xml).expect("a valid definition");
            domain.create().expect("the guest starts");
            domain
        } else {
            self.connection.create_domain_xml(&xml, 0).expect("the guest starts")
        };
        let uuid = DomainUuid::new(domain.uuid_string().expect("it has one")).expect("a uuid");
        self.domains.lock().expect("no panic").push(domain);
        Guest { uuid, name, volume }
    }

    fn place(&self, kind: Kind) -> VolumeLocation {
        let name = self.unique("copy");
        match kind {
            Kind::Rbd => VolumeLocation::Rbd { address: self.pool('B'), image: name },
            Kind::File => VolumeLocation::File {
                path: PathBuf::from(need("VOLFERRY_LAB_POOL_SMP")).join(format!("{name}.qcow2")),
            },
        }
    }

    fn destroy(&self, guest: &Guest) {
        self.domain(guest).destroy().expect("it runs");
    }

    fn kill(&self, guest: &Guest) {
        kill(Pid::from_raw(qemu_pid(&self.lab.uri, &guest.name)), SIGKILL).expect("the lab's QEMU");
    }

    fn unlink(&self, path: &Path) {
        std::fs::remove_file(path).expect("it was there");
    }

    fn trash(&self, volume: &VolumeLocation) {
        let (pool, name) = image(volume);
        rbd_does(&["trash", "mv", &pool.image_path(&name)]);
    }

    fn snapshot(&self, volume: &VolumeLocation, name: &str) {
        let (pool, image) = image(volume);
        let snapshot = format!("{}@{name}", pool.image_path(&image));
        rbd_does(&["snap", "create", "--no-progress", &snapshot]);
    }

    fn nobody_listens(&self) -> String {
        "127.0.0.1:1".to_owned()
    }
}

impl Drop for RealStage {
    fn drop(&mut self) {
        // What is already gone cannot be ended again.
        for domain in self.domains.get_mut().map(std::mem::take).unwrap_or_default() {
            let _ = domain.destroy();
            let _ = domain.undefine();
        }
        for folder in ["VOLFERRY_LAB_POOL_LOCAL", "VOLFERRY_LAB_POOL_SMP"].map(need) {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(&self.prefix) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
        for pool in ['A', 'B'].map(|letter| self.pool(letter).pool) {
            remove_images(&pool, &self.prefix);
        }
    }
}

/// Images of this prefix, those in the trash too. One whose QEMU was killed stays with the lab.
fn remove_images(pool: &str, prefix: &str) {
    let lines = |words: &[&str]| match rbd(words) {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(_) => String::new(),
    };
    for name in lines(&["ls", pool]).lines().filter(|name| name.starts_with(prefix)) {
        let name = format!("{pool}/{name}");
        let _ = rbd(&["snap", "purge", "--no-progress", &name]);
        let _ = rbd(&["rm", "--no-progress", &name]);
    }
    for line in lines(&["trash", "ls", pool]).lines() {
        if let Some((id, name)) = line.split_once(' ')
            && name.starts_with(prefix)
        {
            let _ = rbd(&["trash", "rm", "--no-progress", "--force", &format!("{pool}/{id}")]);
        }
    }
}
