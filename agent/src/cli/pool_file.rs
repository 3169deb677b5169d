//! `--to-pool-file`: a pool that travels with the request, read by the rules of the configuration.

use std::fs;
use std::path::Path;

use super::failure::Failure;
use crate::api::pb;
use crate::api::status::Exit;
use crate::config::pool::resolve_here;
use crate::config::raw::{RawKind, RawPool, RawPoolFile};

/// The pool's name and the pool.
///
/// Errors: the file cannot be read, does not hold exactly one pool, or one that no request may carry.
pub fn read(file: &Path) -> Result<(String, pb::RequestPool), Failure> {
    let usage = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {why}", file.display()))
    };
    let text = fs::read_to_string(file).map_err(|error| usage(&error))?;
    let raw: RawPoolFile = toml::from_str(&text).map_err(|error| usage(&error))?;
    let [pool] = <[RawPool; 1]>::try_from(raw.pool)
        .map_err(|pools| usage(&format!("expected one [[pool]], found {}", pools.len())))?;
    for (key, said) in [
        ("key_file: a request carries no keys; name a libvirt secret", pool.key_file.is_some()),
        ("operations: only the agent's configuration limits these", pool.operations.is_some()),
    ] {
        if said {
            return Err(usage(&key));
        }
    }
    resolve_here(pool.clone()).map_err(|error| usage(&error))?;
    Ok((pool.name.clone(), wire(pool)))
}

fn wire(pool: RawPool) -> pb::RequestPool {
    let kind = match pool.kind {
        RawKind::Rbd => "rbd",
        RawKind::Nfs => "nfs",
        RawKind::SharedMountPoint => "shared-mount-point",
        RawKind::Local => "local",
    };
    pb::RequestPool {
        r#type: kind.to_owned(),
        monitors: pool.monitors.unwrap_or_default(),
        port: pool.port.unwrap_or_default(),
        ceph_pool: pool.pool.unwrap_or_default(),
        ceph_namespace: pool.namespace.unwrap_or_default(),
        user: pool.user.unwrap_or_default(),
        secret_uuid: pool.secret_uuid.unwrap_or_default(),
        path: pool.path.unwrap_or_default(),
        host: pool.host.unwrap_or_default(),
        must_be_mounted: pool.must_be_mounted,
    }
}
