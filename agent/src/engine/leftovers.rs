//! What operations could not remove: recorded with their end, listed, tried again, forgotten.
//!
//! A retry removes only what still carries the identity, and only while no domain of the host uses it; under a name
//! somebody else could have, the volume first gets its own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::sync::watch;

use super::context::Context;
use super::owner::Owner;
use super::steps::start_copy::is_volume;
use super::steps::{remove_source_secret, volumes};
use super::{Engine, users};
use crate::journal::JournalError;
use crate::operation::{DependentVolume, Leftover, LeftoverKind};
use crate::plan::complete::not_mounted;
use crate::plan::encryption::mark;
use crate::plan::{Plan, SourceCipher, Step};
use crate::ports::{ErrorClass, PortError};
use crate::report::chain;
use crate::spec::{Bytes, Identity, LeftoverId, PoolKind, VolumeLocation};

/// A volume an operation could not remove.
#[derive(Debug)]
pub struct LeftBehind {
    /// What it is.
    pub kind: LeftoverKind,
    /// Where it is.
    pub location: VolumeLocation,
    /// Why.
    pub reason: String,
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stays behind: {}", self.location, self.reason)
    }
}

/// Why a leftover record could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// No such record.
    #[error("there is no leftover {0}")]
    Unknown(LeftoverId),
    /// The journal could not be read or written.
    #[error("the leftovers could not be read or written")]
    Journal(#[from] JournalError),
}

/// How a retry ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retried {
    /// The volume was removed, and its record with it.
    Removed(Leftover),
    /// The volume was gone already; the record is dropped.
    AlreadyGone(Leftover),
    /// The volume stays; the record says why.
    Stays(Leftover),
}

/// Records a volume that stays, to be written down with the operation's end.
pub fn leave(owner: &mut Owner, left: LeftBehind) {
    let since = owner.context.ports.clock.now();
    let leftover = record(&owner.plan, owner.memory.created.clone(), left, since);
    owner.leftovers.retain(|other| other.id != leftover.id);
    owner.leftovers.push(leftover);
}

/// The record of a volume that stays. `created` is the destination's identity.
pub fn record(
    plan: &Plan,
    created: Option<Identity>,
    left: LeftBehind,
    since: SystemTime,
) -> Leftover {
    let LeftBehind { kind, location, reason } = left;
    let (own_name, identity) = match kind {
        LeftoverKind::Source => (retired(plan), Some(plan.source_identity.clone())),
        LeftoverKind::Destination => (Some(private(plan)), created),
        // Whatever has this name is the operation's.
        LeftoverKind::Private => (None, None),
        LeftoverKind::Secret => (None, None),
        LeftoverKind::Snapshot => (retired(plan), Some(plan.source_identity.clone())),
        LeftoverKind::Trash => (None, Some(plan.source_identity.clone())),
    };
    let mut snapshots = Vec::new();
    if kind == LeftoverKind::Source {
        for step in &plan.steps {
            if let Step::DeleteSourceSnapshots { snapshots: planned, .. } = step {
                snapshots.clone_from(planned);
            }
        }
    }
    if kind == LeftoverKind::Snapshot {
        snapshots.push(plan.spec.operation.private_volume_name());
    }
    let opened_as = match (kind, &plan.source) {
        (LeftoverKind::Source, source @ VolumeLocation::File { .. }) => Some(source.clone()),
        _ => None,
    };
    Leftover {
        id: plan.spec.operation.leftover(kind.as_str()),
        operation: plan.spec.operation.clone(),
        domain: plan.domain.clone(),
        kind,
        own_name: own_name.unwrap_or_else(|| location.clone()),
        location,
        opened_as,
        identity,
        snapshots,
        dependent: None,
        secret: secret(plan, kind),
        mount: mount(plan, kind),
        due: None,
        since,
        reason,
        tries: 0,
        last_try: None,
    }
}

