//! Domains, storage pools, events and the clock.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use secrecy::SecretString;
use tokio::sync::broadcast;
use volferry_xml::DomainXml;

use crate::fake::World;
use crate::fake::domain::Domain;
use crate::fake::faults::Method;
use crate::fake::state::State;
use crate::fake::xml;
use crate::ports::{
    BlockInfo, Clock, DomainObservation, DomainState, DomainSummary, Domains, ErrorClass, Events,
    HostVersions, PortError, QemuBlockDevice, StoragePools, TimedEvent,
};
use crate::spec::{Bytes, DiskTarget, DomainReference, DomainUuid, IoTune, Pool, PoolName};

fn find<'a>(
    state: &'a State,
    reference: &DomainReference,
    what: &str,
) -> Result<(&'a DomainUuid, &'a Domain), PortError> {
    let uuid = reference.as_uuid();
    state
        .domains
        .iter()
        .find(|(own, domain)| Some(*own) == uuid.as_ref() || domain.name == reference.as_str())
        .ok_or_else(|| PortError::new(ErrorClass::NotFound, what, "Domain not found"))
}

#[async_trait]
impl Domains for World {
    async fn observe(&self, domain: &DomainReference) -> Result<DomainObservation, PortError> {
        let what = format!("look at domain {domain}");
        self.call(Method::ObserveDomain, what.clone(), |state| {
            let (uuid, domain) = find(state, domain, &what)?;
            Ok(DomainObservation {
                name: domain.name.clone(),
                uuid: uuid.clone(),
                state: domain.state,
                persistent: domain.persistent,
                live_xml: domain.live_xml.clone(),
                inactive_xml: domain.inactive_xml.clone(),
                snapshots: domain.snapshots.clone(),
                managed_save: domain.managed_save,
            })
        })
        .await
    }

    async fn list(&self) -> Result<Vec<DomainSummary>, PortError> {
        self.call(Method::ListDomains, "list the domains".to_owned(), |state| {
            let summary = |(uuid, domain): (&DomainUuid, &Domain)| DomainSummary {
                name: domain.name.clone(),
                uuid: uuid.clone(),
                state: domain.state,
            };
            Ok(state.domains.iter().map(summary).collect())
        })
        .await
    }

