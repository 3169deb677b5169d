//! Makes the destination under a name only this operation can have, and records its identity.
//!
//! Begun before: whatever has the private name is ours by that name, and is made anew.

use super::{UndoError, volumes};
use crate::engine::backoff::Backoff;
use crate::engine::owner::{Owner, Stop};
use crate::journal::{StepOutcome, What};
use crate::operation::{Event, Failure, FailureCause, Side, State};
use crate::plan::StepKind;
use crate::ports::{ErrorClass, FileOwner, PortError};
use crate::spec::{Bytes, Identity, VolumeFormat, VolumeLocation};

const STEP: StepKind = StepKind::CreateDestination;

/// Creates the volume.
pub async fn run(
    owner: &mut Owner,
    volume: &VolumeLocation,
    format: VolumeFormat,
    size: Bytes,
    file_owner: Option<FileOwner>,
) -> Result<(), Stop> {
    owner.remember_intent(STEP);
    if owner.view.state == State::Planned {
        owner.advance(Event::PreparationBegan, vec![What::Intent { step: STEP }]).await?;
    } else {
        owner.intend(STEP).await?;
    }
    let ports = owner.context.ports.clone();
    if let VolumeLocation::Rbd { address, .. } = volume {
        ports.images.prepare(address).await.map_err(|error| failed(&error))?;
    }
    let mut created = volumes::create(&ports, volume, format, size, file_owner).await;
    if matches!(&created, Err(error) if error.class == ErrorClass::Exists) {
        // Only an earlier life of this very operation can have made it.
        remove_any(owner, volume).await.map_err(|error| failed(&error))?;
        created = volumes::create(&ports, volume, format, size, file_owner).await;
    }
    let identity = created.map_err(|error| failed(&error))?;
    owner.done(STEP, StepOutcome::Created { identity }).await
}

fn failed(error: &PortError) -> Stop {
    let cause = match error.class {
        ErrorClass::NoSpace => FailureCause::DestinationFull,
        _ => FailureCause::DestinationWriteError,
    };
    Stop::Failed(Failure::new(cause, Side::Destination, error.to_string()))
}

async fn remove_any(owner: &Owner, volume: &VolumeLocation) -> Result<(), PortError> {
    let ports = &owner.context.ports;
    match volumes::identity(ports, volume).await? {
        Some(identity) => volumes::remove(ports, volume, &identity).await,
        None => Ok(()),
    }
}

/// Removes the destination under the private name, and under the final one if it is the volume that was recorded.
pub async fn undo(owner: &mut Owner, private: &VolumeLocation) -> Result<(), UndoError> {
    let public = owner.plan.destination.clone();
    if let Some(identity) = owner.memory.created.clone() {
        remove_patiently(owner, &public, Some(&identity)).await.map_err(UndoError::LeftBehind)?;
    }
    remove_patiently(owner, private, None).await.map_err(UndoError::LeftBehind)
}

/// Removes `volume` if it has `identity` (or whatever has a private name), waiting for users to go.
///
/// Errors: what stays behind and why.
pub async fn remove_patiently(
    owner: &mut Owner,
    volume: &VolumeLocation,
    identity: Option<&Identity>,
) -> Result<(), String> {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        let ports = &owner.context.ports;
        let removed = match volumes::identity(ports, volume).await {
            Ok(None) => return Ok(()),
            Ok(Some(found)) if identity.is_some_and(|identity| *identity != found) => {
                // Somebody else's volume has the name by now; ours is gone or elsewhere.
                return Ok(());
            }
            Ok(Some(found)) => volumes::remove(ports, volume, &found).await,
            Err(error) => Err(error),
        };
        let error = match removed {
            Ok(()) => return Ok(()),
            Err(error) if error.class == ErrorClass::NotFound => return Ok(()),
            Err(error) => error,
        };
        owner.say(Some(format!("waiting to remove {volume}: {}", error.message)));
        if !backoff.wait().await {
            return Err(format!("{volume} stays behind: {error}"));
        }
    }
}