/// The secret that goes with the volume: the one this operation made for its destination, and the source's, unless the
/// destination opens with it.
fn secret(plan: &Plan, kind: LeftoverKind) -> Option<String> {
    let of_destination = plan.destination_encryption.as_ref();
    match kind {
        LeftoverKind::Destination => {
            of_destination.filter(|planned| !planned.secret_reused).map(|it| it.secret_uuid.clone())
        }
        LeftoverKind::Source | LeftoverKind::Trash => source_secret(plan)
            .filter(|uuid| of_destination.is_none_or(|planned| planned.secret_uuid != **uuid))
            .cloned(),
        // Undoing the making of the secret takes it away.
        LeftoverKind::Private | LeftoverKind::Secret | LeftoverKind::Snapshot => None,
    }
}

fn source_secret(plan: &Plan) -> Option<&String> {
    match &plan.source_cipher {
        SourceCipher::Header { secret_uuid, .. } => Some(secret_uuid),
        SourceCipher::Plain | SourceCipher::Unknown => {
            plan.steps.iter().find_map(|step| match step {
                Step::RemoveSourceSecret { uuid } => Some(uuid),
                _ => None,
            })
        }
    }
}

/// The folder that must be a mount where the volume is.
fn mount(plan: &Plan, kind: LeftoverKind) -> Option<PathBuf> {
    match kind {
        LeftoverKind::Source | LeftoverKind::Trash => plan.source_mount.clone(),
        LeftoverKind::Destination | LeftoverKind::Private => {
            let in_mount = plan
                .steps
                .iter()
                .any(|step| matches!(step, Step::CreateDestination { must_be_mounted: true, .. }));
            let VolumeLocation::File { path } = &plan.destination else { return None };
            in_mount.then(|| path.parent().map(Path::to_path_buf)).flatten()
        }
        LeftoverKind::Secret | LeftoverKind::Snapshot => None,
    }
}

/// Records a libvirt secret that could not be removed, of a volume that is gone.
pub fn leave_secret(owner: &mut Owner, of: VolumeLocation, uuid: &str, reason: String) {
    leave(owner, LeftBehind { kind: LeftoverKind::Secret, location: of, reason });
    if let Some(leftover) = owner.leftovers.last_mut() {
        leftover.secret = Some(uuid.to_owned());
    }
}

/// Records the operation's snapshot of its source; `depends`: the destination is to be made independent of it first, which
/// is tried again by itself.
pub fn leave_snapshot(owner: &mut Owner, left: LeftBehind, depends: bool) {
    let since = owner.context.ports.clock.now();
    let created = owner.memory.created.clone().filter(|_| depends);
    let leftover = record_snapshot(&owner.plan, created, left, since);
    owner.leftovers.retain(|other| other.id != leftover.id);
    owner.leftovers.push(leftover);
}

/// The record of the operation's snapshot of its source, tried again by itself. `dependent` is the destination that is
/// to be made independent of it first.
pub fn record_snapshot(
    plan: &Plan,
    dependent: Option<Identity>,
    left: LeftBehind,
    since: SystemTime,
) -> Leftover {
    let (location, size) = (plan.destination.clone(), plan.size);
    let dependent = dependent.map(|identity| DependentVolume { location, identity, size });
    Leftover { dependent, due: Some(since), ..record(plan, None, left, since) }
}

/// What was recorded last is tried again from time to time.
pub fn retry_by_itself(owner: &mut Owner) {
    if let Some(leftover) = owner.leftovers.last_mut() {
        leftover.due = Some(leftover.since);
    }
}

/// Records a source in the trash folder of its pool, which is removed when `due` has come.
pub fn leave_in_trash(owner: &mut Owner, location: VolumeLocation, due: SystemTime) {
    let reason = "it can be restored until it is due".to_owned();
    leave(owner, LeftBehind { kind: LeftoverKind::Trash, location, reason });
    if let Some(leftover) = owner.leftovers.last_mut() {
        leftover.due = Some(due);
    }
}

