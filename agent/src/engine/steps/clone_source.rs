//! Makes the destination as a clone of a snapshot of the source, under a name only this operation can have, and records
//! its identity. Nothing is copied yet; the clone holds what the source held at that moment.
//!
//! Begun before: the clone and the snapshot are ours by their names, and are made anew, for the source may have
//! changed since.

use super::{UndoError, begin_preparing, create_destination, offline, volumes};
use crate::engine::backoff::Backoff;
use crate::engine::leftovers::LeftBehind;
use crate::engine::owner::{Owner, Stop};
use crate::journal::{StepOutcome, What};
use crate::operation::{Event, Failure, FailureCause, LeftoverKind, Side};
use crate::plan::StepKind;
use crate::ports::{ErrorClass, ParentSnapshot, PortError};
use crate::spec::{Identity, RbdPoolAddress, VolumeLocation};

const STEP: StepKind = StepKind::CloneSource;

/// Makes the snapshot and its clone.
pub async fn run(
    owner: &mut Owner,
    from: &VolumeLocation,
    snapshot: &str,
    to: &VolumeLocation,
) -> Result<(), Stop> {
    let ((pool, image), (to_pool, to_image)) = (rbd(from)?, rbd(to)?);
    offline::check_unused(owner).await?;
    let begun_before = owner.was_intended(STEP);
    begin_preparing(owner, STEP).await?;
    let images = owner.context.ports.images.clone();
    images.prepare(to_pool).await.map_err(|error| create_destination::failed(&error))?;
    if begun_before {
        create_destination::remove_our_own(owner, to).await?;
        drop_patiently(owner, std::slice::from_ref(from), snapshot)
            .await
            .map_err(|error| snapshot_failed(&error))?;
    }
    let id = image_id(owner)?;
    images
        .create_snapshot(pool, image, &id, snapshot)
        .await
        .map_err(|error| snapshot_failed(&error))?;
    let parent = ParentSnapshot {
        pool: pool.pool.clone(),
        namespace: pool.namespace.clone(),
        image: image.to_owned(),
        snapshot: snapshot.to_owned(),
    };
    let image_id = images
        .clone_image(&parent, to_pool, to_image)
        .await
        .map_err(|error| create_destination::failed(&error))?;
    let identity = Identity::Rbd { image_id };
    create_destination::mark(owner, to, &identity).await;
    let outcome = StepOutcome::Created { identity };
    owner.remember_done(STEP, &outcome);
    owner.advance(Event::CopyStarted, vec![What::Done { step: STEP, outcome }]).await
}

fn rbd(volume: &VolumeLocation) -> Result<(&RbdPoolAddress, &str), Stop> {
    match volume {
        VolumeLocation::Rbd { address, image } => Ok((address, image)),
        VolumeLocation::File { .. } => Err(not_an_image(volume)),
    }
}

fn image_id(owner: &Owner) -> Result<String, Stop> {
    match &owner.plan.source_identity {
        Identity::Rbd { image_id } => Ok(image_id.clone()),
        Identity::File { .. } => Err(not_an_image(&owner.plan.source)),
    }
}

fn not_an_image(volume: &VolumeLocation) -> Stop {
    let text = format!("{volume} is no RBD image, and only those have clones");
    Stop::Failed(Failure::new(FailureCause::Internal, Side::Host, text))
}

fn snapshot_failed(error: &PortError) -> Stop {
    let cause = match error.class {
        ErrorClass::Replaced | ErrorClass::NotFound => FailureCause::VolumeInUse,
        _ => FailureCause::SourceReadError,
    };
    Stop::Failed(Failure::new(cause, Side::Source, error.to_string()))
}

/// Removes the clone under whichever name it has, then the snapshot.
pub async fn undo(
    owner: &mut Owner,
    from: &VolumeLocation,
    snapshot: &str,
    private: &VolumeLocation,
) -> Result<(), UndoError> {
    let mut left = match create_destination::undo(owner, private).await {
        Err(UndoError::LeftBehind(left)) => left,
        undone => {
            undone?;
            Vec::new()
        }
    };
    if let Err(error) = drop_patiently(owner, std::slice::from_ref(from), snapshot).await {
        let (location, reason) = (from.clone(), error.to_string());
        left.push(LeftBehind { kind: LeftoverKind::Snapshot, location, reason });
    }
    if left.is_empty() { Ok(()) } else { Err(UndoError::LeftBehind(left)) }
}

/// Deletes our snapshot of the source, under whichever of its names it has; what is not there is deleted. Waits for a
/// bounded time for what is in the way.
///
/// Errors: why it stays.
pub(super) async fn drop_patiently(
    owner: &mut Owner,
    names: &[VolumeLocation],
    snapshot: &str,
) -> Result<(), PortError> {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    let (ports, identity) = (owner.context.ports.clone(), owner.plan.source_identity.clone());
    loop {
        let Err(error) = volumes::drop_snapshot(&ports, names, &identity, snapshot).await else {
            return Ok(());
        };
        owner.say(Some(format!("waiting to delete the snapshot {snapshot}: {}", error.message)));
        if !volumes::may_pass(&error) || !backoff.wait().await {
            return Err(error);
        }
    }
}
