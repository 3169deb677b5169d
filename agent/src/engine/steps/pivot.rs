//! Looks at the destination once more and switches the disk to it. The intent is the point after which the answer
//! is open until there is proof: the call returned success, the job was reported as completed, QEMU, asked, uses the
//! destination, or QEMU is gone and both volumes hold the same. XML alone proves nothing.
//!
//! Begun before: QEMU is asked.

use super::start_copy::{Seen, guest_gone, same_run, see};
use super::verify_move::{Used, qemu_uses};
use super::{await_ready, verify_move, volumes};
use crate::engine::backoff::{Asking, Backoff};
use crate::engine::equal;
use crate::engine::owner::{Owner, Stop, internal};
use crate::journal::{Proof, StepOutcome, What};
use crate::operation::{Event, Failure, FailureCause, Side, State, transition};
use crate::plan::StepKind;
use crate::ports::{Comparison, ErrorClass, PortError};
use crate::spec::Identity;

const STEP: StepKind = StepKind::Pivot;

/// What became of an intended pivot.
enum Outcome {
    Moved(Proof),
    /// Certainly not done; the job still mirrors.
    NotDone,
    /// Not even intended.
    NotYet,
}

/// Pivots, however often QEMU says that it is not ready yet.
pub async fn run(owner: &mut Owner) -> Result<(), Stop> {
    let mut backoff = Backoff::unbounded(&owner.context.tuning);
    loop {
        if let Some(proof) = owner.memory.proof
            && !owner.view.state.is_moved()
        {
            by_somebody_else(owner, proof).await;
            return Ok(());
        }
        let outcome = if owner.view.state == State::Pivoting {
            decide(owner, None).await?
        } else {
            owner.check_cancel()?;
            attempt(owner).await?
        };
        match outcome {
            Outcome::Moved(proof) => {
                proved(owner, proof).await;
                return Ok(());
            }
            Outcome::NotDone => {
                owner.advance(Event::PivotNotDone, vec![]).await?;
                backoff.wait().await;
                await_ready::again(owner).await?;
            }
            Outcome::NotYet => {
                backoff.wait().await;
                await_ready::again(owner).await?;
            }
        }
    }
}

/// The hot path: a look at the destination, the intent, the call.
async fn attempt(owner: &mut Owner) -> Result<Outcome, Stop> {
    let ports = owner.context.ports.clone();
    // Before the intent: as long as the destination cannot be looked at, the operation can still be cancelled.
    match volumes::identity(&ports, &owner.plan.destination).await {
        Ok(found) if found.is_some() && found == owner.memory.created => {}
        Ok(found) => return Err(Stop::Failed(replaced(owner, found))),
        Err(error) => {
            owner.say(Some(format!("cannot look at the destination: {}", error.message)));
            return Ok(Outcome::NotYet);
        }
    }
    owner.check_cancel()?;
    intend(owner).await?;
    let (domain, target) = (owner.plan.domain.clone(), owner.plan.target.clone());
    match ports.jobs.pivot(&domain, &target).await {
        Ok(answer) => {
            owner.memory.ready_to_pivot_us = owner.memory.ready_at.and_then(|ready| {
                u64::try_from(answer.called_at.saturating_duration_since(ready).as_micros()).ok()
            });
            Ok(Outcome::Moved(Proof::CallReturned))
        }
        Err(error) if error.class == ErrorClass::NotReady => Ok(Outcome::NotDone),
        Err(error) => decide(owner, Some(error)).await,
    }
}

/// Writes READY (if it is not yet) and the intent down in one flush.
async fn intend(owner: &mut Owner) -> Result<(), Stop> {
    // Whatever ended before this moment was not ended by our pivot.
    owner.memory.words.forget_end();
    let mut more = Vec::new();
    if owner.view.state == State::Copying {
        owner.enter(Event::CopyReady).map_err(Stop::Failed)?;
        let outcome = StepOutcome::Nothing;
        owner.remember_done(StepKind::AwaitReady, &outcome);
        more.push(What::Transition { event: Event::CopyReady });
        more.push(What::Done { step: StepKind::AwaitReady, outcome });
    }
    owner.enter(Event::PivotIntended).map_err(Stop::Failed)?;
    owner.remember_intent(STEP);
    more.push(What::Transition { event: Event::PivotIntended });
    more.push(What::Intent { step: STEP });
    owner.note(more).await.map_err(|error| Stop::Failed(internal(&error)))
}

fn replaced(owner: &Owner, found: Option<Identity>) -> Failure {
    let was = owner.memory.created.as_ref().map_or("unknown".to_owned(), Identity::to_string);
    let now = found.map_or("nothing".to_owned(), |identity| identity.to_string());
    Failure::new(
        FailureCause::DestinationReplaced,
        Side::Destination,
        format!(
            "the destination {} was created with {was}; under that name there is now {now}",
            owner.plan.destination
        ),
    )
}

