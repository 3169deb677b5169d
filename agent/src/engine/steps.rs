//! One file per step, each with the same parts: what it does, run (which probes first when it was begun before),
//! undo where there is one. A step looks nothing up in order to decide what to do: its values are in the plan.

mod await_ready;
mod clone_source;
mod compare_images;
mod copy_image;
mod create_destination;
mod current;
mod delete_snapshots;
mod flatten;
mod offline;
mod pivot;
mod publish_destination;
mod remove_source;
pub(in crate::engine) mod remove_source_secret;
mod retire_source;
mod set_iotune;
mod set_secret;
pub(in crate::engine) mod start_copy;
mod switch;
mod trash_source;
pub mod verify_move;
pub mod volumes;
pub mod words;

use super::leftovers::{self, LeftBehind};
use super::owner::{Owner, Stop};
use crate::journal::What;
use crate::operation::{
    Event, Failure, FailureCause, LeftoverKind, MoveResult, Progress, Side, SourceFate, State,
};
use crate::plan::{Step, StepKind};
use crate::spec::{Identity, VolumeLocation};

/// Runs one step to its end.
///
/// Errors: only before the pivot took effect.
pub async fn run(owner: &mut Owner, step: &Step) -> Result<(), Stop> {
    match step {
        Step::SetSecret { uuid, usage, reused } => {
            owner.check_cancel()?;
            set_secret::run(owner, uuid, usage, *reused).await
        }
        Step::CreateDestination {
            volume,
            format,
            size,
            owner: file_owner,
            must_be_mounted,
            encryption,
        } => {
            owner.check_cancel()?;
            let what = create_destination::NewVolume {
                volume,
                format: *format,
                size: *size,
                owner: *file_owner,
                must_be_mounted: *must_be_mounted,
                encryption: *encryption,
            };
            create_destination::run(owner, &what).await
        }
        Step::PublishDestination { from, to } => {
            owner.check_cancel()?;
            publish_destination::run(owner, from, to).await
        }
        Step::StartCopy { bandwidth } => {
            owner.check_cancel()?;
            start_copy::run(owner, *bandwidth).await
        }
        Step::AwaitReady { deadline, manual_pivot } => {
            await_ready::run(owner, *deadline, *manual_pivot).await
        }
        Step::Pivot => pivot::run(owner).await,
        Step::VerifyMove => verify_move::run(owner).await,
        Step::CloneSource { from, snapshot, to } => {
            owner.check_cancel()?;
            clone_source::run(owner, from, snapshot, to).await
        }
        Step::CopyImage { copy, bandwidth, .. } => copy_image::run(owner, copy, *bandwidth).await,
        Step::CompareImages { copy } => compare_images::run(owner, copy).await,
        Step::Switch { manual_pivot, definition } => {
            switch::run(owner, *manual_pivot, *definition).await
        }
        Step::SetIotune { tune } => {
            set_iotune::run(owner, tune).await;
            Ok(())
        }
        Step::RetireSource { from, to, stays } => {
            retire_source::run(owner, from, to, stays.as_deref()).await;
            Ok(())
        }
        Step::Flatten { volume, source, snapshot } => {
            flatten::run(owner, volume, source, snapshot).await;
            Ok(())
        }
        Step::DeleteSourceSnapshots { volume, snapshots } => {
            delete_snapshots::run(owner, volume, snapshots).await;
            Ok(())
        }
        Step::TrashSource { volume, to, keep } => {
            trash_source::run(owner, volume, to, *keep).await;
            Ok(())
        }
        Step::RemoveSource { volume } => {
            remove_source::run(owner, volume).await;
            Ok(())
        }
        Step::RemoveSourceSecret { uuid } => {
            remove_source_secret::run(owner, uuid).await;
            Ok(())
        }
    }
}

/// Undoes one step that was intended, as far as it had an effect.
///
/// Errors: what stays behind, in words.
pub async fn undo(owner: &mut Owner, step: &Step) -> Result<(), UndoError> {
    match step {
        Step::SetSecret { uuid, .. } => set_secret::undo(owner, uuid).await,
        Step::StartCopy { .. } => start_copy::undo(owner).await,
        Step::CreateDestination { volume, .. } => create_destination::undo(owner, volume).await,
        Step::CloneSource { from, snapshot, to } => {
            clone_source::undo(owner, from, snapshot, to).await
        }
        Step::Switch { definition, .. } => switch::undo(owner, *definition).await,
        // The destination is removed under whichever name it has when its creation is undone.
        Step::PublishDestination { .. }
        | Step::AwaitReady { .. }
        // What copied has ended with the step.
        | Step::CopyImage { .. }
        | Step::CompareImages { .. }
        | Step::Pivot
        | Step::VerifyMove
        | Step::SetIotune { .. }
        | Step::RetireSource { .. }
        // Once the volume has moved nothing is undone.
        | Step::Flatten { .. }
        | Step::DeleteSourceSnapshots { .. }
        | Step::TrashSource { .. }
        | Step::RemoveSource { .. }
        | Step::RemoveSourceSecret { .. } => Ok(()),
    }
}

