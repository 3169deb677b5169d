//! Domains, what QEMU has open, and what happens when it starts and stops.

use std::collections::BTreeMap;
use std::time::Duration;

use volferry_xml::DomainXml;

use super::job::Job;
use super::state::State;
use super::{World, xml};
use crate::ports::{DomainState, ErrorClass, EventKind, PortError, Snapshots};
use crate::spec::{DomainUuid, Identity, VolumeLocation};

/// So long Ceph keeps the watch of a client that died.
pub const WATCH: Duration = Duration::from_secs(30);

/// One domain.
#[derive(Debug)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: DomainState,
    /// Whether it has a stored definition.
    pub persistent: bool,
    /// The XML of the running domain; of a stopped one, as it was last.
    pub live_xml: String,
    /// The stored definition.
    pub inactive_xml: Option<String>,
    /// Snapshots and checkpoints.
    pub snapshots: Snapshots,
    /// Whether it has a saved state.
    pub managed_save: bool,
    /// The process, while it runs.
    pub qemu: Option<Qemu>,
    /// libvirt lost sight of the QEMU, which still runs.
    pub stray: bool,
}

/// A running QEMU.
#[derive(Debug, Default)]
pub struct Qemu {
    /// Tells it from every other QEMU.
    pub run: u64,
    /// Its disks by target.
    pub disks: BTreeMap<String, QemuDisk>,
}

/// A disk as QEMU has it.
#[derive(Debug)]
pub struct QemuDisk {
    /// The device's alias.
    pub alias: String,
    /// What it has open.
    pub node: Node,
    /// What the guest sees.
    pub capacity: u64,
    /// How fast things go.
    pub pace: Pace,
    /// The block job.
    pub job: Option<Job>,
}

/// An open image. The name is the one it was opened by, whatever it is called now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where it was opened.
    pub volume: VolumeLocation,
    /// What was opened.
    pub identity: Identity,
    /// The format's driver.
    pub format: String,
}

/// How fast a disk is copied and written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Bytes per second a copy moves without a limit.
    pub copy: u64,
    /// Bytes per second the guest dirties.
    pub dirty: u64,
    /// How long a copy clears the destination first.
    pub zeroing: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { copy: 256 << 20, dirty: 0, zeroing: Duration::ZERO }
    }
}

impl Domain {
    /// Whether QEMU has the image open, as a disk or as the target of a copy.
    pub fn opens(&self, identity: &Identity) -> bool {
        self.qemu.iter().flat_map(|qemu| qemu.disks.values()).any(|disk| {
            disk.node.identity == *identity
                || disk.job.as_ref().is_some_and(|job| job.destination.identity == *identity)
        })
    }

    /// A running domain's disk.
    pub fn disk(&self, target: &str) -> Option<&QemuDisk> {
        self.qemu.as_ref()?.disks.get(target)
    }

    /// The same, to change it.
    pub fn disk_mut(&mut self, target: &str) -> Option<&mut QemuDisk> {
        self.qemu.as_mut()?.disks.get_mut(target)
    }
}

impl State {
    /// Starts QEMU on whatever the text names.
    pub fn start(&mut self, uuid: &DomainUuid, text: &str) {
        let mut qemu = Qemu { run: self.number(), ..Qemu::default() };
        let Ok(parsed) = DomainXml::parse(text) else { return };
        for disk in parsed.disks() {
            let user = disk.auth().and_then(|auth| auth.username.as_deref());
            let Some(volume) = xml::volume(self, &disk.source, user) else { continue };
            let Some(found) = self.volume(&volume) else { continue };
            let format = disk.driver.format.clone().unwrap_or_else(|| "raw".to_owned());
            let open = QemuDisk {
                alias: disk.alias.clone().unwrap_or_else(|| disk.target.clone()),
                node: Node { volume, identity: found.identity, format },
                capacity: found.size,
                pace: Pace::default(),
                job: None,
            };
            qemu.disks.insert(disk.target.clone(), open);
        }
        self.first_runs.entry(uuid.clone()).or_insert(qemu.run);
        if let Some(domain) = self.domains.get_mut(uuid) {
            domain.live_xml = text.to_owned();
            domain.state = DomainState::Running;
            domain.qemu = Some(qemu);
        }
    }

    /// Starts a transient domain from a text with a name and disks.
    pub(super) fn start_paused(&mut self, text: &str, what: &str) -> Result<DomainUuid, PortError> {
        let error = |class, text: &str| PortError::new(class, what, text);
        let parsed = DomainXml::parse(text).map_err(|_| error(ErrorClass::Other, "XML error"))?;
        let name = parsed.name().unwrap_or_default().to_owned();
        if self.domains.values().any(|domain| domain.name == name) {
            return Err(error(ErrorClass::Exists, "domain already exists with another uuid"));
        }
        let uuid = format!("80000000-0000-4000-8000-{:012x}", self.number());
        let uuid = DomainUuid::new(uuid).map_err(|_| error(ErrorClass::Other, "no uuid"))?;
        let domain = Domain {
            name,
            state: DomainState::Paused,
            persistent: false,
            live_xml: text.to_owned(),
            inactive_xml: None,
            snapshots: Snapshots::default(),
            managed_save: false,
            qemu: None,
            stray: false,
        };
        self.domains.insert(uuid.clone(), domain);
        self.start(&uuid, text);
        if let Some(domain) = self.domains.get_mut(&uuid) {
            domain.state = DomainState::Paused;
        }
        Ok(uuid)
    }

