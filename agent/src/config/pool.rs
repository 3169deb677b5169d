//! One `[[pool]]` into a [`Pool`]: the keys its type needs, none of another type's.

use rbdutils::monitors::{MonitorError, MonitorList};
use rbdutils::names::{self, NameError};

use super::raw::{RawKind, RawPool};
use super::rules::{self, InvalidValue};
use crate::spec::{
    FilePool, FilePoolKind, InvalidName, Pool, PoolKind, PoolName, RbdPool, RbdPoolAddress,
};

/// What is wrong with a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Its name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A key its type needs is not there.
    #[error("a pool of type {kind} needs `{key}`")]
    Missing {
        /// The type.
        kind: &'static str,
        /// The key.
        key: &'static str,
    },
    /// A key of another type is there.
    #[error("`{key}` does not belong to a pool of type {kind}")]
    Foreign {
        /// The type.
        kind: &'static str,
        /// The key.
        key: &'static str,
    },
    /// The monitors.
    #[error("monitors: {0}")]
    Monitors(#[from] MonitorError),
    /// The Ceph pool or namespace.
    #[error("{key}: {rule}")]
    CephName {
        /// The key.
        key: &'static str,
        /// What is wrong.
        rule: NameError,
    },
    /// Another value.
    #[error("{key}: {rule}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong.
        rule: InvalidValue,
    },
    /// A user nobody can prove to be.
    #[error("`user` needs `secret_uuid` or `key_file`")]
    UserWithoutKey,
    /// A key nobody uses.
    #[error("`secret_uuid` and `key_file` need `user`")]
    KeyWithoutUser,
}

/// Checks one pool.
pub fn resolve(raw: RawPool) -> Result<Pool, PoolError> {
    let pool = resolve_here(raw)?;
    match &pool.kind {
        PoolKind::File(FilePool { kind: FilePoolKind::Local, host: None, .. }) => {
            Err(PoolError::Missing { kind: "local", key: "host" })
        }
        PoolKind::File(_) | PoolKind::Rbd(_) => Ok(pool),
    }
}

/// The same of a pool that is described to a host: a local one that names no host is that host's.
pub fn resolve_here(raw: RawPool) -> Result<Pool, PoolError> {
    let name = PoolName::new(raw.name.as_str())?;
    let operations = value("operations", raw.operations, rules::at_a_time)?;
    let kind = match raw.kind {
        RawKind::Rbd => PoolKind::Rbd(rbd(raw)?),
        RawKind::Nfs => PoolKind::File(file(raw, FilePoolKind::Nfs, "nfs")?),
        RawKind::SharedMountPoint => {
            PoolKind::File(file(raw, FilePoolKind::SharedMountPoint, "shared-mount-point")?)
        }
        RawKind::Local => PoolKind::File(file(raw, FilePoolKind::Local, "local")?),
    };
    Ok(Pool { name, kind, operations })
}

fn rbd(raw: RawPool) -> Result<RbdPool, PoolError> {
    const KIND: &str = "rbd";
    foreign(
        KIND,
        &[
            ("path", raw.path.is_some()),
            ("host", raw.host.is_some()),
            ("must_be_mounted", raw.must_be_mounted.is_some()),
        ],
    )?;
    let monitors = raw.monitors.ok_or(PoolError::Missing { kind: KIND, key: "monitors" })?;
    let monitors = MonitorList::from_entries(&monitors, raw.port.unwrap_or(0))?;
    let pool = raw.pool.ok_or(PoolError::Missing { kind: KIND, key: "pool" })?;
    let ceph = |key| move |rule| PoolError::CephName { key, rule };
    names::PoolName::new(pool.as_str()).map_err(ceph("pool"))?;
    if let Some(namespace) = &raw.namespace {
        names::NamespaceName::new(namespace.as_str()).map_err(ceph("namespace"))?;
    }
    let address = RbdPoolAddress {
        monitors: monitors.to_ceph_conf(),
        user: value("user", raw.user, rules::word)?,
        secret_uuid: value("secret_uuid", raw.secret_uuid, |text| rules::uuid(&text))?,
        key_file: value("key_file", raw.key_file, |text| rules::absolute(&text))?,
        pool,
        namespace: raw.namespace,
    };
    match (&address.user, address.secret_uuid.is_some() || address.key_file.is_some()) {
        (Some(_), false) => Err(PoolError::UserWithoutKey),
        (None, true) => Err(PoolError::KeyWithoutUser),
        (Some(_), true) | (None, false) => Ok(RbdPool { monitors, address }),
    }
}

fn file(raw: RawPool, kind: FilePoolKind, name: &'static str) -> Result<FilePool, PoolError> {
    foreign(
        name,
        &[
            ("monitors", raw.monitors.is_some()),
            ("port", raw.port.is_some()),
            ("pool", raw.pool.is_some()),
            ("namespace", raw.namespace.is_some()),
            ("user", raw.user.is_some()),
            ("secret_uuid", raw.secret_uuid.is_some()),
            ("key_file", raw.key_file.is_some()),
            ("host", raw.host.is_some() && kind != FilePoolKind::Local),
        ],
    )?;
    let path = value("path", raw.path, |text| rules::absolute(&text))?
        .ok_or(PoolError::Missing { kind: name, key: "path" })?;
    let host = value("host", raw.host, rules::word)?;
    let must_be_mounted = raw.must_be_mounted.unwrap_or(kind.is_mounted());
    Ok(FilePool { kind, path, host, must_be_mounted })
}

fn foreign(kind: &'static str, keys: &[(&'static str, bool)]) -> Result<(), PoolError> {
    match keys.iter().find(|(_, present)| *present) {
        Some((key, _)) => Err(PoolError::Foreign { kind, key }),
        None => Ok(()),
    }
}

fn value<V, T>(
    key: &'static str,
    text: Option<V>,
    rule: impl Fn(V) -> Result<T, InvalidValue>,
) -> Result<Option<T>, PoolError> {
    text.map(rule).transpose().map_err(|rule| PoolError::Value { key, rule })
}
