//! What a command says: the volume, where it is, where it goes.

use serde_json::Value;

use super::fields::{Fields, class_of, shown};
use crate::spec::Passphrase;

const MIGRATE: &str = "com.cloud.agent.api.storage.MigrateVolumeCommand";
const COPY: &str = "org.apache.cloudstack.storage.command.CopyCommand";
const VOLUME: &str = "org.apache.cloudstack.storage.to.VolumeObjectTO";
const STORE: &str = "org.apache.cloudstack.storage.to.PrimaryDataStoreTO";

/// Fields that every command has.
const OF_COMMANDS: [&str; 8] = [
    "contextMap",
    "wait",
    "bypassHostMaintenance",
    "externalDetails",
    "executeInSequence",
    "requestSequence",
    "state",
    "isReconcile",
];
const OF_MIGRATE: [&str; 12] = [
    "volumeId",
    "volumePath",
    "chainInfo",
    "pool",
    "sourcePool",
    "attachedVmName",
    "volumeType",
    "hostGuidInTargetCluster",
    "srcData",
    "destData",
    "srcDetails",
    "destDetails",
];
const OF_COPY: [&str; 5] = ["srcTO", "destTO", "cacheTO", "options", "options2"];
const OF_FILER: [&str; 7] = ["id", "uuid", "host", "path", "userInfo", "port", "type"];
const OF_STORE: [&str; 11] = [
    "uuid",
    "name",
    "type",
    "id",
    "poolType",
    "host",
    "path",
    "port",
    "url",
    "details",
    "isManaged",
];
const OF_STORE_TOO: [&str; 1] = ["fullCloneFlag"];
const OF_VOLUME: [&str; 44] = [
    "uuid",
    "volumeType",
    "dataStore",
    "name",
    "size",
    "path",
    "volumeId",
    "vmName",
    "accountId",
    "chainInfo",
    "format",
    "provisioningType",
    "poolId",
    "id",
    "deviceId",
    "bytesReadRate",
    "bytesReadRateMax",
    "bytesReadRateMaxLength",
    "bytesWriteRate",
    "bytesWriteRateMax",
    "bytesWriteRateMaxLength",
    "iopsReadRate",
    "iopsReadRateMax",
    "iopsReadRateMaxLength",
    "iopsWriteRate",
    "iopsWriteRateMax",
    "iopsWriteRateMaxLength",
    "cacheMode",
    "hypervisorType",
    "migrationOptions",
    "directDownload",
    "dataStoreUuid",
    "deployAsIs",
    "updatedDataStoreUUID",
    "vSphereStoragePolicyId",
    "passphrase",
    "encryptFormat",
    "iopsTotalRate",
    "iopsTotalRateMax",
    "iopsTotalRateMaxLength",
    "bytesTotalRate",
    "checkpointPaths",
    "checkpointImageStoreUrls",
    "followRedirects",
];

/// Which command it is; its answer has a class of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `MigrateVolumeCommand`: the disk of a running virtual machine.
    Migrate,
    /// `CopyCommand`: a volume nobody uses, into a new one.
    Copy,
    /// Any other one.
    Unsupported,
}

/// The kinds of primary storage that are moved between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// A Ceph pool.
    Rbd,
    /// An NFS export, mounted at a folder named after the pool.
    Nfs,
    /// A folder: SharedMountPoint, or local.
    Folder,
}

/// Primary storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The pool's uuid, by which libvirt calls it too.
    pub uuid: String,
    /// Its kind.
    pub kind: StoreKind,
    /// Its host or hosts: the monitors of a Ceph cluster.
    pub host: String,
    /// Its path: of an export, a folder, or the name of a Ceph pool.
    pub path: String,
    /// Its port.
    pub port: u16,
}

/// A volume, as far as it is known.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Its uuid.
    pub uuid: Option<String>,
    /// Its path in its store.
    pub path: Option<String>,
    /// Its format, in capitals.
    pub format: Option<String>,
    /// The machine it belongs to.
    pub vm_name: Option<String>,
    /// Its passphrase.
    pub passphrase: Option<Passphrase>,
    /// How it is encrypted: `luks` or `luks2`.
    pub encrypt_format: Option<String>,
    /// Where it is.
    pub store: Store,
}

/// A command that can be carried out.
#[derive(Debug, Clone)]
pub struct Command {
    /// Which one it is.
    pub kind: Kind,
    /// The machine that runs; of a migration.
    pub vm_name: Option<String>,
    /// The volume.
    pub source: Volume,
    /// Where it goes, with the path it shall have there, if one is said.
    pub destination: Volume,
    /// How long the management server means to wait; 0: it does not say.
    pub wait_seconds: u64,
}

/// A command of a document: its kind, and what it says or why it cannot be carried out.
pub type Entry = (Kind, Result<Command, String>);

