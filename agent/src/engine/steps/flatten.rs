//! Makes the destination independent of its source: what the clone still shares is copied, then the snapshot goes. The
//! volume has moved before that, and a guest may use it meanwhile. What fails is warned of and left to a leftover.
//!
//! Begun before: what an earlier life copied is not copied again; a clone that shares nothing is done.

use tokio::sync::watch;
use tokio::time::Instant;

use super::await_ready::space::SpaceWatch;
use super::clone_source::drop_patiently;
use super::retire_source;
use super::volumes::{self, may_pass};
use crate::engine::backoff::Backoff;
use crate::engine::leftovers::{LeftBehind, leave_snapshot};
use crate::engine::owner::{Owner, Stop};
use crate::journal::{StepOutcome, What};
use crate::operation::{Event, LeftoverKind, Phase, Progress, RateMeter, SourceFate, State};
use crate::plan::StepKind;
use crate::ports::PortError;
use crate::spec::{Bytes, VolumeLocation};

const STEP: StepKind = StepKind::Flatten;

/// Flattens and deletes the snapshot.
pub async fn run(
    owner: &mut Owner,
    volume: &VolumeLocation,
    source: &[VolumeLocation],
    snapshot: &str,
) {
    if owner.view.result.is_none() {
        // That of a source that keeps its name: from here on it says what the volume depends on.
        let fate = super::untouched(owner);
        owner.view.result = Some(super::result(owner, fate, None));
    }
    owner.remember_intent(STEP);
    let intent = vec![What::Intent { step: STEP }];
    if owner.view.state == State::Moved {
        owner.advance_anyway(Event::CleaningBegan, intent).await;
    } else {
        owner.note_anyway(intent).await;
    }
    let failed = match flatten(owner, volume).await {
        Err(reason) => Some((true, reason)),
        Ok(()) => {
            let dropped = drop_patiently(owner, source, snapshot).await;
            dropped.err().map(|error| (false, error.to_string()))
        }
    };
    owner.view.progress = Progress::default();
    owner.place.needs(Bytes(0));
    owner.say(None);
    let Some((depends, reason)) = failed else {
        if let Some(result) = &mut owner.view.result {
            result.depends_on = None;
        }
        done(owner).await;
        return;
    };
    give_up(owner, volume, source, depends, reason).await;
}

/// The source stays as long as its snapshot does.
async fn give_up(
    owner: &mut Owner,
    volume: &VolumeLocation,
    source: &[VolumeLocation],
    depends: bool,
    reason: String,
) {
    let parent = owner.plan.parent_snapshot().unwrap_or_default();
    owner.warn(match depends {
        true => format!(
            "the destination {volume} depends on the snapshot {parent}, which must not be removed before it is \
             flattened: {reason}"
        ),
        false => format!("the snapshot {parent} stays, although nothing depends on it any more: {reason}"),
    });
    let fate = owner.view.result.as_ref().map(|result| result.source.clone());
    let fate = match fate {
        Some(SourceFate::LeftBehind { location, reason }) if reason == retire_source::NOT_YET => {
            let reason = match depends {
                true => format!("the destination {volume} still depends on its snapshot"),
                false => "it still has the snapshot the destination was made from".to_owned(),
            };
            SourceFate::LeftBehind { location, reason }
        }
        Some(fate) => fate,
        None => SourceFate::Kept { location: owner.plan.source.clone() },
    };
    let location = match &fate {
        SourceFate::Kept { location } | SourceFate::LeftBehind { location, .. } => location.clone(),
        _ => source.first().unwrap_or(&owner.plan.source).clone(),
    };
    let left = LeftBehind { kind: LeftoverKind::Snapshot, location, reason };
    leave_snapshot(owner, left, depends);
    let mut result = super::result(owner, fate, None);
    result.depends_on = depends.then_some(parent);
    owner.view.result = Some(result);
    done(owner).await;
}

async fn done(owner: &mut Owner) {
    let outcome = StepOutcome::Nothing;
    owner.remember_done(STEP, &outcome);
    owner.note_anyway(vec![What::Done { step: STEP, outcome }]).await;
}

/// Errors: why the clone still depends on its source.
async fn flatten(owner: &mut Owner, volume: &VolumeLocation) -> Result<(), String> {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        let error = match once(owner, volume).await? {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        owner.say(Some(format!("making the volume independent of its source: {}", error.message)));
        if !may_pass(&error) || !backoff.wait().await {
            return Err(error.to_string());
        }
    }
}

/// One try, with its progress and a watch over the room in the pool.
///
/// Errors: it is given up, in words.
async fn once(owner: &mut Owner, volume: &VolumeLocation) -> Result<Result<(), PortError>, String> {
    let identity = owner.memory.created.clone().ok_or("the destination's identity is not known")?;
    let (ports, size) = (owner.context.ports.clone(), owner.plan.size);
    let (done, mut progress) = watch::channel(Bytes(0));
    let work = volumes::flatten(&ports, volume, &identity, size, &done);
    tokio::pin!(work);
    let began = Instant::now();
    let period = owner.context.tuning.progress_period;
    let mut space = SpaceWatch::new(began, owner.context.host().limits.reserve);
    let (mut meter, mut show_at) = (RateMeter::default(), began);
    owner.place.needs(owner.plan.source_allocated.unwrap_or_default());
    loop {
        tokio::select! {
            biased;
            result = &mut work => return Ok(result),
            room = space.next(&owner.context, &owner.plan) => {
                if let Err(Stop::Failed(failure)) = space.judge(owner, room) {
                    return Err(failure.text);
                }
            }
            () = tokio::time::sleep_until(show_at) => {
                show_at = Instant::now() + period;
                let mut seen = meter.look(began.elapsed(), *progress.borrow_and_update(), size, false);
                seen.phase = Phase::Flattening;
                owner.look(seen);
                owner.publish();
            }
        }
    }
}