fn retired(plan: &Plan) -> Option<VolumeLocation> {
    plan.steps.iter().find_map(|step| match step {
        Step::RetireSource { to, .. } => Some(to.clone()),
        _ => None,
    })
}

fn private(plan: &Plan) -> VolumeLocation {
    plan.destination.renamed(&plan.spec.operation.private_volume_name())
}

impl Engine {
    /// Every leftover record, oldest first.
    ///
    /// Errors: the journal cannot be read.
    pub async fn leftovers(&self) -> Result<Vec<Leftover>, LeftoverError> {
        Ok(self.context.journal.leftovers().await?)
    }

    /// Tries once more to remove what is left.
    ///
    /// Errors: no such record, or the journal; a volume that stays is no error.
    pub async fn retry_leftover(&self, id: &LeftoverId) -> Result<Retried, LeftoverError> {
        let context = &*self.context;
        let _alone = context.removals.lock().await;
        let journal = &context.journal;
        let unknown = || LeftoverError::Unknown(id.clone());
        let mut leftover = journal.leftover(id).await?.ok_or_else(unknown)?;
        if leftover.due.is_some_and(|due| context.ports.clock.now() < due) {
            return Ok(Retried::Stays(leftover));
        }
        leftover.tries = leftover.tries.saturating_add(1);
        leftover.last_try = Some(context.ports.clock.now());
        if !journal.update_leftover(&leftover).await? {
            return Err(unknown());
        }
        let tried = remove(context, &mut leftover).await;
        let retried = match tried {
            Ok(gone) => {
                // Dropped or forgotten: either way nothing is left to be remembered.
                journal.drop_leftover(id).await?;
                if gone { Retried::AlreadyGone(leftover) } else { Retried::Removed(leftover) }
            }
            Err(reason) => {
                leftover.reason = reason;
                journal.update_leftover(&leftover).await?;
                Retried::Stays(leftover)
            }
        };
        context.metrics.retried(&retried);
        tracing::info!(leftover = %id, ?retried, "leftover tried again");
        Ok(retried)
    }

    /// Removes what is in the trash and due, and what appeared late, now and from time to time, until it is dropped.
    pub(super) async fn purge(self) {
        loop {
            match self.context.journal.leftovers().await {
                Ok(leftovers) => {
                    for leftover in leftovers.iter().filter(|leftover| leftover.due.is_some()) {
                        if let Err(error) = self.retry_leftover(&leftover.id).await {
                            tracing::warn!(leftover = %leftover.id, error = %chain(&error), "purge");
                        }
                    }
                }
                Err(error) => tracing::warn!(error = %chain(&error), "purge"),
            }
            self.sweep().await;
            tokio::time::sleep(self.context.tuning.purge_period).await;
        }
    }

    /// Drops a record and touches nothing.
    ///
    /// Errors: no such record, or the journal.
    pub async fn forget_leftover(&self, id: &LeftoverId) -> Result<Leftover, LeftoverError> {
        let journal = &self.context.journal;
        let found = journal.leftover(id).await?;
        match (found, journal.drop_leftover(id).await?) {
            (Some(leftover), true) => Ok(leftover),
            _ => Err(LeftoverError::Unknown(id.clone())),
        }
    }
}

/// Removes the volume and the secret that goes with it; true when the volume was gone already.
///
/// Errors: why something stays.
async fn remove(context: &Context, leftover: &mut Leftover) -> Result<bool, String> {
    let gone = match leftover.kind {
        LeftoverKind::Secret => false,
        LeftoverKind::Snapshot => {
            remove_our_snapshots(context, leftover).await?;
            false
        }
        _ => remove_volume(context, leftover).await?,
    };
    let Some(uuid) = leftover.secret.clone() else { return Ok(gone) };
    let stays = |why| format!("the libvirt secret {uuid} stays: {why}");
    if goes_too(context, leftover, &uuid, gone).await.map_err(stays)? {
        let removed = remove_secret(context, &uuid).await;
        if removed.is_err() && leftover.kind == LeftoverKind::Trash {
            // Gone by our own hand: nobody restored it.
            leftover.kind = LeftoverKind::Secret;
        }
        removed.map_err(stays)?;
    }
    Ok(gone)
}