/// The commands of a document, in order: a list of them or a single one.
///
/// Errors: it is no document of that form.
pub fn read(document: &Value, ignore_unknown: bool) -> Result<Vec<Entry>, String> {
    let several = document.as_array().map(Vec::as_slice);
    let commands = several.unwrap_or(std::slice::from_ref(document));
    if commands.is_empty() {
        return Err("there is no command".to_owned());
    }
    commands
        .iter()
        .map(|command| {
            let (class, fields) = class_of("a command", command)?;
            Ok(match class {
                MIGRATE => (Kind::Migrate, migrate(fields, ignore_unknown)),
                COPY => (Kind::Copy, copy(fields, ignore_unknown)),
                other => (Kind::Unsupported, Err(format!("{:?} is not supported", shown(other)))),
            })
        })
        .collect()
}

fn migrate(value: &Value, ignore: bool) -> Result<Command, String> {
    let known = [&OF_COMMANDS[..], &OF_MIGRATE[..]].concat();
    let fields = Fields::new("MigrateVolumeCommand", value, &known, ignore)?;
    let mut source = volume("srcData", fields.need("srcData")?, ignore)?;
    source.path = source.path.or(fields.text("volumePath")?);
    let vm_name = fields.text("attachedVmName")?.or_else(|| source.vm_name.clone());
    if vm_name.is_none() {
        return Err("the command names no virtual machine (attachedVmName, srcData.vmName)".into());
    }
    let mut destination = volume("destData", fields.need("destData")?, ignore)?;
    if let Some(pool) = fields.value("pool") {
        let pool = filer(pool, ignore)?;
        if pool.uuid != destination.store.uuid {
            return Err("pool and destData.dataStore are two different pools".to_owned());
        }
        destination.store = pool;
    }
    let wait_seconds = fields.number("wait")?;
    Ok(Command { kind: Kind::Migrate, vm_name, source, destination, wait_seconds })
}

fn copy(value: &Value, ignore: bool) -> Result<Command, String> {
    let known = [&OF_COMMANDS[..], &OF_COPY[..]].concat();
    let fields = Fields::new("CopyCommand", value, &known, ignore)?;
    if fields.value("cacheTO").is_some() {
        return Err(
            "CopyCommand has a cacheTO: a copy by way of secondary storage is not made".into()
        );
    }
    let source = volume("srcTO", fields.need("srcTO")?, ignore)?;
    let destination = volume("destTO", fields.need("destTO")?, ignore)?;
    let wait_seconds = fields.number("wait")?;
    Ok(Command { kind: Kind::Copy, vm_name: None, source, destination, wait_seconds })
}

fn volume(name: &str, value: &Value, ignore: bool) -> Result<Volume, String> {
    let (class, value) = class_of(name, value)?;
    if class != VOLUME {
        let class = shown(class);
        return Err(format!("{name} is a {class:?}, and only volumes are moved"));
    }
    let fields = Fields::new(name, value, &OF_VOLUME, ignore)?;
    let store_name = format!("{name}.dataStore");
    let (class, store) = class_of(&store_name, fields.need("dataStore")?)?;
    if class != STORE {
        let class = shown(class);
        return Err(format!("{store_name} is a {class:?}, and only primary storage is known"));
    }
    let passphrase = fields.bytes("passphrase")?.map(Passphrase::new).transpose();
    let encrypt_format = fields.text("encryptFormat")?.map(|format| format.to_lowercase());
    let encrypt_format = encrypt_format.filter(|format| format != "none");
    let passphrase = passphrase.map_err(|error| format!("{name}: {error}"))?;
    if encrypt_format.is_some() && passphrase.is_none() {
        return Err(format!("{name} has an encryptFormat and no passphrase"));
    }
    Ok(Volume {
        uuid: fields.text("uuid")?,
        path: fields.text("path")?,
        format: fields.text("format")?.map(|format| format.to_uppercase()),
        vm_name: fields.text("vmName")?,
        passphrase,
        encrypt_format,
        store: primary(&store_name, store, ignore)?,
    })
}

fn primary(name: &str, value: &Value, ignore: bool) -> Result<Store, String> {
    let known = [&OF_STORE[..], &OF_STORE_TOO[..]].concat();
    let fields = Fields::new(name, value, &known, ignore)?;
    store(name, &fields, &fields.need_text("poolType")?)
}

fn filer(value: &Value, ignore: bool) -> Result<Store, String> {
    let fields = Fields::new("pool", value, &OF_FILER, ignore)?;
    store("pool", &fields, &fields.need_text("type")?)
}

fn store(name: &str, fields: &Fields<'_>, kind: &str) -> Result<Store, String> {
    let kind = match kind {
        "RBD" => StoreKind::Rbd,
        "NetworkFilesystem" => StoreKind::Nfs,
        "SharedMountPoint" | "Filesystem" => StoreKind::Folder,
        other => {
            let other = shown(other);
            return Err(format!(
                "{name} is storage of type {other:?}, which is not moved to or from"
            ));
        }
    };
    let port = u16::try_from(fields.number("port")?);
    Ok(Store {
        uuid: fields.need_text("uuid")?,
        kind,
        host: fields.text("host")?.unwrap_or_default(),
        path: fields.need_text("path")?,
        port: port.map_err(|_| format!("{name} has a port that is none"))?,
    })
}
