//! Puts the retired source into the trash of its pool instead of removing it. A file there is recorded with the day it
//! is due; an image there is the cluster's to purge.
//!
//! Begun before: in the trash is done.

use std::time::{Duration, SystemTime};

use super::retire_source::may_go;
use super::source_is;
use super::volumes::{self, may_pass};
use crate::engine::backoff::Backoff;
use crate::engine::owner::Owner;
use crate::operation::SourceFate;
use crate::plan::{SourceCipher, StepKind};
use crate::ports::{ErrorClass, PortError, Ports};
use crate::spec::{Identity, VolumeLocation};

const STEP: StepKind = StepKind::TrashSource;

/// Trashes the source if retiring it left it to be removed.
pub async fn run(owner: &mut Owner, volume: &VolumeLocation, to: &VolumeLocation, keep: Duration) {
    if !may_go(owner, STEP, volume).await {
        return;
    }
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    let fate = loop {
        let error = match trash(owner, volume, to, keep).await {
            Ok(fate) => break fate,
            Err(error) => error,
        };
        owner.say(Some(format!("moving the source to the trash: {}", error.message)));
        let look_again = may_pass(&error) || error.class == ErrorClass::NotFound;
        if !look_again || !backoff.wait().await {
            let reason = format!("it could not be moved to the trash: {error}");
            break SourceFate::LeftBehind { location: volume.clone(), reason };
        }
    };
    match &fate {
        SourceFate::LeftBehind { location, reason } => {
            owner.warn(format!("the source stays as {location}: {reason}"));
        }
        SourceFate::AlreadyGone => owner.warn(format!("the source {volume} was gone already")),
        // A file's is removed with it when it is due; the trash of images is emptied by the cluster.
        SourceFate::Trashed { location: VolumeLocation::Rbd { .. }, .. } => {
            if let SourceCipher::Header { secret_uuid, .. } = &owner.plan.source_cipher {
                owner.warn(format!(
                    "the libvirt secret {secret_uuid} of the source stays, for the image can be restored; once it is \
                     purged, remove it with `virsh secret-undefine {secret_uuid}`"
                ));
            }
        }
        _ => {}
    }
    source_is(owner, STEP, fate).await;
}

/// One try. Where the source is in the end is looked up, not concluded from an answer.
async fn trash(
    owner: &Owner,
    volume: &VolumeLocation,
    to: &VolumeLocation,
    keep: Duration,
) -> Result<SourceFate, PortError> {
    let ports = &owner.context.ports;
    let identity = &owner.plan.source_identity;
    if volumes::identity(ports, volume).await?.as_ref() == Some(identity) {
        volumes::trash(ports, volume, identity, to, keep).await?;
    }
    let now = ports.clock.now();
    Ok(match kept_until(ports, identity, to, now.checked_add(keep).unwrap_or(now)).await? {
        Some(until) => {
            SourceFate::Trashed { location: to.clone(), identity: identity.clone(), until }
        }
        None => SourceFate::AlreadyGone,
    })
}

/// Until when the source is kept, if it is in the trash.
async fn kept_until(
    ports: &Ports,
    meant: &Identity,
    to: &VolumeLocation,
    until: SystemTime,
) -> Result<Option<SystemTime>, PortError> {
    match (to, meant) {
        (VolumeLocation::Rbd { address, image }, Identity::Rbd { image_id }) => {
            ports.images.trashed(address, image, image_id).await
        }
        (to, meant) => {
            let found = volumes::identity(ports, to).await?;
            Ok((found.as_ref() == Some(meant)).then_some(until))
        }
    }
}
