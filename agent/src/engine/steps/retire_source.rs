//! Gives the source another name, so that an old record can never boot old data. Only the volume that was recorded,
//! and only while no other domain of the host uses it.
//!
//! Begun before: done when the retired name has the recorded identity.

use volferry_xml::DomainXml;

use super::start_copy::is_volume;
use super::{source_is, volumes};
use crate::engine::owner::Owner;
use crate::journal::What;
use crate::operation::{Event, SourceFate, State};
use crate::plan::source::Named;
use crate::plan::{Step, StepKind};
use crate::ports::PortError;
use crate::spec::VolumeLocation;

const STEP: StepKind = StepKind::RetireSource;

/// The reason of a source that is still to be removed.
pub const NOT_YET: &str = "it is about to be removed";

/// Renames the source.
pub async fn run(owner: &mut Owner, from: &VolumeLocation, to: &VolumeLocation) {
    owner.remember_intent(STEP);
    let intent = vec![What::Intent { step: STEP }];
    if owner.view.state == State::Moved {
        owner.advance_anyway(Event::CleaningBegan, intent).await;
    } else {
        owner.note_anyway(intent).await;
    }
    let fate = match owner.memory.keep_reason.clone() {
        Some(reason) => SourceFate::LeftBehind { location: from.clone(), reason },
        None => retire(owner, from, to).await,
    };
    if let SourceFate::LeftBehind { location, reason } = &fate
        && reason != NOT_YET
    {
        owner.warn(format!("the source stays as {location}: {reason}"));
    }
    source_is(owner, STEP, fate).await;
}

async fn retire(owner: &mut Owner, from: &VolumeLocation, to: &VolumeLocation) -> SourceFate {
    let left = |reason: String| SourceFate::LeftBehind { location: from.clone(), reason };
    match other_user(owner, from).await {
        Ok(None) => {}
        Ok(Some(other)) => return left(format!("domain {other} uses it too")),
        Err(error) => return left(format!("who else uses it could not be seen: {error}")),
    }
    let ports = owner.context.ports.clone();
    let meant = owner.plan.source_identity.clone();
    match volumes::identity(&ports, from).await {
        Ok(Some(found)) if found == meant => {
            if let Err(error) = volumes::rename(&ports, from, to).await {
                return left(format!("it could not be renamed: {error}"));
            }
        }
        Ok(found) => match volumes::identity(&ports, to).await {
            Ok(Some(retired)) if retired == meant => {}
            Ok(_) => {
                if let Some(found) = found {
                    owner.warn(format!(
                        "another volume ({found}) has the source's name {from} by now and was left alone"
                    ));
                }
                return SourceFate::AlreadyGone;
            }
            Err(error) => return left(error.to_string()),
        },
        Err(error) => return left(error.to_string()),
    }
    fate_of_retired(owner, to)
}

fn fate_of_retired(owner: &Owner, to: &VolumeLocation) -> SourceFate {
    let removes = owner.plan.steps.iter().any(|step| matches!(step, Step::RemoveSource { .. }));
    let location = to.clone();
    if removes {
        SourceFate::LeftBehind { location, reason: NOT_YET.to_owned() }
    } else if owner.plan.spec.keep_source {
        SourceFate::Kept { location }
    } else {
        SourceFate::LeftBehind { location, reason: owner.plan.warnings.join("; ") }
    }
}

/// Another domain of the host, running or not, one of whose disks or backing images is this volume.
async fn other_user(owner: &Owner, volume: &VolumeLocation) -> Result<Option<String>, PortError> {
    let domains = &owner.context.ports.domains;
    for other in domains.list().await? {
        if other.uuid == owner.plan.domain {
            continue;
        }
        // A domain that went away meanwhile uses nothing.
        let Ok(domain) = domains.observe(&other.uuid.clone().into()).await else { continue };
        let texts = [Some(domain.live_xml), domain.inactive_xml];
        if texts.into_iter().flatten().any(|xml| names(&xml, volume)) {
            return Ok(Some(other.name));
        }
    }
    Ok(None)
}

fn names(xml: &str, volume: &VolumeLocation) -> bool {
    let Ok(xml) = DomainXml::parse(xml) else { return false };
    xml.disks().iter().any(|disk| {
        std::iter::once(&disk.source)
            .chain(disk.backing_chain.iter().map(|layer| &layer.source))
            .filter_map(Named::of)
            .any(|image| is_volume(&image, volume))
    })
}
