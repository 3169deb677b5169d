//! The file of `volferryd --fake`: what there is in the world besides the pools of the configuration, and what goes
//! wrong there. Unknown keys are errors, as in the configuration.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::World;
use super::domain::{Domain, Pace};
use super::folder::Folder;
use super::rbd::{CephPool, Cluster};
use super::scene::{domain_xml, put};
use super::state::State;
use super::trouble::{self, Trouble, Troubled};
use crate::ports::{DomainState, FileOwner, Snapshots};
use crate::spec::{
    Bytes, DiskTarget, DomainUuid, InvalidName, InvalidQuantity, Pool, PoolKind, RbdPool,
    VolumeLocation, VolumeName,
};

/// Room in a pool of which the file says nothing.
const FREE: Bytes = Bytes(1 << 40);
/// The device number of the first folder.
const FIRST_DEVICE: u64 = 40;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum WorldFileError {
    /// It cannot be read.
    #[error("the world {path} cannot be read")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not what such a file looks like.
    #[error("the world {path}")]
    Shape {
        /// The file.
        path: String,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A name that is none.
    #[error("{what}")]
    Name {
        /// Whose.
        what: String,
        /// The rule.
        #[source]
        source: InvalidName,
    },
    /// A size or rate that is none.
    #[error("{what}")]
    Quantity {
        /// Whose.
        what: String,
        /// The rule.
        #[source]
        source: InvalidQuantity,
    },
    /// A pool that is not in the configuration.
    #[error("{what}: no pool {pool:?} is configured")]
    NoPool {
        /// Who names it.
        what: String,
        /// The name.
        pool: String,
    },
    /// Something else that cannot be so.
    #[error("{what}: {rule}")]
    Rule {
        /// Whose.
        what: String,
        /// The rule.
        rule: &'static str,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWorld {
    #[serde(default, rename = "pool")]
    pools: Vec<RawPool>,
    #[serde(default, rename = "domain")]
    domains: Vec<RawDomain>,
    #[serde(default, rename = "volume")]
    volumes: Vec<RawVolume>,
    offline_rate: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPool {
    name: String,
    free: Option<String>,
    state: Option<PoolState>,
}

/// How a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// It takes volumes.
    Healthy,
    /// Its monitors do not answer.
    Unreachable,
    /// Its monitors do not accept the key.
    WrongKey,
    /// Nothing is mounted at its path.
    NotMounted,
    /// No room is left.
    Full,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDomain {
    name: String,
    uuid: Option<String>,
    #[serde(default)]
    state: RawState,
    #[serde(default = "yes")]
    persistent: bool,
    copy_rate: Option<String>,
    dirty_rate: Option<String>,
    trouble: Option<Trouble>,
    /// How many operations have it; without a number, every one.
    trouble_times: Option<u32>,
    #[serde(rename = "disk")]
    disks: Vec<RawDisk>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawState {
    #[default]
    Running,
    Paused,
    ShutOff,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDisk {
    target: String,
    volume: String,
    size: String,
    allocated: Option<String>,
    #[serde(default)]
    snapshots: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVolume {
    volume: String,
    size: String,
    allocated: Option<String>,
    #[serde(default)]
    snapshots: Vec<String>,
}

fn yes() -> bool {
    true
}

/// Reads the file and makes its world, with these pools in it. Must be called within a runtime: what goes wrong in the
/// world is a task of its own.
///
/// # Errors
/// When the file cannot be read, or says what cannot be; the error names the entry and the rule.
pub fn load(path: &Path, pools: &[Pool]) -> Result<World, WorldFileError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| WorldFileError::Unreadable { path: shown.clone(), source })?;
    let raw: RawWorld = toml::from_str(&text)
        .map_err(|source| WorldFileError::Shape { path: shown, source: Box::new(source) })?;
    build(&raw, pools)
}

fn build(raw: &RawWorld, pools: &[Pool]) -> Result<World, WorldFileError> {
    let world = World::new();
    world.with(|state| make_pools(state, pools));
    if let Some(rate) = &raw.offline_rate {
        let rate = bytes("offline_rate", rate)?;
        world.with(|state| state.copy_pace = rate.0);
    }
    for volume in &raw.volumes {
        place(&world, &format!("volume {}", volume.volume), volume, pools)?;
    }
    let mut troubles = Vec::new();
    for domain in &raw.domains {
        troubles.extend(make_domain(&world, domain, pools)?);
    }
    // Last: what lies in a pool was put there before it went wrong.
    for pool in &raw.pools {
        let what = format!("pool {}", pool.name);
        let meant = find(&what, &pool.name, pools)?;
        let free = pool.free.as_deref().map(|free| bytes(&what, free)).transpose()?;
        world.with(|state| set_pool(state, &meant.kind, free, pool.state));
    }
    for troubled in troubles {
        tokio::spawn(trouble::cause(world.clone(), troubled));
    }
    Ok(world)
}

fn find<'a>(what: &str, name: &str, pools: &'a [Pool]) -> Result<&'a Pool, WorldFileError> {
    pools
        .iter()
        .find(|pool| pool.name.as_str() == name)
        .ok_or_else(|| WorldFileError::NoPool { what: what.to_owned(), pool: name.to_owned() })
}

fn bytes(what: &str, text: &str) -> Result<Bytes, WorldFileError> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    text.parse().map_err(|source| WorldFileError::Quantity { what: what.to_owned(), source })
}

fn make_pools(state: &mut State, pools: &[Pool]) {
    for pool in pools {
        match &pool.kind {
            PoolKind::Rbd(rbd) => make_ceph_pool(state, rbd),
            PoolKind::File(folder) => {
                let device = FIRST_DEVICE + state.folders.len() as u64;
                let made = Folder {
                    device,
                    available: FREE.0,
                    total: FREE.0 * 2,
                    mounted: true,
                    owner: FileOwner { uid: 0, gid: 0, mode: 0o755 },
                    root_is_root: true,
                    probed: true,
                    forces_owner: None,
                };
                state.folders.insert(folder.path.clone(), made);
            }
        }
    }
}

fn make_ceph_pool(state: &mut State, rbd: &RbdPool) {
    state.secrets.extend(rbd.address.secret_uuid.clone());
    let empty = CephPool { available: FREE.0, ..CephPool::default() };
    let name = match &rbd.address.namespace {
        Some(namespace) => format!("{}/{namespace}", rbd.address.pool),
        None => rbd.address.pool.clone(),
    };
    let known = state.clusters.iter().position(|c| c.monitors.shares_a_monitor_with(&rbd.monitors));
    let index = known.unwrap_or_else(|| {
        let number = state.number();
        state.clusters.push(Cluster {
            fsid: format!("40000000-0000-4000-8000-{number:012x}"),
            monitors: rbd.monitors.clone(),
            reachable: true,
            key_accepted: true,
            pools: [].into(),
        });
        state.clusters.len() - 1
    });
    if let Some(cluster) = state.clusters.get_mut(index) {
        cluster.pools.entry(name).or_insert(empty);
    }
}

fn set_pool(state: &mut State, kind: &PoolKind, free: Option<Bytes>, to: Option<PoolState>) {
    match kind {
        PoolKind::Rbd(rbd) => {
            let shares = |c: &&mut Cluster| c.monitors.shares_a_monitor_with(&rbd.monitors);
            if let Some(cluster) = state.clusters.iter_mut().find(shares) {
                cluster.reachable &= to != Some(PoolState::Unreachable);
                cluster.key_accepted &= to != Some(PoolState::WrongKey);
            }
            if let Ok(pool) = state.pool_mut(&rbd.address) {
                pool.available = free.map_or(pool.available, |free| free.0);
                pool.full = to == Some(PoolState::Full);
            }
        }
        PoolKind::File(file) => match to {
            Some(PoolState::Unreachable) => drop(state.folders.remove(&file.path)),
            _ => {
                let Some(folder) = state.folders.get_mut(&file.path) else { return };
                folder.mounted = to != Some(PoolState::NotMounted);
                folder.available = match to {
                    Some(PoolState::Full) => 0,
                    _ => free.map_or(folder.available, |free| free.0),
                };
            }
        },
    }
}

/// Puts a volume where the file says.
fn place(
    world: &World,
    what: &str,
    raw: &RawVolume,
    pools: &[Pool],
) -> Result<VolumeLocation, WorldFileError> {
    let rule = |rule| WorldFileError::Rule { what: what.to_owned(), rule };
    let (pool, name) = raw.volume.split_once('/').ok_or_else(|| rule("it is not POOL/NAME"))?;
    let kind = &find(what, pool, pools)?.kind;
    VolumeName::new(name)
        .map_err(|source| WorldFileError::Name { what: what.to_owned(), source })?;
    let location = match kind {
        PoolKind::Rbd(rbd) => {
            VolumeLocation::Rbd { address: rbd.address.clone(), image: name.to_owned() }
        }
        PoolKind::File(folder) => VolumeLocation::File { path: folder.path.join(name) },
    };
    let size = bytes(what, &raw.size)?;
    let allocated = raw.allocated.as_deref().map(|text| bytes(what, text)).transpose()?;
    let allocated = allocated.unwrap_or(Bytes(size.0 / 2));
    if size.0 == 0 || size.0 % 512 != 0 || allocated > size {
        return Err(rule(
            "its size is a positive multiple of 512, and it occupies no more than it",
        ));
    }
    world.with(|state| {
        if state.volume(&location).is_some() {
            return Err(rule("there is a volume of this name already"));
        }
        put(state, &location, size.0, allocated.0);
        state.set_snapshots(&location, &raw.snapshots);
        Ok(())
    })?;
    Ok(location)
}

fn make_domain(
    world: &World,
    raw: &RawDomain,
    pools: &[Pool],
) -> Result<Option<Troubled>, WorldFileError> {
    let what = format!("domain {}", raw.name);
    let rule = |rule| WorldFileError::Rule { what: what.clone(), rule };
    let name = |source| WorldFileError::Name { what: what.clone(), source };
    let runs = raw.state != RawState::ShutOff;
    if raw.trouble == Some(Trouble::LibvirtGone) && raw.trouble_times.is_some() {
        return Err(rule("no copy begins with this trouble, so it has no number of times"));
    }
    if !runs && !raw.persistent {
        return Err(rule("a transient domain is gone when it is shut off"));
    }
    let uuid = raw.uuid.clone().unwrap_or_else(|| {
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, raw.name.as_bytes()).to_string()
    });
    let uuid = DomainUuid::new(uuid).map_err(name)?;
    let mut disks = Vec::new();
    let mut targets = BTreeSet::new();
    for disk in &raw.disks {
        DiskTarget::new(&disk.target).map_err(name)?;
        if !targets.insert(disk.target.as_str()) {
            return Err(rule("two of its disks have one target"));
        }
        let what = format!("{what}, disk {}", disk.target);
        let volume = RawVolume {
            volume: disk.volume.clone(),
            size: disk.size.clone(),
            allocated: disk.allocated.clone(),
            snapshots: disk.snapshots.clone(),
        };
        disks.push((disk.target.as_str(), place(world, &what, &volume, pools)?));
    }
    let pace = Pace {
        copy: rate(&what, raw.copy_rate.as_deref(), Pace::default().copy)?,
        dirty: rate(&what, raw.dirty_rate.as_deref(), 0)?,
        ..Pace::default()
    };
    let disks: Vec<_> = disks.iter().map(|(target, volume)| (*target, volume)).collect();
    let stored = domain_xml(&raw.name, &uuid, &disks, None);
    let made = world.with(|state| {
        if state.domains.contains_key(&uuid) || state.domains.values().any(|d| d.name == raw.name) {
            return false;
        }
        let domain = Domain {
            name: raw.name.clone(),
            state: DomainState::ShutOff,
            persistent: raw.persistent,
            live_xml: stored.clone(),
            inactive_xml: raw.persistent.then(|| stored.clone()),
            snapshots: Snapshots::default(),
            managed_save: false,
            qemu: None,
            stray: false,
        };
        state.domains.insert(uuid.clone(), domain);
        if runs {
            let number = state.number();
            let live = domain_xml(&raw.name, &uuid, &disks, Some(number));
            state.start(&uuid, &live);
        }
        if let Some(domain) = state.domains.get_mut(&uuid) {
            if raw.state == RawState::Paused {
                domain.state = DomainState::Paused;
            }
            let opened = domain.qemu.iter_mut().flat_map(|qemu| qemu.disks.values_mut());
            opened.for_each(|disk| disk.pace = pace);
        }
        true
    });
    if !made {
        return Err(rule("there is a domain of this name or uuid already"));
    }
    let volumes = disks.iter().map(|(_, volume)| (*volume).clone()).collect();
    Ok(raw.trouble.map(|trouble| Troubled { uuid, volumes, trouble, times: raw.trouble_times }))
}

fn rate(what: &str, text: Option<&str>, default: u64) -> Result<u64, WorldFileError> {
    text.map_or(Ok(default), |text| bytes(what, text).map(|rate| rate.0))
}
