//! The domains port over libvirt: what stays inside libvirt on the shared connection, what asks QEMU on a lane.

use async_trait::async_trait;
use secrecy::SecretString;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error, ErrorNumber, ErrorNumberEnum};
use virt_sys as sys;

use super::error::{c_string, port_error};
use super::{LibvirtPorts, ffi, query_block, run, translate};
use crate::ports::domains::{DomainSummary, HostVersions};
use crate::ports::{
    BlockInfo, DomainObservation, DomainState, Domains, ErrorClass, PortError, QemuBlockDevice,
    Snapshots,
};
use crate::spec::{DiskTarget, DomainReference, DomainUuid, IoTune};

#[async_trait]
impl Domains for LibvirtPorts {
    async fn observe(&self, domain: &DomainReference) -> Result<DomainObservation, PortError> {
        let operation = format!("look at domain {domain}");
        let (reference, words) = (domain.clone(), operation.clone());
        self.reads
            .run(&operation, self.timeouts.read, move |connection| {
                let found = find(connection, &reference);
                found
                    .and_then(|domain| observe(&domain))
                    .map_err(|error| port_error(&words, &error))
            })
            .await
    }

    async fn list(&self) -> Result<Vec<DomainSummary>, PortError> {
        const OPERATION: &str = "list domains";
        self.reads
            .run(OPERATION, self.timeouts.read, |connection| {
                let domains = connection
                    .list_all_domains(0)
                    .map_err(|error| port_error(OPERATION, &error))?;
                Ok(domains.iter().filter_map(summary).collect())
            })
            .await
    }