    /// libvirt forgets the block job of a disk without having seen its end.
    pub fn forget_mirror(&mut self, uuid: &DomainUuid, target: &str) {
        if let Some(domain) = self.domains.get_mut(uuid) {
            domain.live_xml = xml::without_mirror(&domain.live_xml, target);
        }
    }

    /// Somebody starts a stopped domain again from its stored definition.
    pub fn start_again(&mut self, uuid: &DomainUuid) {
        let stored = self.domains.get(uuid).and_then(|domain| domain.inactive_xml.clone());
        let Some(stored) = stored else { return };
        let live = stored.replacen("<domain type='kvm'", "<domain type='kvm' id='1'", 1).replacen(
            "<target dev='vda' bus='virtio'/>",
            super::scene::TARGET_WITH_ALIAS,
            1,
        );
        self.start(uuid, &live);
    }

    /// The images a QEMU has open keep its watches for a time after it was killed.
    fn leave_watches(&mut self, uuid: &DomainUuid) {
        let Some(domain) = self.domains.get(uuid) else { return };
        let watcher = format!("192.0.2.1:0/{} (dead)", domain.name);
        let until = tokio::time::Instant::now() + WATCH;
        for disk in domain.qemu.iter().flat_map(|qemu| qemu.disks.values()) {
            let copy = disk.job.as_ref().map(|job| &job.destination);
            for node in std::iter::once(&disk.node).chain(copy) {
                if let Identity::Rbd { image_id } = &node.identity {
                    self.dead_watches.push((image_id.clone(), watcher.clone(), until));
                }
            }
        }
    }

    /// QEMU ends, and every job with it. A domain without a stored definition is gone.
    pub fn stop(&mut self, uuid: &DomainUuid, state: DomainState, reason: &'static str) {
        let Some(domain) = self.domains.get_mut(uuid) else { return };
        if domain.qemu.take().is_none() {
            return;
        }
        self.stopped.insert(uuid.clone());
        domain.state = state;
        if std::mem::take(&mut domain.stray) {
            // Nobody is there to tell.
            return;
        }
        match &domain.inactive_xml {
            Some(stored) => domain.live_xml = stored.clone(),
            None => drop(self.domains.remove(uuid)),
        }
        self.report(uuid, None, EventKind::DomainStopped { reason });
    }
}

impl World {
    /// Kills the domain's QEMU. Its watches on images outlive it for a time.
    pub fn kill_qemu(&self, uuid: &DomainUuid) {
        self.with(|state| {
            state.leave_watches(uuid);
            state.stop(uuid, DomainState::ShutOff, "failed");
        });
    }

    /// Somebody unplugs a disk of the running guest, and nobody says a word about its block job.
    pub fn unplug(&self, uuid: &DomainUuid, target: &str) {
        self.with(|state| {
            let Some(domain) = state.domains.get_mut(uuid) else { return };
            if let Some(qemu) = &mut domain.qemu {
                qemu.disks.remove(target);
            }
            domain.live_xml = xml::without_disk(&domain.live_xml, target);
        });
    }

    /// A libvirtd that was killed comes back and cannot read its notes on the domain: it calls it shut off.
    pub fn lose_sight(&self, uuid: &DomainUuid) {
        self.with(|state| {
            let Some(domain) = state.domains.get_mut(uuid) else { return };
            let Some(stored) = domain.inactive_xml.clone() else { return };
            domain.stray = domain.qemu.is_some();
            (domain.state, domain.live_xml) = (DomainState::ShutOff, stored);
        });
    }

    /// The host goes down: every QEMU and libvirtd die at once, nothing is reported, `/run` is empty afterwards. The
    /// domains without a stored definition are gone. libvirt comes back with [`Self::libvirt_back`].
    pub fn lose_host(&self) {
        self.libvirt_away();
        self.with(|state| {
            let running: Vec<DomainUuid> = state
                .domains
                .iter()
                .filter(|(_, domain)| domain.qemu.is_some())
                .map(|(uuid, _)| uuid.clone())
                .collect();
            for uuid in running {
                state.leave_watches(&uuid);
                // What is reported while libvirt is away reaches nobody.
                state.stop(&uuid, DomainState::ShutOff, "failed");
            }
        });
    }

    /// The guest shuts down.
    pub fn shut_down(&self, uuid: &DomainUuid) {
        self.with(|state| state.stop(uuid, DomainState::ShutOff, "shut down"));
    }

    /// Somebody ends the domain by force.
    pub fn destroy(&self, uuid: &DomainUuid) {
        self.with(|state| state.stop(uuid, DomainState::ShutOff, "destroyed"));
    }

    /// Changes the pace of a disk from now on.
    pub fn pace(&self, uuid: &DomainUuid, target: &str, pace: Pace) {
        self.with(|state| {
            state.advance_jobs();
            let disk = state.domains.get_mut(uuid).and_then(|domain| domain.disk_mut(target));
            if let Some(disk) = disk {
                disk.pace = pace;
            }
        });
    }
}
