//! What an operator checks before the first move and when something is odd: each thing looked at once, what was found,
//! and what to do about it. Nothing is changed.

use futures::future::join_all;

use super::Engine;
use super::context::Context;
use crate::operation::State;
use crate::operation::space::takes_nothing;
use crate::plan::source::belongs_here;
use crate::ports::{ErrorClass, PortError};
use crate::report::chain;
use crate::spec::{Bytes, FilePool, Pool, PoolKind, RbdPoolAddress};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Worth knowing, and in no move's way.
    Note,
    /// In the way of moves.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What: `libvirt`, `pool NAME`, `secret of pool NAME`.
    pub what: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it; none where nothing is to be done.
    pub fix: Option<String>,
}

impl Check {
    fn good(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Good, found: found.into(), fix: None }
    }

    fn note(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self { what: what.into(), verdict: Verdict::Note, found: found.into(), fix }
    }

    fn bad(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, ..Self::note(what, found, fix) }
    }
}

impl Engine {
    /// Looks at the journal, libvirt, QEMU, every pool of the configuration with its mount and its secret, and at what
    /// waits for somebody.
    pub async fn checks(&self) -> Vec<Check> {
        let context = &*self.context;
        let mut checks = vec![
            Check::good("agent", format!("version {}", env!("CARGO_PKG_VERSION"))),
            libvirt(context).await,
        ];
        checks.extend(journal(context).await);
        let host = context.host();
        let pools = join_all(host.pools.iter().map(|pool| pool_checks(context, pool)));
        checks.extend(pools.await.into_iter().flatten());
        if host.pools.is_empty() {
            let fix = "add a [[pool]] to the configuration, or move to active pools of libvirt";
            checks.push(Check::note("pools", "none is configured", fix));
        }
        checks
    }
}

async fn libvirt(context: &Context) -> Check {
    const WHAT: &str = "libvirt";
    const FIX: &str = "start libvirtd (or virtqemud), and check libvirt_uri in the configuration";
    match context.ports.domains.versions().await {
        Ok(versions) if context.ports.events.connected() => {
            Check::good(WHAT, format!("libvirt {}, QEMU {}", versions.libvirt, versions.qemu))
        }
        Ok(_) => Check::bad(WHAT, "it answers, but its events do not come through", FIX),
        Err(error) => Check::bad(WHAT, error.to_string(), FIX),
    }
}

/// The journal, and what it says waits for somebody.
async fn journal(context: &Context) -> Vec<Check> {
    const WHAT: &str = "journal";
    let journal = &context.journal;
    let (states, leftovers) = match (journal.states().await, journal.leftovers().await) {
        (Ok(states), Ok(leftovers)) => (states, leftovers),
        (Err(error), _) | (_, Err(error)) => {
            let fix = "check the disk of the state folder, and the agent's log";
            return vec![Check::bad(WHAT, chain(&error), fix)];
        }
    };
    let total: u64 = states.iter().map(|(_, count)| count).sum();
    let mut checks = vec![Check::good(WHAT, format!("{total} operations"))];
    let undecided = states.iter().find(|(state, _)| *state == State::NeedsOperator);
    if let Some((_, count)) = undecided {
        let fix = "`volferry ops list` names them, `volferry ops resolve ID` shows the evidence";
        checks.push(Check::bad("operations", format!("{count} need an operator"), fix));
    }
    if !leftovers.is_empty() {
        let found = format!("{} could not be removed yet", leftovers.len());
        checks.push(Check::note("leftovers", found, "`volferry leftovers list` says why"));
    }
    checks
}

async fn pool_checks(context: &Context, pool: &Pool) -> Vec<Check> {
    match &pool.kind {
        PoolKind::Rbd(rbd) => {
            let mut checks = Vec::new();
            if let Some(uuid) = &rbd.address.secret_uuid {
                checks.push(secret(context, pool, uuid).await);
            }
            checks.push(ceph(context, pool, &rbd.address).await);
            checks
        }
        PoolKind::File(folder) => vec![file_pool(context, pool, folder).await],
    }
}

async fn secret(context: &Context, pool: &Pool, uuid: &str) -> Check {
    let what = format!("secret of pool {}", pool.name);
    match context.ports.domains.secret_exists(uuid).await {
        Ok(true) => Check::good(what, uuid),
        Ok(false) => Check::bad(
            what,
            format!("libvirt has no secret {uuid}"),
            format!("`virsh secret-define` one of that uuid, then `virsh secret-set-value {uuid}`"),
        ),
        Err(error) => Check::bad(what, error.to_string(), "libvirt has to be there for this"),
    }
}

async fn ceph(context: &Context, pool: &Pool, address: &RbdPoolAddress) -> Check {
    let what = format!("pool {}", pool.name);
    let space = match context.ports.images.space(address).await {
        Ok(space) => space,
        Err(error) => return Check::bad(what, error.to_string(), ceph_fix(&error, address)),
    };
    if let Some(short) = takes_nothing(&pool.name, &space, &context.host().limits.reserve) {
        return Check::bad(what, short, "free room in it, raise its quota, or add storage");
    }
    let free = space.available.map_or("room unknown".to_owned(), |free| format!("{free} free"));
    Check::good(what, format!("rbd:{}, {free}", address.pool))
}

fn ceph_fix(error: &PortError, address: &RbdPoolAddress) -> String {
    let user = address.user.as_deref().unwrap_or("admin");
    match error.class {
        ErrorClass::PermissionDenied => {
            format!("check the key of user {user} and its caps: `ceph auth get client.{user}`")
        }
        ErrorClass::NotFound => {
            format!("check the pool's name, its namespace, and that client.{user} may see it")
        }
        ErrorClass::Unavailable | ErrorClass::NoAnswer => {
            format!("check the network to the monitors {}, and `ceph -s`", address.monitors)
        }
        _ => "look at the cluster with `ceph -s`, and at the agent's log".to_owned(),
    }
}

async fn file_pool(context: &Context, pool: &Pool, folder: &FilePool) -> Check {
    let (what, path) = (format!("pool {}", pool.name), folder.path.display());
    if !belongs_here(&context.host(), folder) {
        let owner = folder.host.as_deref().unwrap_or_default();
        return Check::good(what, format!("{path} is local to host {owner} and not used here"));
    }
    let seen = match context.ports.files.folder(&folder.path).await {
        Ok(seen) => seen,
        Err(error) => {
            let fix = format!("make {path}, or mount it, so that the agent can read and write it");
            return Check::bad(what, error.to_string(), fix);
        }
    };
    if folder.must_be_mounted && !seen.mounted {
        let found = format!("{path} lies on the root file system: its mount is missing");
        let fix = format!(
            "mount {path}, or set must_be_mounted = false if the folder is meant to be there"
        );
        return Check::bad(what, found, fix);
    }
    if seen.available == Bytes(0) {
        return Check::bad(what, format!("the file system of {path} is full"), "free room in it");
    }
    let mounted = if seen.mounted { "mounted" } else { "on the root file system" };
    Check::good(what, format!("{path}, {mounted}, {} free", seen.available))
}
