//! Domains: looking one up, its XML, its disks as libvirt and QEMU see them, its stored definition.

use async_trait::async_trait;
use secrecy::SecretString;

use super::error::PortError;
use crate::spec::{Bytes, DiskTarget, DomainReference, DomainUuid, IoTune};

/// The state of a domain, as far as it decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainState {
    /// The guest runs.
    Running,
    /// Stopped by somebody's command.
    Paused,
    /// Stopped by QEMU on an I/O error.
    PausedOnIoError,
    /// Being started or restored.
    Starting,
    /// Shutting down.
    ShuttingDown,
    /// Not running.
    ShutOff,
    /// The guest crashed or QEMU reports a failure.
    Crashed,
    /// Anything else.
    Other,
}

/// Snapshots and checkpoints libvirt keeps for a domain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshots {
    /// Names of the snapshots.
    pub snapshots: Vec<String>,
    /// Names of the checkpoints, whose bitmaps a copy to raw loses.
    pub checkpoints: Vec<String>,
}

/// One look at a domain.
#[derive(Debug, Clone)]
pub struct DomainObservation {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: DomainUuid,
    /// Its state.
    pub state: DomainState,
    /// Whether a stored definition exists.
    pub persistent: bool,
    /// The live XML of an active domain, else the stored one.
    pub live_xml: String,
    /// The stored definition of a persistent domain.
    pub inactive_xml: Option<String>,
    /// Snapshots and checkpoints.
    pub snapshots: Snapshots,
    /// A saved state that the next start takes up, with the disks it names itself.
    pub managed_save: bool,
}

/// A domain in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainSummary {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: DomainUuid,
    /// Its state.
    pub state: DomainState,
}

/// Sizes of a running disk (`virDomainGetBlockInfo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// What the guest sees.
    pub capacity: Bytes,
    /// What the storage holds.
    pub allocation: Bytes,
    /// The size of the container.
    pub physical: Bytes,
}

/// One device of QEMU's `query-block`: what the guest really uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QemuBlockDevice {
    /// The device's path, `/machine/peripheral/virtio-disk0/virtio-backend`.
    pub qdev: String,
    /// The node at the top.
    pub node_name: Option<String>,
    /// The format driver of that node.
    pub driver: Option<String>,
    /// File name as QEMU prints it: a path, or `json:{..}` for network storage.
    pub file_name: Option<String>,
    /// `inserted.image` as compact JSON, with the file name of every layer.
    pub image_json: Option<String>,
    /// The last I/O error state, `ok` in health.
    pub io_status: Option<String>,
}

/// Domains of this host.
///
/// Calls that reach into QEMU (`block_info`, `qemu_devices`) can hang with it; every call is bounded in time, and
/// never are two outstanding for one domain.
#[async_trait]
pub trait Domains: Send + Sync {
    /// Finds a domain by name or uuid and describes it without asking QEMU.
    /// Errors: `NotFound`; `Unavailable` while libvirt is away.
    async fn observe(&self, domain: &DomainReference) -> Result<DomainObservation, PortError>;

    /// Every domain of the host, active or not.
    async fn list(&self) -> Result<Vec<DomainSummary>, PortError>;

    /// The sizes of a running disk.
    async fn block_info(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<BlockInfo, PortError>;

    /// QEMU's own view of the domain's disks. Taints the domain (`custom-monitor`).
    async fn qemu_devices(&self, domain: &DomainUuid) -> Result<Vec<QemuBlockDevice>, PortError>;

    /// What tells this run of the domain's QEMU from any other, before or after: the process, its start, the host's
    /// boot. libvirt's domain ids repeat. `NotFound` when it does not run.
    async fn run_of(&self, domain: &DomainUuid) -> Result<String, PortError>;

    /// Whether the QEMU of a run, as [`Self::run_of`] told it, still runs, whatever libvirt knows of it: a libvirtd that
    /// died at the wrong moment may not read its own notes on a domain any more, and calls it shut off.
    async fn is_alive(&self, run: &str) -> Result<bool, PortError>;

    /// The stored definition with everything in it, passwords included; none of a transient domain. Only for
    /// storing it again.
    async fn definition(&self, domain: &DomainUuid) -> Result<Option<SecretString>, PortError>;

    /// Stores a definition; the domain it names must exist. Idempotent.
    async fn define(&self, domain: &DomainUuid, xml: &str) -> Result<(), PortError>;

    /// Starts a transient domain whose processor never runs, and returns its uuid. For trying what QEMU can do.
    async fn start_paused(&self, xml: &str) -> Result<DomainUuid, PortError>;

    /// Ends a domain by force. `NotFound` when it does not run.
    async fn destroy(&self, domain: &DomainUuid) -> Result<(), PortError>;

    /// Limits the disk's input and output in the running domain and in its stored definition, as far as there are
    /// these; what is not named stays as it is. Idempotent. `NotFound` for a domain or disk that is not there; any
    /// error may come after one half had its effect.
    async fn set_iotune(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
        tune: &IoTune,
    ) -> Result<(), PortError>;

    /// Whether a libvirt secret exists.
    async fn secret_exists(&self, uuid: &str) -> Result<bool, PortError>;

    /// Versions of libvirt and of the hypervisor it starts, for people.
    async fn versions(&self) -> Result<HostVersions, PortError>;
}

/// Versions of the software below us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVersions {
    /// libvirt's version, `9.0.0`.
    pub libvirt: String,
    /// QEMU's version, `7.2.22`.
    pub qemu: String,
}