/// Whether the secret goes now that the volume is gone: a destination's where the operation made it; not where a source
/// was taken out of the trash by another hand, for what was restored opens with it.
async fn goes_too(
    context: &Context,
    leftover: &Leftover,
    uuid: &str,
    gone: bool,
) -> Result<bool, String> {
    match leftover.kind {
        LeftoverKind::Destination => {
            let found =
                context.ports.secrets.look(uuid).await.map_err(|error| error.to_string())?;
            let description = found.and_then(|secret| secret.description);
            Ok(description.as_deref() == Some(mark(&leftover.operation).as_str()))
        }
        LeftoverKind::Trash => Ok(!gone),
        LeftoverKind::Source | LeftoverKind::Private | LeftoverKind::Secret => Ok(true),
        // It has none.
        LeftoverKind::Snapshot => Ok(false),
    }
}

/// Errors: who uses it, or will, or why it cannot be removed.
async fn remove_secret(context: &Context, uuid: &str) -> Result<(), String> {
    let unfinished = context.journal.unfinished().await.map_err(|error| chain(&error))?;
    // Its copy may not have begun, so that no domain names the secret yet.
    let needs = |plan: &Plan| {
        let mut steps = plan.steps.iter();
        steps.any(|step| matches!(step, Step::SetSecret { uuid: other, .. } if other == uuid))
    };
    if let Some(other) = unfinished.iter().find(|stored| needs(&stored.plan)) {
        return Err(format!("operation {} uses it", other.plan.spec.operation));
    }
    match remove_source_secret::unless_used(&context.ports, uuid).await {
        Ok(None) => Ok(()),
        Ok(Some(domain)) => Err(format!("domain {domain} uses it")),
        Err(error) if error.class == ErrorClass::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes the destination independent, then deletes the snapshot it was made from.
async fn remove_our_snapshots(context: &Context, leftover: &Leftover) -> Result<(), String> {
    let ports = &context.ports;
    let words = |error: PortError| error.to_string();
    let Some(source) = &leftover.identity else { return Ok(()) };
    if let Some(DependentVolume { location, identity, size }) = &leftover.dependent {
        if volumes::identity(ports, location).await.map_err(words)?.as_ref() == Some(identity) {
            let (done, _progress) = watch::channel(Bytes(0));
            volumes::flatten(ports, location, identity, *size, &done).await.map_err(words)?;
        } else {
            nobody_depends_on(context, leftover, source).await?;
        }
    }
    for snapshot in &leftover.snapshots {
        let names = leftover.names();
        volumes::drop_snapshot(ports, &names, source, snapshot).await.map_err(words)?;
    }
    Ok(())
}

/// Errors: the source has clones, of which one may be the destination under a name it was given since; or the source is
/// under none of its names, so that this cannot be told. Who knows better forgets the record.
async fn nobody_depends_on(
    context: &Context,
    leftover: &Leftover,
    source: &Identity,
) -> Result<(), String> {
    for name in leftover.names() {
        let VolumeLocation::Rbd { address, image } = &name else { continue };
        let seen = context.ports.images.observe(address, image).await;
        let Some(seen) = seen.map_err(|error| error.to_string())? else { continue };
        if *source != (Identity::Rbd { image_id: seen.image_id.clone() }) {
            continue;
        }
        return match seen.children.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{name} has clones, of which one may be the volume that was moved: {}",
                seen.children.join(", ")
            )),
        };
    }
    Err(format!("the source {} is not there under a name that is known", leftover.location))
}

