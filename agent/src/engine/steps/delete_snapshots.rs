//! Deletes the snapshots of the retired source that the plan names, and no other: one made meanwhile keeps the
//! source. Clones that appeared meanwhile keep all of it.
//!
//! Begun before: a snapshot that is gone is done.

use super::retire_source::may_go;
use super::source_is;
use super::volumes::{self, may_pass};
use crate::engine::backoff::Backoff;
use crate::engine::owner::Owner;
use crate::journal::{StepOutcome, What};
use crate::operation::SourceFate;
use crate::plan::StepKind;
use crate::ports::{ErrorClass, PortError};
use crate::spec::VolumeLocation;

const STEP: StepKind = StepKind::DeleteSourceSnapshots;

/// Deletes them if retiring the source left it to be removed.
pub async fn run(owner: &mut Owner, volume: &VolumeLocation, snapshots: &[String]) {
    if !may_go(owner, STEP, volume).await {
        return;
    }
    match delete(owner, volume, snapshots).await {
        Ok(()) => {
            owner.remember_done(STEP, &StepOutcome::Nothing);
            let outcome = StepOutcome::Nothing;
            owner.note_anyway(vec![What::Done { step: STEP, outcome }]).await;
        }
        Err(error) => {
            let reason = format!("its snapshots could not be deleted: {error}");
            owner.warn(format!("the source stays as {volume}: {reason}"));
            source_is(owner, STEP, SourceFate::LeftBehind { location: volume.clone(), reason })
                .await;
        }
    }
}

async fn delete(
    owner: &mut Owner,
    volume: &VolumeLocation,
    snapshots: &[String],
) -> Result<(), PortError> {
    let tuning = owner.context.tuning;
    let identity = owner.plan.source_identity.clone();
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    for snapshot in snapshots {
        loop {
            let ports = &owner.context.ports;
            let error = match volumes::remove_snapshot(ports, volume, &identity, snapshot).await {
                Ok(()) => break,
                Err(error) if error.class == ErrorClass::NotFound => break,
                Err(error) => error,
            };
            owner.say(Some(format!("deleting snapshot {snapshot}: {}", error.message)));
            if !may_pass(&error) || !backoff.wait().await {
                return Err(error);
            }
        }
    }
    Ok(())
}