    async fn block_info(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<BlockInfo, PortError> {
        let what = format!("ask for the size of {target}");
        self.call(Method::BlockInfo, what.clone(), |state| {
            let disk = state.running(domain, &what)?.disk(target.as_str());
            let found = disk.map(|disk| (disk.capacity, disk.node.volume.clone()));
            let Some((capacity, volume)) = found else {
                return Err(PortError::new(ErrorClass::NotFound, what, "invalid path"));
            };
            let allocated = state.volume(&volume).map_or(0, |volume| volume.allocated);
            Ok(BlockInfo {
                capacity: Bytes(capacity),
                allocation: Bytes(allocated),
                physical: Bytes(allocated),
            })
        })
        .await
    }

    async fn qemu_devices(&self, domain: &DomainUuid) -> Result<Vec<QemuBlockDevice>, PortError> {
        let what = "ask QEMU for its block devices".to_owned();
        self.call(Method::QemuDevices, what.clone(), |state| {
            let qemu = state.running(domain, &what)?.qemu.iter();
            let disks = qemu.flat_map(|qemu| qemu.disks.values());
            let device = |disk: &crate::fake::domain::QemuDisk| QemuBlockDevice {
                qdev: format!("/machine/peripheral/{}/virtio-backend", disk.alias),
                node_name: Some(format!("libvirt-{}-format", disk.alias)),
                driver: Some(disk.node.format.clone()),
                file_name: Some(xml::qemu_file_name(&disk.node.volume)),
                image_json: None,
                io_status: Some("ok".to_owned()),
            };
            Ok(disks.map(device).collect())
        })
        .await
    }

    async fn run_of(&self, domain: &DomainUuid) -> Result<String, PortError> {
        let what = "ask QEMU for its threads".to_owned();
        self.call(Method::RunOf, what.clone(), |state| {
            let run = state.running(domain, &what)?.qemu.as_ref().map(|qemu| qemu.run);
            Ok(format!("run {}", run.unwrap_or_default()))
        })
        .await
    }

    async fn is_alive(&self, run: &str) -> Result<bool, PortError> {
        Ok(self.with(|state| {
            let mut runs = state.domains.values().filter_map(|domain| domain.qemu.as_ref());
            runs.any(|qemu| format!("run {}", qemu.run) == run)
        }))
    }

    async fn definition(&self, domain: &DomainUuid) -> Result<Option<SecretString>, PortError> {
        let what = "read the stored definition".to_owned();
        self.call(Method::Definition, what.clone(), |state| match state.domains.get(domain) {
            Some(domain) => Ok(domain.inactive_xml.clone().map(SecretString::from)),
            None => Err(PortError::new(ErrorClass::NotFound, what, "Domain not found")),
        })
        .await
    }

    async fn define(&self, domain: &DomainUuid, xml: &str) -> Result<(), PortError> {
        let what = "define the domain".to_owned();
        self.call(Method::Define, what.clone(), |state| {
            if !xml.contains(&format!("<uuid>{domain}</uuid>")) || DomainXml::parse(xml).is_err() {
                let text = "the definition is not one of this domain";
                return Err(PortError::new(ErrorClass::Other, what, text));
            }
            match state.domains.get_mut(domain) {
                Some(domain) => {
                    domain.inactive_xml = Some(xml.to_owned());
                    if domain.qemu.is_none() {
                        domain.live_xml = xml.to_owned();
                    }
                    domain.persistent = true;
                    Ok(())
                }
                None => Err(PortError::new(ErrorClass::NotFound, what, "Domain not found")),
            }
        })
        .await
    }

    async fn start_paused(&self, xml: &str) -> Result<DomainUuid, PortError> {
        let what = "start a domain to try something".to_owned();
        self.call(Method::StartPaused, what.clone(), |state| state.start_paused(xml, &what)).await
    }

    async fn destroy(&self, domain: &DomainUuid) -> Result<(), PortError> {
        let what = format!("end domain {domain}");
        self.call(Method::DestroyDomain, what.clone(), |state| {
            state.running(domain, &what)?;
            state.stop(domain, DomainState::ShutOff, "destroyed");
            Ok(())
        })
        .await
    }

    async fn set_iotune(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
        tune: &IoTune,
    ) -> Result<(), PortError> {
        let what = format!("limit disk {target}");
        self.call(Method::SetIotune, what.clone(), |state| {
            let missing = |text| PortError::new(ErrorClass::NotFound, what.as_str(), text);
            let found = state.domains.get_mut(domain);
            let domain = found.ok_or_else(|| missing("Domain not found"))?;
            let has = |xml: &str| {
                DomainXml::parse(xml).is_ok_and(|xml| xml.find_disk(target.as_str()).is_ok())
            };
            if domain.qemu.is_some() && !domain.stray {
                if !has(&domain.live_xml) {
                    return Err(missing("disk was not found in the domain config"));
                }
                domain.live_xml = xml::with_iotune(&domain.live_xml, target.as_str(), tune);
            }
            if let Some(stored) = &mut domain.inactive_xml {
                if !has(stored) {
                    return Err(missing("missing persistent configuration for disk"));
                }
                *stored = xml::with_iotune(stored, target.as_str(), tune);
            }
            Ok(())
        })
        .await
    }

    async fn secret_exists(&self, uuid: &str) -> Result<bool, PortError> {
        let what = format!("look up secret {uuid}");
        self.call(Method::SecretExists, what, |state| Ok(state.secrets.contains(uuid))).await
    }

    async fn versions(&self) -> Result<HostVersions, PortError> {
        self.call(Method::Versions, "ask for versions".to_owned(), |_| {
            Ok(HostVersions { libvirt: "9.0.0".to_owned(), qemu: "7.2.22".to_owned() })
        })
        .await
    }
}

#[async_trait]
impl StoragePools for World {
    async fn find(&self, name: &PoolName) -> Result<Option<Pool>, PortError> {
        let what = format!("look for storage pool {name}");
        self.call(Method::FindPool, what, |state| state.storage_pool(name)).await
    }

    async fn active(&self) -> Result<Vec<Pool>, PortError> {
        let what = "list the storage pools".to_owned();
        self.call(Method::ActivePools, what, |state| Ok(state.active_storage_pools())).await
    }
}

impl Events for World {
    fn subscribe(&self) -> broadcast::Receiver<TimedEvent> {
        self.0.events.subscribe()
    }

    fn connected(&self) -> bool {
        self.quietly(|state| state.connected)
    }
}

/// A wall clock that runs with tokio's. Every agent of a test sees the same one.
#[derive(Debug)]
pub(super) struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> SystemTime {
        // The paused clock starts somewhere; only differences mean anything to a test.
        static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let now = tokio::time::Instant::now().into_std();
        let first = *FIRST.get_or_init(|| now);
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        match now.checked_duration_since(first) {
            Some(age) => start + age,
            None => start - first.duration_since(now),
        }
    }
}
