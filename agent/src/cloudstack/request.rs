//! From a command to a request of ours.

use std::path::{Path, PathBuf};

use rbdutils::monitors::MonitorList;

use super::command::{Command, Kind, Store, StoreKind, Volume};
use crate::api::convert::operation::duration;
use crate::api::pb;
use crate::spec::{EncryptionScheme, HeaderKind, Passphrase};

/// Where the agent's pools are, and where the host mounts those of NFS.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// The agent's pools.
    pub pools: &'a [pb::Pool],
    /// The folder in which an NFS pool is mounted under its uuid.
    pub mounts: &'a Path,
}

/// The request that carries a command out.
///
/// Errors: what the command lacks or cannot have, in words.
pub fn migrate_request(
    command: &Command,
    operation_id: String,
    place: &Place<'_>,
) -> Result<pb::MigrateRequest, String> {
    let source = &command.source;
    let path = source.path.as_deref().ok_or("the command says no path of the source")?;
    let mut request = pb::MigrateRequest {
        operation_id,
        to_pool: pool(&command.destination.store, place),
        destination_volume: destination_volume(command, path)?,
        deadline: (command.wait_seconds > 0)
            .then(|| duration(std::time::Duration::from_secs(command.wait_seconds))),
        ..Default::default()
    };
    match command.kind {
        Kind::Copy => {
            request.volume = Some(pb::VolumeSelector {
                pool: pool(&source.store, place),
                name: name_in(&source.store, path, place)?,
                format: format(source)?.into(),
                encryption: encryption(source)?,
            });
            // The management server removes the old volume itself.
            request.keep_source_name = true;
        }
        Kind::Migrate | Kind::Unsupported => {
            request.domain = command.vm_name.clone().unwrap_or_default();
            request.disk = disk(&source.store, path, place);
            request.live = true;
        }
    }
    passphrases(command, &mut request);
    Ok(request)
}

/// The agent's name of a pool: its uuid, where the agent or libvirt calls it so, or that of the pool in the same place.
fn pool(store: &Store, place: &Place<'_>) -> String {
    let by_uuid = place.pools.iter().find(|pool| pool.name == store.uuid);
    let found = by_uuid.or_else(|| place.pools.iter().find(|pool| is_there(store, pool, place)));
    found.map_or_else(|| store.uuid.clone(), |pool| pool.name.clone())
}

fn is_there(store: &Store, pool: &pb::Pool, place: &Place<'_>) -> bool {
    if store.kind != StoreKind::Rbd {
        return !pool.folder.is_empty() && Path::new(&pool.folder) == folder(store, place);
    }
    let theirs = MonitorList::parse(&store.host, u32::from(store.port));
    let ours = MonitorList::parse(&pool.monitors, 0);
    pool.ceph_pool == store.path.trim_matches('/')
        && matches!((theirs, ours), (Ok(theirs), Ok(ours)) if theirs.shares_a_monitor_with(&ours))
}

fn folder(store: &Store, place: &Place<'_>) -> PathBuf {
    match store.kind {
        StoreKind::Nfs => place.mounts.join(&store.uuid),
        StoreKind::Folder | StoreKind::Rbd => PathBuf::from(&store.path),
    }
}

/// The disk by its source, as the domain's XML has it.
fn disk(store: &Store, path: &str, place: &Place<'_>) -> String {
    match store.kind {
        StoreKind::Rbd if path.contains('/') => path.trim_start_matches('/').to_owned(),
        StoreKind::Rbd => format!("{}/{path}", store.path.trim_matches('/')),
        StoreKind::Nfs | StoreKind::Folder => folder(store, place).join(path).display().to_string(),
    }
}

/// The volume's own name in its pool.
fn name_in(store: &Store, path: &str, place: &Place<'_>) -> Result<String, String> {
    let name = match store.kind {
        StoreKind::Rbd => {
            let pool = format!("{}/", store.path.trim_matches('/'));
            let path = path.trim_start_matches('/');
            path.strip_prefix(&pool).unwrap_or(path).to_owned()
        }
        StoreKind::Nfs | StoreKind::Folder => {
            let whole = folder(store, place).join(path);
            let inside = whole.strip_prefix(folder(store, place));
            inside.map(|name| name.display().to_string()).unwrap_or_default()
        }
    };
    match name.is_empty() || name.contains('/') {
        true => Err("the path of the source leads out of its pool".to_owned()),
        false => Ok(name),
    }
}

/// A migrated volume keeps its name unless another one is said; a copy is a new volume, named after that.
///
/// Errors: the path ends without a name.
fn destination_volume(command: &Command, source_path: &str) -> Result<String, String> {
    let destination = &command.destination;
    let said = destination.path.as_deref().filter(|path| *path != source_path);
    let name = match command.kind {
        Kind::Copy => destination.path.as_deref().or(destination.uuid.as_deref()),
        Kind::Migrate | Kind::Unsupported => said,
    };
    let Some(path) = name else { return Ok(String::new()) };
    match path.rsplit_once('/').map_or(path, |(_, name)| name) {
        "" => Err("the path of the destination has no name at its end".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn format(source: &Volume) -> Result<pb::VolumeFormat, String> {
    match (source.store.kind, source.format.as_deref()) {
        (StoreKind::Rbd, _) | (_, Some("RAW")) => Ok(pb::VolumeFormat::Raw),
        (_, Some("QCOW2")) => Ok(pb::VolumeFormat::Qcow2),
        (_, Some(_)) => Err("the source's format is neither RAW nor QCOW2".to_owned()),
        (_, None) => Err("the command says no format of the source".to_owned()),
    }
}

/// How a source that nobody uses is encrypted; a qcow2 file says it itself.
fn encryption(source: &Volume) -> Result<String, String> {
    if source.passphrase.is_none() {
        return Ok(String::new());
    }
    let header = match (source.store.kind, source.encrypt_format.as_deref()) {
        (StoreKind::Rbd, Some("luks2")) => HeaderKind::LibrbdLuks2,
        (StoreKind::Rbd, Some("luks")) => HeaderKind::QemuLuks1,
        (StoreKind::Rbd, _) => {
            return Err("the source has a passphrase and no encryptFormat of luks or luks2".into());
        }
        _ if source.format.as_deref() == Some("QCOW2") => return Ok(String::new()),
        _ => HeaderKind::QemuLuks1,
    };
    Ok(header.to_string())
}

/// What CloudStack starts a machine with: luks2 by librbd on RBD, luks by QEMU in files. A volume is never decrypted.
fn passphrases(command: &Command, request: &mut pb::MigrateRequest) {
    let bytes = |passphrase: &Option<Passphrase>| {
        passphrase.as_ref().map(|known| known.expose().to_vec()).unwrap_or_default()
    };
    let (source, destination) = (&command.source.passphrase, &command.destination.passphrase);
    request.passphrase = bytes(source);
    if destination.is_some() && bytes(destination) != request.passphrase {
        request.destination_passphrase = bytes(destination);
    }
    if source.is_some() || destination.is_some() {
        let scheme = match command.destination.store.kind {
            StoreKind::Rbd => EncryptionScheme::Luks2Librbd,
            StoreKind::Nfs | StoreKind::Folder => EncryptionScheme::Luks1Qemu,
        };
        request.accept_encryption = vec![scheme.as_str().to_owned()];
    }
}