/// Finds out what is true after a pivot whose answer is missing. Never ends by timeout: while storage hangs, QEMU
/// cannot be asked, and guessing would destroy data.
///
/// A living QEMU is believed before QEMU's words about the job: it reports a copy that somebody ended in step with
/// its source as completed too. Of libvirt's words, `Completed` means a pivot and nothing else.
async fn decide(owner: &mut Owner, mut trouble: Option<PortError>) -> Result<Outcome, Stop> {
    let mut asking = Asking::new(&owner.context);
    loop {
        let used = qemu_uses(owner).await;
        owner.hear_all();
        if owner.memory.words.pivoted() {
            return Ok(Outcome::Moved(Proof::JobCompleted));
        }
        let text = match used {
            Ok(Used::Destination) => return Ok(Outcome::Moved(Proof::QemuUsesDestination)),
            Ok(Used::Source) => match on_source(owner, &mut trouble).await {
                Ok(outcome) => return outcome,
                Err(error) => error.message,
            },
            Ok(Used::Lost) => return without_qemu(owner, &verify_move::lost(&owner.plan)),
            Ok(Used::Other) => return without_qemu(owner, "QEMU uses neither"),
            // libvirt says so before it asks anything of QEMU; of one that dies while it is asked, it has other words.
            Ok(Used::Gone) if was_not_asked(trouble.as_ref()) => {
                return Err(Stop::Failed(guest_gone("before it could be asked to pivot")));
            }
            Ok(Used::Gone) => match qemu_gone(owner).await {
                Some(outcome) => return outcome,
                None => "QEMU did not stay gone".to_owned(),
            },
            Ok(Used::NoDevice) => return without_qemu(owner, "the disk was unplugged"),
            Err(error) => error.message,
        };
        owner.say(Some(format!("whether the pivot took effect is not known yet: {text}")));
        asking.wait().await;
    }
}

/// The call found no QEMU, or no job: this pivot certainly had no effect.
fn was_not_asked(trouble: Option<&PortError>) -> bool {
    trouble.is_some_and(|error| error.class == ErrorClass::NotFound)
}

/// QEMU uses the source: the pivot did not happen, if it is still the QEMU that was asked for it.
///
/// Errors: libvirt cannot be asked.
async fn on_source(
    owner: &mut Owner,
    trouble: &mut Option<PortError>,
) -> Result<Result<Outcome, Stop>, PortError> {
    if !same_run(owner).await? {
        return Ok(without_qemu(owner, "the guest was started again meanwhile"));
    }
    Ok(match see(owner).await? {
        Seen::OurCopy { .. } => Ok(Outcome::NotDone),
        _ => Err(Stop::Failed(failed(owner, trouble.take()))),
    })
}

/// What is proved when the QEMU that was asked can no longer tell.
fn without_qemu(owner: &mut Owner, why: &str) -> Result<Outcome, Stop> {
    owner.hear_all();
    if owner.memory.words.completed() {
        Ok(Outcome::Moved(Proof::JobCompleted))
    } else {
        Err(Stop::Undecided(undecided(owner, why)))
    }
}

/// QEMU cannot tell any more, but what it wrote can. None when it was started again meanwhile: it is asked again.
async fn qemu_gone(owner: &mut Owner) -> Option<Result<Outcome, Stop>> {
    owner.hear_all();
    if owner.memory.words.completed() {
        return Some(Ok(Outcome::Moved(Proof::JobCompleted)));
    }
    owner.say(Some("QEMU is gone: comparing both volumes".to_owned()));
    let (ports, patience) = (owner.context.ports.clone(), owner.context.tuning.compare_patience);
    let comparing = equal::compare(&ports, &owner.plan, owner.memory.created.as_ref());
    let found = tokio::time::timeout(patience, comparing).await;
    // Whoever started it meanwhile may have written to either.
    if !matches!(qemu_uses(owner).await, Ok(Used::Gone)) {
        return None;
    }
    let why = match found {
        Ok(Ok(Comparison::Identical)) => return Some(Ok(Outcome::Moved(Proof::VolumesEqual))),
        Ok(Ok(Comparison::Different(what))) => format!("the volumes differ: {what}"),
        Ok(Err(text)) => format!("they could not be compared: {text}"),
        Err(_) => format!("they could not be compared within {patience:?}"),
    };
    Some(without_qemu(owner, &format!("QEMU is gone, and {why}")))
}

fn failed(owner: &Owner, trouble: Option<PortError>) -> Failure {
    let text = owner
        .memory
        .words
        .error
        .clone()
        .or_else(|| trouble.map(|error| error.to_string()))
        .unwrap_or_else(|| "the job ended and QEMU still uses the source".to_owned());
    Failure::new(FailureCause::PivotFailed, Side::Guest, text)
}

fn undecided(owner: &Owner, why: &str) -> Failure {
    Failure::new(
        FailureCause::PivotFailed,
        Side::Guest,
        format!(
            "the pivot was intended and nothing proves whether it took effect ({why}); both {} and {} are kept: \
             compare their contents and their times of writing before starting the guest",
            owner.plan.source, owner.plan.destination
        ),
    )
}

async fn proved(owner: &mut Owner, proof: Proof) {
    owner.memory.proof = Some(proof);
    let outcome = StepOutcome::Nothing;
    owner.remember_done(STEP, &outcome);
    let what = vec![What::Proved { proof }, What::Done { step: STEP, outcome }];
    owner.advance_anyway(Event::PivotProved, what).await;
}

/// Somebody else switched the disk to our copy: it has moved all the same.
async fn by_somebody_else(owner: &mut Owner, proof: Proof) {
    let mut what = Vec::new();
    for event in [Event::CopyReady, Event::PivotIntended] {
        if transition(owner.view.state, event).is_ok() && owner.enter(event).is_ok() {
            what.push(What::Transition { event });
        }
    }
    let outcome = StepOutcome::Nothing;
    for step in [StepKind::AwaitReady, STEP] {
        owner.remember_intent(step);
        owner.remember_done(step, &outcome);
        what.push(What::Done { step, outcome: outcome.clone() });
    }
    what.push(What::Proved { proof });
    owner.warn(format!(
        "disk {} was switched to the destination by somebody else ({})",
        owner.plan.target,
        proof.as_str()
    ));
    owner.note_anyway(what).await;
    owner.advance_anyway(Event::PivotProved, vec![]).await;
}