/// True when it was gone already.
async fn remove_volume(context: &Context, leftover: &mut Leftover) -> Result<bool, String> {
    let Some((at, identity)) = find(context, leftover).await? else { return Ok(true) };
    check_unused(context, leftover, &at).await?;
    let ports = &context.ports;
    if at != leftover.own_name {
        volumes::rename(ports, &at, &leftover.own_name).await.map_err(|error| error.to_string())?;
    }
    leftover.location = leftover.own_name.clone();
    let own_name = &leftover.own_name;
    for snapshot in &leftover.snapshots {
        let deleted = volumes::remove_snapshot(ports, own_name, &identity, snapshot).await;
        none_left(deleted)?;
    }
    none_left(volumes::remove(ports, own_name, &identity).await)?;
    if matches!(leftover.kind, LeftoverKind::Destination | LeftoverKind::Private) {
        volumes::unmark(context, own_name, &leftover.operation).await;
    }
    Ok(false)
}

/// What is not there is removed.
fn none_left(removed: Result<(), PortError>) -> Result<(), String> {
    match removed {
        Err(error) if error.class != ErrorClass::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// The name the volume has, and its identity there; none when it is gone.
///
/// Errors: it cannot be told, or something else has the name.
async fn find(
    context: &Context,
    leftover: &Leftover,
) -> Result<Option<(VolumeLocation, Identity)>, String> {
    let mut other = None;
    for name in leftover.names() {
        let found = volumes::identity(&context.ports, &name).await;
        match found.map_err(|error| error.to_string())? {
            Some(found) if leftover.is(&name, &found) => return Ok(Some((name, found))),
            Some(found) => other = Some(format!("{name} is another volume by now ({found})")),
            None => {}
        }
    }
    match other {
        Some(other) => Err(format!("{other}: look at it, and forget the record if all is well")),
        None => check_mounted(context, leftover).await.map(|()| None),
    }
}

/// A name that is free in a folder where nothing is mounted proves nothing: neither in the folder the record names, of
/// whichever pool it was, nor in one of the configuration.
async fn check_mounted(context: &Context, leftover: &Leftover) -> Result<(), String> {
    let volume = &leftover.own_name;
    let VolumeLocation::File { path } = volume else { return Ok(()) };
    let host = context.host();
    let configured = host.pools.iter().filter_map(|pool| match &pool.kind {
        PoolKind::File(folder) if folder.must_be_mounted && path.starts_with(&folder.path) => {
            Some(&folder.path)
        }
        _ => None,
    });
    for folder in configured.chain(&leftover.mount) {
        let seen = context.ports.files.folder(folder).await;
        if !seen.map_err(|error| error.to_string())?.mounted {
            return Err(not_mounted(volume));
        }
    }
    Ok(())
}

/// Errors: who uses it, or that this cannot be told.
async fn check_unused(
    context: &Context,
    leftover: &Leftover,
    at: &VolumeLocation,
) -> Result<(), String> {
    let cannot_tell = |error: PortError| format!("whether it is in use cannot be told: {error}");
    let user = users::other_user_by_headers(&context.ports, None, |image| is_volume(image, at))
        .await
        .map_err(cannot_tell)?;
    if let Some(domain) = user {
        return Err(format!("domain {domain} uses it"));
    }
    let mut names = leftover.names();
    names.extend(leftover.opened_as.clone());
    let used = users::qemu_may_use(&context.ports, &leftover.domain, &names).await;
    if used.map_err(cannot_tell)? {
        return Err(format!("the QEMU of domain {} may still use it", leftover.domain));
    }
    // Other hosts show in watchers and locks only.
    let open = users::open_by(&context.ports, at, 0).await.map_err(cannot_tell)?;
    match open.is_empty() {
        true => Ok(()),
        false => Err(format!("it is in use: {}", open.join(", "))),
    }
}
