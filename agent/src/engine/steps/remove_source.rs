//! Removes the retired source, waiting a bounded time for its last users to go. What cannot be removed is said.
//!
//! Begun before: a retired name that is free means that it was removed.

use super::retire_source::may_go;
use super::{source_is, volumes};
use crate::engine::backoff::Backoff;
use crate::engine::owner::Owner;
use crate::operation::SourceFate;
use crate::plan::StepKind;
use crate::ports::ErrorClass;
use crate::spec::VolumeLocation;

const STEP: StepKind = StepKind::RemoveSource;

/// Removes the source if retiring it left it to this step.
pub async fn run(owner: &mut Owner, volume: &VolumeLocation) {
    let begun_before = owner.was_intended(STEP);
    if !may_go(owner, STEP, volume).await {
        return;
    }
    let fate = remove(owner, volume, begun_before).await;
    if let SourceFate::LeftBehind { location, reason } = &fate {
        owner.warn(format!("the source stays as {location}: {reason}"));
    }
    if fate == SourceFate::AlreadyGone {
        owner.warn(format!("the source {volume} was gone already"));
    }
    source_is(owner, STEP, fate).await;
}

async fn remove(owner: &mut Owner, volume: &VolumeLocation, begun_before: bool) -> SourceFate {
    let tuning = owner.context.tuning;
    let identity = owner.plan.source_identity.clone();
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    let mut tried = begun_before;
    loop {
        let error = match volumes::remove(&owner.context.ports, volume, &identity).await {
            Ok(()) => return SourceFate::Removed,
            Err(error) => error,
        };
        match error.class {
            // A try without an answer may have removed it.
            ErrorClass::NotFound if tried => return SourceFate::Removed,
            ErrorClass::NotFound => return SourceFate::AlreadyGone,
            ErrorClass::NoAnswer | ErrorClass::Unavailable => tried = true,
            _ => {}
        }
        let hopeless = matches!(error.class, ErrorClass::Replaced | ErrorClass::PermissionDenied);
        owner.say(Some(format!("removing the source: {}", error.message)));
        if hopeless || !backoff.wait().await {
            return SourceFate::LeftBehind { location: volume.clone(), reason: error.to_string() };
        }
    }
}