    async fn block_info(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<BlockInfo, PortError> {
        let call = self.qemu_call(format!("sizes of disk {target} of domain {domain}"));
        let disk = c_string(&call.operation, target.as_str())?;
        let operation = call.operation.clone();
        self.lanes
            .run(domain, call, move |domain| {
                ffi::block_info(domain, &disk).map_err(|error| port_error(&operation, &error))
            })
            .await
    }

    async fn qemu_devices(&self, domain: &DomainUuid) -> Result<Vec<QemuBlockDevice>, PortError> {
        let call = self.qemu_call(format!("query-block of domain {domain}"));
        let operation = call.operation.clone();
        self.lanes
            .run(domain, call, move |domain| {
                let answer = domain
                    .qemu_monitor_command(query_block::COMMAND, 0)
                    .map_err(|error| port_error(&operation, &error))?;
                query_block::parse(&operation, &answer)
            })
            .await
    }

    async fn run_of(&self, domain: &DomainUuid) -> Result<String, PortError> {
        let call = self.qemu_call(format!("query-cpus-fast of domain {domain}"));
        let operation = call.operation.clone();
        self.lanes
            .run(domain, call, move |domain| {
                let answer = domain
                    .qemu_monitor_command(run::COMMAND, 0)
                    .map_err(|error| port_error(&operation, &error))?;
                run::parse(&operation, &answer)
            })
            .await
    }

    async fn is_alive(&self, run: &str) -> Result<bool, PortError> {
        run::is_alive(run)
    }

    async fn definition(&self, domain: &DomainUuid) -> Result<Option<SecretString>, PortError> {
        let operation = format!("read the stored definition of domain {domain}");
        let (uuid, words) = (domain.clone(), operation.clone());
        self.reads
            .run(&operation, self.timeouts.read, move |connection| {
                let read = || {
                    let domain = connection.lookup_domain_by_uuid_string(uuid.as_str())?;
                    let flags = sys::VIR_DOMAIN_XML_INACTIVE | sys::VIR_DOMAIN_XML_SECURE;
                    domain.is_persistent()?.then(|| domain.xml_desc(flags)).transpose()
                };
                read()
                    .map(|text| text.map(SecretString::from))
                    .map_err(|error| port_error(&words, &error))
            })
            .await
    }

    async fn define(&self, domain: &DomainUuid, xml: &str) -> Result<(), PortError> {
        let operation = format!("define domain {domain}");
        // Another uuid in the text would change, or make, another domain.
        if !xml.contains(&format!("<uuid>{domain}</uuid>")) || xml.contains('\0') {
            let text = "the definition is not one of this domain";
            return Err(PortError::new(ErrorClass::Other, operation, text));
        }
        let (uuid, xml, words) = (domain.clone(), xml.to_owned(), operation.clone());
        self.reads
            .run(&operation, self.timeouts.read, move |connection| {
                connection
                    .lookup_domain_by_uuid_string(uuid.as_str())
                    .and_then(|_| connection.define_domain_xml_flags(&xml, 0))
                    .map(drop)
                    .map_err(|error| port_error(&words, &error))
            })
            .await
    }

    async fn start_paused(&self, xml: &str) -> Result<DomainUuid, PortError> {
        const OPERATION: &str = "start a domain to try something";
        if xml.contains('\0') {
            let text = "the definition contains a NUL character";
            return Err(PortError::new(ErrorClass::Other, OPERATION, text));
        }
        let xml = xml.to_owned();
        self.reads
            .run(OPERATION, self.timeouts.start, move |connection| {
                connection
                    .create_domain_xml(&xml, sys::VIR_DOMAIN_START_PAUSED)
                    .and_then(|domain| uuid_of(&domain))
                    .map_err(|error| port_error(OPERATION, &error))
            })
            .await
    }

    async fn destroy(&self, domain: &DomainUuid) -> Result<(), PortError> {
        let operation = format!("end domain {domain}");
        let (uuid, words) = (domain.clone(), operation.clone());
        self.reads
            .run(&operation, self.timeouts.abort, move |connection| {
                connection
                    .lookup_domain_by_uuid_string(uuid.as_str())
                    .and_then(|domain| domain.destroy())
                    .map_err(|error| port_error(&words, &error))
            })
            .await
    }

    async fn set_iotune(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
        tune: &IoTune,
    ) -> Result<(), PortError> {
        let call = self.qemu_call(format!("limit disk {target} of domain {domain}"));
        let disk = c_string(&call.operation, target.as_str())?;
        let operation = call.operation.clone();
        let limits = tune
            .iter()
            .map(|(limit, value)| Ok((c_string(&operation, limit.as_str())?, value)))
            .collect::<Result<Vec<_>, PortError>>()?;
        self.lanes
            .run(domain, call, move |domain| {
                let set = |flags| ffi::set_block_iotune(domain, &disk, &limits, flags);
                // One after the other: together, a disk that is not in the stored definition fails both.
                let set_both = || {
                    if domain.is_active()? {
                        set(sys::VIR_DOMAIN_AFFECT_LIVE)?;
                    }
                    if domain.is_persistent()? {
                        set(sys::VIR_DOMAIN_AFFECT_CONFIG)?;
                    }
                    Ok(())
                };
                set_both().map_err(|error| port_error(&operation, &error))
            })
            .await
    }

    async fn secret_exists(&self, uuid: &str) -> Result<bool, PortError> {
        let operation = format!("look for secret {uuid}");
        let Ok(parsed) = uuid::Uuid::try_parse(uuid) else { return Ok(false) };
        let words = operation.clone();
        self.reads
            .run(&operation, self.timeouts.read, move |connection| {
                match connection.lookup_secret_by_uuid(parsed) {
                    Ok(_) => Ok(true),
                    Err(error) if is(&error, ErrorNumber::NoSecret) => Ok(false),
                    Err(error) => Err(port_error(&words, &error)),
                }
            })
            .await
    }

    async fn versions(&self) -> Result<HostVersions, PortError> {
        const OPERATION: &str = "ask for versions";
        self.reads
            .run(OPERATION, self.timeouts.read, |connection| {
                let libvirt = connection.lib_version();
                let qemu = connection.hyp_version();
                let text = |version: Result<u32, Error>| {
                    version.map(translate::version).map_err(|error| port_error(OPERATION, &error))
                };
                Ok(HostVersions { libvirt: text(libvirt)?, qemu: text(qemu)? })
            })
            .await
    }
}

fn is(error: &Error, number: ErrorNumber) -> bool {
    error.code() == ErrorNumberEnum::Known(number)
}

fn find(connection: &Connect, reference: &DomainReference) -> Result<Domain, Error> {
    if let Some(uuid) = reference.as_uuid() {
        match connection.lookup_domain_by_uuid_string(uuid.as_str()) {
            // A name may have the form of a uuid.
            Err(error) if is(&error, ErrorNumber::NoDomain) => {}
            found => return found,
        }
    }
    connection.lookup_domain_by_name(reference.as_str())
}

fn observe(domain: &Domain) -> Result<DomainObservation, Error> {
    let state = state_of(domain)?;
    let persistent = domain.is_persistent()?;
    let live_xml = domain.xml_desc(0)?;
    let inactive_xml =
        persistent.then(|| domain.xml_desc(sys::VIR_DOMAIN_XML_INACTIVE)).transpose()?;
    Ok(DomainObservation {
        name: domain.name()?,
        uuid: uuid_of(domain)?,
        state,
        persistent,
        live_xml,
        inactive_xml,
        snapshots: snapshots(domain)?,
        managed_save: managed_save(domain)?,
    })
}

fn managed_save(domain: &Domain) -> Result<bool, Error> {
    match domain.has_managed_save(0) {
        Err(error) if is(&error, ErrorNumber::NoSupport) => Ok(false),
        answer => answer,
    }
}

fn snapshots(domain: &Domain) -> Result<Snapshots, Error> {
    let snapshots = match domain.list_all_snapshots(0) {
        Ok(snapshots) => snapshots.iter().map(|one| one.name()).collect::<Result<_, _>>()?,
        Err(error) if is(&error, ErrorNumber::NoSupport) => Vec::new(),
        Err(error) => return Err(error),
    };
    let checkpoints = match ffi::checkpoint_names(domain) {
        Ok(names) => names,
        Err(error) if is(&error, ErrorNumber::NoSupport) => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(Snapshots { snapshots, checkpoints })
}

fn state_of(domain: &Domain) -> Result<DomainState, Error> {
    ffi::domain_state(domain).map(|(state, reason)| translate::state(state, reason))
}

fn uuid_of(domain: &Domain) -> Result<DomainUuid, Error> {
    let text = domain.uuid_string()?;
    // libvirt prints the canonical lower-case form; a failure would be its bug and is told as an unknown error.
    DomainUuid::new(text).map_err(|_| Error::last_error())
}

/// None for a domain that went away during the listing.
fn summary(domain: &Domain) -> Option<DomainSummary> {
    Some(DomainSummary {
        name: domain.name().ok()?,
        uuid: uuid_of(domain).ok()?,
        state: state_of(domain).ok()?,
    })
}
