//! PURE: whether a request may bring its destination pool along, and that pool.

use std::path::Path;

use super::refusal::{Refusal, RefusalCode};
use crate::facts::HostFacts;
use crate::ports::FolderAccess;
use crate::spec::{MigrateSpec, Pool, PoolKind};

/// The pool the request brings along; none when it names one.
///
/// Errors: `not-allowed`, unless the configuration allows such pools.
pub fn of(host: &HostFacts, spec: &MigrateSpec) -> Result<Option<Pool>, Refusal> {
    let Some(brought) = &spec.pool else { return Ok(None) };
    let name = &spec.to;
    let refuse = |why: String| Err(Refusal::new(RefusalCode::NotAllowed, why));
    if host.pools.iter().any(|pool| pool.name == *name) {
        return refuse(format!(
            "pool {name} is in the configuration: name it without bringing it along, or give the other one another name"
        ));
    }
    let pool = brought.to_pool(name, &host.host_name).map_err(|error| {
        Refusal::new(RefusalCode::InvalidName, format!("pool {name}: monitors: {error}"))
    })?;
    match &pool.kind {
        PoolKind::Rbd(_) if !host.request_pools.rbd => refuse(format!(
            "pool {name}: the configuration of this agent does not let requests bring Ceph pools along \
             (pools_in_requests.rbd)"
        )),
        PoolKind::File(folder) if !is_below(host, &folder.path) => {
            refuse(not_below(host, name.as_str(), &folder.path))
        }
        PoolKind::Rbd(_) | PoolKind::File(_) => Ok(Some(pool)),
    }
}

/// Refuses a folder that is allowed by its name and lies elsewhere, by way of symbolic links.
pub fn check_place(
    host: &HostFacts,
    spec: &MigrateSpec,
    access: &FolderAccess,
) -> Result<(), Refusal> {
    let Some(found) = access.folders.last().filter(|_| spec.pool.is_some()) else { return Ok(()) };
    if is_below(host, &found.path) {
        return Ok(());
    }
    let why = not_below(host, spec.to.as_str(), &found.path);
    Err(Refusal::new(RefusalCode::NotAllowed, format!("{why} (symbolic links resolved)")))
}

fn is_below(host: &HostFacts, folder: &Path) -> bool {
    host.request_pools.paths.iter().any(|path| folder.starts_with(path))
}

fn not_below(host: &HostFacts, name: &str, folder: &Path) -> String {
    let folder = folder.display();
    let paths = host.request_pools.paths.iter().map(|path| path.display().to_string());
    match paths.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => format!(
            "pool {name}: the configuration of this agent does not let requests bring folders along \
             (pools_in_requests.paths)"
        ),
        paths => format!(
            "pool {name}: {folder} lies below none of the folders that requests may bring along: {paths}"
        ),
    }
}
