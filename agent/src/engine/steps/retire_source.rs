//! Gives the source another name, so that an old record can never boot old data. Only the volume that was recorded,
//! and only while no other domain of the host uses it.
//!
//! Begun before: done when the retired name has the recorded identity.

use super::source_is;
use super::start_copy::is_volume;
use super::switch::{still_equal, was_held_up};
use super::volumes::{self, may_pass};
use crate::engine::backoff::Backoff;
use crate::engine::owner::Owner;
use crate::engine::users::{open_by, other_user_by_headers};
use crate::journal::What;
use crate::operation::{Event, SourceFate, State};
use crate::plan::StepKind;
use crate::plan::source::Named;
use crate::ports::{ErrorClass, PortError};
use crate::spec::VolumeLocation;

const STEP: StepKind = StepKind::RetireSource;

/// The reason of a source that is still to be removed.
pub const NOT_YET: &str = "it is about to be removed";

/// Whether retiring the source left it to the steps after it.
fn is_to_go(owner: &Owner) -> bool {
    matches!(
        owner.view.result.as_ref().map(|result| &result.source),
        Some(SourceFate::LeftBehind { reason, .. }) if reason == NOT_YET
    )
}

/// Begins a step that takes the source away, if retiring it left it to that step. Never before the move and the intent
/// are on record: with the journal behind and QEMU gone, the source is what an operator has to compare with.
pub async fn may_go(owner: &mut Owner, step: StepKind, volume: &VolumeLocation) -> bool {
    if !is_to_go(owner) {
        return false;
    }
    owner.remember_intent(step);
    owner.note_anyway(vec![What::Intent { step }]).await;
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    while !owner.is_on_record() {
        owner.say(Some("waiting for the journal before the source is taken away".to_owned()));
        if !backoff.wait().await {
            let reason = "the agent's journal takes no writes, and nothing is taken away before the move is on record";
            owner.warn(format!("the source stays as {volume}: {reason}"));
            let (location, reason) = (volume.clone(), reason.to_owned());
            source_is(owner, step, SourceFate::LeftBehind { location, reason }).await;
            return false;
        }
        owner.note_anyway(vec![]).await;
    }
    true
}

/// Renames the source. `stays` says why it is not to be removed after that.
pub async fn run(
    owner: &mut Owner,
    from: &VolumeLocation,
    to: &VolumeLocation,
    stays: Option<&str>,
) {
    owner.remember_intent(STEP);
    let intent = vec![What::Intent { step: STEP }];
    if owner.view.state == State::Moved {
        owner.advance_anyway(Event::CleaningBegan, intent).await;
    } else {
        owner.note_anyway(intent).await;
    }
    // Before the source goes: with the journal lost, a marked destination is taken for one whose source is there.
    volumes::unmark(&owner.context, &owner.plan.destination, owner.id()).await;
    let fate = match owner.memory.keep_reason.clone() {
        Some(reason) => SourceFate::LeftBehind { location: from.clone(), reason },
        None => retire(owner, from, to, stays).await,
    };
    // Of a volume that no definition names, nobody but its old name tells a user that it has moved.
    let unseen = owner.plan.domain.is_none() && (owner.memory.resumed || was_held_up(owner));
    let fate = match unseen {
        true => unless_written_to(owner, to, fate).await,
        false => fate,
    };
    if let SourceFate::LeftBehind { location, reason } = &fate
        && reason != NOT_YET
    {
        owner.warn(format!(
            "the source stays as {location}: {reason}{}",
            under_its_own(location, from)
        ));
    }
    if fate == SourceFate::AlreadyGone {
        owner.warn(format!("the source {from} was gone already"));
    }
    source_is(owner, STEP, fate).await;
}

/// A source that would go stays if somebody may have written to it after it was copied, while nobody looked.
async fn unless_written_to(
    owner: &mut Owner,
    retired: &VolumeLocation,
    fate: SourceFate,
) -> SourceFate {
    match &fate {
        SourceFate::LeftBehind { reason, .. } if reason == NOT_YET => {}
        _ => return fate,
    }
    owner.say(Some("comparing the source with its copy once more".to_owned()));
    let equal = still_equal(owner, retired).await;
    owner.say(None);
    match equal {
        Ok(()) => fate,
        Err(why) => SourceFate::LeftBehind {
            location: retired.clone(),
            reason: format!(
                "it may have been written to after it was copied, before it lost its name: {why}"
            ),
        },
    }
}

