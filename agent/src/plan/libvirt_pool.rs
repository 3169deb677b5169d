//! PURE: an active storage pool of libvirt as a pool of ours.

use rbdutils::names::{self, NameError};
use volferry_xml::{MalformedXml, StoragePoolXml};

use super::source::{monitors, normalised};
use crate::spec::{FilePool, FilePoolKind, Pool, PoolKind, PoolName, RbdPool, RbdPoolAddress};

/// Why a pool of libvirt cannot be a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusablePool {
    /// Its XML.
    #[error(transparent)]
    Malformed(#[from] MalformedXml),
    /// Its type.
    #[error("a libvirt pool of type {0:?} is no destination: only dir, netfs and rbd are")]
    Kind(String),
    /// Its folder.
    #[error("its target path {0:?} is not absolute, or goes up")]
    Path(String),
    /// Its monitors.
    #[error("it names no monitors, or none that are understood: configure the pool in the agent")]
    Monitors,
    /// The Ceph pool.
    #[error("its source: {0}")]
    CephPool(#[from] NameError),
    /// Its authentication.
    #[error("its <auth> names a user and no secret, or a secret and no user")]
    Auth,
}

/// The usage of the secret that has to be looked up before a pool is complete; none when its uuid is in the XML or
/// no secret is needed.
pub fn usage_to_look_up(pool: &StoragePoolXml) -> Option<&str> {
    let auth = pool.auth.as_ref()?;
    if auth.uuid.is_some() { None } else { auth.usage.as_deref() }
}

/// The pool under the name that was asked for. `secret_of_usage` is the uuid of the secret [`usage_to_look_up`]
/// named.
pub fn to_pool(
    name: &PoolName,
    pool: &StoragePoolXml,
    secret_of_usage: Option<String>,
) -> Result<Pool, UnusablePool> {
    let kind = match pool.kind.as_str() {
        // Nobody says whether the folder is another host's too; it is this host's at least.
        "dir" => PoolKind::File(folder(pool, FilePoolKind::Local)?),
        "netfs" => PoolKind::File(folder(pool, FilePoolKind::Nfs)?),
        "rbd" => PoolKind::Rbd(ceph(pool, secret_of_usage)?),
        other => return Err(UnusablePool::Kind(other.to_owned())),
    };
    Ok(Pool { name: name.clone(), kind, operations: None })
}

fn folder(pool: &StoragePoolXml, kind: FilePoolKind) -> Result<FilePool, UnusablePool> {
    let path = pool.target_path.as_deref().unwrap_or_default();
    let path = normalised(path).ok_or_else(|| UnusablePool::Path(path.to_owned()))?;
    Ok(FilePool { kind, path, host: None, must_be_mounted: kind.is_mounted() })
}

fn ceph(pool: &StoragePoolXml, secret_of_usage: Option<String>) -> Result<RbdPool, UnusablePool> {
    let monitors = monitors(&pool.hosts).ok_or(UnusablePool::Monitors)?;
    let ceph_pool = names::PoolName::new(pool.source_name.as_deref().unwrap_or_default())?;
    let user = pool.auth.as_ref().and_then(|auth| auth.username.clone());
    let secret_uuid = pool.auth.as_ref().and_then(|auth| auth.uuid.clone()).or(secret_of_usage);
    if pool.auth.is_some() && (user.is_none() || secret_uuid.is_none()) {
        return Err(UnusablePool::Auth);
    }
    let address = RbdPoolAddress {
        monitors: monitors.to_ceph_conf(),
        user,
        secret_uuid,
        key_file: None,
        pool: ceph_pool.to_string(),
        namespace: None,
    };
    Ok(RbdPool { monitors, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(xml: &str, usage: Option<&str>) -> Result<Pool, UnusablePool> {
        let pool = StoragePoolXml::parse(xml)?;
        to_pool(&PoolName::new("p").expect("a plain name"), &pool, usage.map(str::to_owned))
    }

    fn rbd(source: &str, usage: Option<&str>) -> Result<RbdPool, UnusablePool> {
        let xml = format!("<pool type='rbd'><name>p</name><source>{source}</source></pool>");
        match read(&xml, usage)?.kind {
            PoolKind::Rbd(rbd) => Ok(rbd),
            PoolKind::File(_) => panic!("a Ceph pool"),
        }
    }

    #[test]
    fn folders_are_mounted_where_libvirt_mounts_them() {
        for (kind, mounted) in [("dir", false), ("netfs", true)] {
            let xml = format!(
                "<pool type='{kind}'><name>p</name><target><path>/srv/vms</path></target></pool>"
            );
            let PoolKind::File(folder) = read(&xml, None).expect("a pool").kind else {
                panic!("a folder")
            };
            assert_eq!((folder.path.to_str(), folder.must_be_mounted), (Some("/srv/vms"), mounted));
        }
        let up = "<pool type='dir'><name>p</name><target><path>/srv/../etc</path></target></pool>";
        assert!(matches!(read(up, None), Err(UnusablePool::Path(_))));
        let other = read("<pool type='logical'><name>p</name></pool>", None);
        assert_eq!(other.err(), Some(UnusablePool::Kind("logical".to_owned())));
    }

    #[test]
    fn a_ceph_pool_needs_monitors_and_a_whole_login() {
        let host = "<host name='192.0.2.11' port='6789'/><name>vms</name>";
        let auth = |secret: &str| format!("{host}<auth type='ceph' username='u'>{secret}</auth>");
        let open = rbd(host, None).expect("a pool without authentication");
        assert_eq!((open.address.monitors.as_str(), open.address.user), ("192.0.2.11:6789", None));
        let by_uuid = rbd(&auth("<secret uuid='a'/>"), None).expect("a pool");
        assert_eq!(by_uuid.address.secret_uuid.as_deref(), Some("a"));
        let by_usage = rbd(&auth("<secret usage='x'/>"), Some("b")).expect("a pool");
        assert_eq!(by_usage.address.secret_uuid.as_deref(), Some("b"));
        assert_eq!(rbd(&auth(""), None).err(), Some(UnusablePool::Auth));
        assert_eq!(rbd("<name>vms</name>", None).err(), Some(UnusablePool::Monitors));
        let escaping = "<host name='192.0.2.11'/><name>a/b</name>";
        assert!(matches!(rbd(escaping, None), Err(UnusablePool::CephPool(_))));
    }
}