/// Why a step could not be undone.
#[derive(Debug)]
pub enum UndoError {
    /// Volumes stay behind; the operation ends all the same.
    LeftBehind(Vec<LeftBehind>),
    /// The disk is on the destination after all, or may be: nothing more may be undone.
    NotTheSource(String),
}

/// Enters `preparing` with the first step's intent, or writes another intent down.
pub(super) async fn begin_preparing(owner: &mut Owner, step: StepKind) -> Result<(), Stop> {
    if owner.view.state != State::Planned {
        return owner.intend(step).await;
    }
    owner.remember_intent(step);
    owner.advance(Event::PreparationBegan, vec![What::Intent { step }]).await
}

/// The end of an operation whose passphrase is gone and whose destination is not made.
pub(super) fn secret_needed() -> Stop {
    Stop::Failed(Failure::new(
        FailureCause::SecretNeeded,
        Side::Destination,
        "the agent was started again before the destination was made; passphrases are kept in memory only",
    ))
}

/// The end of an offline copy whose passphrases are gone before it was switched to.
pub(super) fn passphrases_lost() -> Stop {
    Stop::Failed(Failure::new(
        FailureCause::SecretNeeded,
        Side::Source,
        "the agent was started again before the encrypted volume was switched to its copy; passphrases are kept in \
         memory only",
    ))
}

/// Says how it ended.
pub async fn finish(owner: &mut Owner) {
    if owner.view.state == State::Moved {
        owner.advance_anyway(Event::CleaningBegan, vec![]).await;
    }
    let destination = owner.plan.destination.clone();
    // It is the disk's volume and nobody's destination any more.
    volumes::unmark(&owner.context, &destination, owner.id()).await;
    let allocated = volumes::allocated(&owner.context.ports, &destination).await;
    if let Err(error) = &allocated {
        owner.warn(format!("how much the destination occupies could not be read: {error}"));
    }
    if let Ok(Some(occupied)) = &allocated {
        owner.copied_at_least(*occupied);
    }
    owner.view.progress = Progress::default();
    let source = match &owner.view.result {
        Some(result) => result.source.clone(),
        None => untouched(owner),
    };
    match &source {
        SourceFate::LeftBehind { location, reason } => {
            let (location, reason) = (location.clone(), reason.clone());
            leftovers::leave(owner, LeftBehind { kind: LeftoverKind::Source, location, reason });
            if depends_on(owner).is_some() {
                leftovers::retry_by_itself(owner);
            }
        }
        SourceFate::Trashed { location: location @ VolumeLocation::File { .. }, until, .. } => {
            leftovers::leave_in_trash(owner, location.clone(), *until);
        }
        _ => {}
    }
    let result = result(owner, source, allocated.ok().flatten());
    owner.view.result = Some(result);
    owner.advance_anyway(Event::Finished, vec![]).await;
}

/// The fate of a source that no step was about, or whose steps left no word.
fn untouched(owner: &Owner) -> SourceFate {
    let location = owner.plan.source.clone();
    if owner.plan.spec.keep_source_name {
        SourceFate::Kept { location }
    } else {
        SourceFate::LeftBehind { location, reason: "nothing was tried".to_owned() }
    }
}

fn result(owner: &Owner, source: SourceFate, allocated: Option<crate::spec::Bytes>) -> MoveResult {
    let plan = &owner.plan;
    MoveResult {
        pool: plan.destination_pool.clone(),
        volume: plan.destination.name(),
        location: plan.destination.clone(),
        identity: destination_identity(owner),
        format: plan.destination_format,
        encryption: plan.destination_encryption.as_ref().map(|planned| planned.scheme),
        virtual_size: plan.size,
        allocated,
        source,
        depends_on: depends_on(owner),
        ready_to_pivot_us: owner.memory.ready_to_pivot_us,
    }
}

/// The snapshot the destination depends on at this moment.
fn depends_on(owner: &Owner) -> Option<String> {
    match owner.memory.done.contains(&StepKind::Flatten) {
        true => owner.view.result.as_ref().and_then(|result| result.depends_on.clone()),
        false => owner.plan.parent_snapshot(),
    }
}

fn destination_identity(owner: &Owner) -> Identity {
    // Recorded before the copy began; the pivot is not intended without it.
    owner.memory.created.clone().unwrap_or_else(|| match &owner.plan.destination {
        VolumeLocation::Rbd { .. } => Identity::Rbd { image_id: String::new() },
        VolumeLocation::File { .. } => Identity::File { device: 0, inode: 0 },
    })
}

/// Notes what became of the source, to be said when all is done.
pub(super) async fn source_is(owner: &mut Owner, step: StepKind, fate: SourceFate) {
    let result = result(owner, fate, None);
    owner.view.result = Some(result);
    owner.remember_done(step, &crate::journal::StepOutcome::Nothing);
    let outcome = crate::journal::StepOutcome::Nothing;
    owner.note_anyway(vec![What::Done { step, outcome }]).await;
}