/// Tries for a bounded time. Which name the source has in the end is looked up, not concluded from an error.
async fn retire(
    owner: &mut Owner,
    from: &VolumeLocation,
    to: &VolumeLocation,
    stays: Option<&str>,
) -> SourceFate {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        let (error, was_tried) = match rename(owner, from, to).await {
            Ok(Tried::Retired) => return fate_of_retired(owner, to, stays),
            // Perhaps into the trash, by an earlier life whose records were lost.
            Ok(Tried::Gone) if has_trash(owner) => return fate_of_retired(owner, to, None),
            Ok(Tried::Gone) => return SourceFate::AlreadyGone,
            Ok(Tried::InUse(reason)) => {
                return SourceFate::LeftBehind { location: from.clone(), reason };
            }
            Ok(Tried::Refused(error)) => (error, true),
            Err(error) => (error, false),
        };
        owner.say(Some(format!("renaming the source: {}", error.message)));
        // Gone, or renamed meanwhile: the next look tells.
        let look_again = may_pass(&error) || error.class == ErrorClass::NotFound;
        if !look_again || !backoff.wait().await {
            let reason = match was_tried {
                true => format!("it could not be renamed: {error}; {}", seal(owner, from).await),
                false => format!(
                    "whether somebody uses it could not be told, so it was not touched: {error}"
                ),
            };
            return SourceFate::LeftBehind { location: from.clone(), reason };
        }
    }
}

/// What keeps its own name, and is not used, at least does not start: nobody writes to its old data by mistake. In words.
async fn seal(owner: &Owner, source: &VolumeLocation) -> String {
    let (ports, identity) = (&owner.context.ports, &owner.plan.source_identity);
    let sealed = match user(owner, source, true).await {
        Ok(None) => volumes::seal(ports, source, identity).await,
        Ok(Some(user)) => Err(PortError::new(ErrorClass::Busy, format!("seal {source}"), user)),
        Err(error) => Err(error),
    };
    match sealed {
        Ok(()) => "it was marked as damaged, so that QEMU does not write to it and no old record \
                   boots it (`qemu-img check -r all` takes the mark away)"
            .to_owned(),
        Err(error) => format!(
            "nor marked so that QEMU does not start from it ({error}): an old record can still boot \
             its old data"
        ),
    }
}

/// What to know of a source that still has its own name.
fn under_its_own(location: &VolumeLocation, name: &VolumeLocation) -> &'static str {
    if location == name {
        "; it has its own name until `volferry leftovers retry` removes it"
    } else {
        ""
    }
}

fn has_trash(owner: &Owner) -> bool {
    owner.plan.steps.iter().any(|step| step.kind() == StepKind::TrashSource)
}

/// Who uses the source at this moment, in words: another domain that names it; and, if asked for, who has it `open`, by
/// the word of the kernel and of Ceph, whatever libvirt knows.
async fn user(
    owner: &Owner,
    source: &VolumeLocation,
    open: bool,
) -> Result<Option<String>, PortError> {
    let ports = &owner.context.ports;
    // By name alone: what may be another cluster's image is left alone too.
    let is_it = |image: &Named| is_volume(image, source);
    if let Some(other) = other_user_by_headers(ports, Some(&owner.plan.domain), is_it).await? {
        return Ok(Some(format!("domain {other} uses it too")));
    }
    let users = if open { open_by(ports, source, 0).await? } else { vec![] };
    Ok((!users.is_empty()).then(|| format!("it is in use: {}", users.join(", "))))
}

/// What one try found or did.
enum Tried {
    /// The rename itself was refused; nobody was seen to use the source.
    Refused(PortError),
    Retired,
    Gone,
    InUse(String),
}

async fn rename(
    owner: &mut Owner,
    from: &VolumeLocation,
    to: &VolumeLocation,
) -> Result<Tried, PortError> {
    let ports = owner.context.ports.clone();
    let meant = owner.plan.source_identity.clone();
    let found = volumes::identity(&ports, from).await?;
    if found.as_ref() == Some(&meant) {
        if let Some(user) = user(owner, from, owner.plan.is_offline()).await? {
            return Ok(Tried::InUse(user));
        }
        return Ok(match volumes::rename(&ports, from, to).await {
            Ok(()) => Tried::Retired,
            Err(error) => Tried::Refused(error),
        });
    }
    if volumes::identity(&ports, to).await?.as_ref() == Some(&meant) {
        return Ok(Tried::Retired);
    }
    if let Some(found) = found {
        owner.warn(format!(
            "another volume ({found}) has the source's name {from} by now and was left alone"
        ));
    }
    Ok(Tried::Gone)
}

fn fate_of_retired(owner: &Owner, to: &VolumeLocation, stays: Option<&str>) -> SourceFate {
    let location = to.clone();
    match stays {
        Some(reason) => SourceFate::LeftBehind { location, reason: reason.to_owned() },
        None if owner.plan.spec.keep_source => SourceFate::Kept { location },
        None => SourceFate::LeftBehind { location, reason: NOT_YET.to_owned() },
    }
}
