//! The way back: undoes what was done before the pivot, last step first, and names the end.

use std::time::Duration;

use super::evidence;
use super::leftovers::{self, LeftBehind};
use super::owner::{Owner, Stop};
use super::steps::{self, UndoError, verify_move};
use crate::journal::What;
use crate::operation::{Event, Failure, FailureCause, Names, Side, State};
use crate::plan::StepKind;
use crate::spec::Passphrases;

/// How long evidence is looked for before an operation ends without it.
const LOOK: Duration = Duration::from_secs(5);

/// Ends an operation whose way forward stopped.
pub async fn settle(owner: &mut Owner, stop: Stop) {
    // Whatever is undone needs none.
    owner.memory.passphrases = Passphrases::default();
    let end = match stop {
        Stop::Undecided(failure) => {
            if !matches!(owner.view.state, State::Pivoting | State::RollingBack | State::Moved) {
                begin_after_failure(owner, failure.clone()).await;
            }
            undecided(owner, failure).await;
            return;
        }
        Stop::Failed(failure) => {
            begin_after_failure(owner, failure).await;
            Event::RolledBackFailed
        }
        Stop::Cancelled => {
            if owner.view.state != State::RollingBack {
                owner.advance_anyway(Event::CancelRequested, vec![]).await;
            }
            Event::RolledBackCancelled
        }
    };
    for step in owner.plan.steps.clone().iter().rev() {
        if !owner.was_intended(step.kind()) {
            continue;
        }
        if let Err(moved) = undo(owner, step).await {
            undecided(owner, moved).await;
            return;
        }
    }
    owner.view.waits_for_pivot = false;
    owner.advance_anyway(end, vec![]).await;
}

/// Ends without proof: both volumes are kept, the evidence is told, and what is stored names what QEMU uses.
async fn undecided(owner: &mut Owner, mut failure: Failure) {
    let (ports, plan) = (owner.context.ports.clone(), owner.plan.clone());
    let proofs: Vec<_> = owner.memory.proof.into_iter().collect();
    let looking = evidence::gather(&ports, &plan, owner.memory.created.as_ref(), &proofs);
    // The end does not wait for storage that hangs.
    if let Ok(evidence) = tokio::time::timeout(LOOK, looking).await {
        failure.text = format!("{}. Evidence: {}", failure.text, evidence.lines().join("; "));
        let stale = matches!(evidence.stored, Names::One(_) | Names::Neither);
        if let Names::One(used) = evidence.qemu
            && stale
            && evidence.stored != Names::One(used)
        {
            let place = evidence.location(used);
            match verify_move::redefine(&ports, &plan, used).await {
                Ok(Ok(())) => owner.warn(format!(
                    "the stored definition now names {place}, which QEMU uses: stopping and starting the guest \
                     finishes it"
                )),
                Ok(Err(text)) => {
                    owner.warn(format!("the stored definition does not name {place}: {text}"));
                }
                Err(error) => {
                    owner.warn(format!("the stored definition does not name {place}: {error}"));
                }
            }
        }
    }
    owner.view.waits_for_pivot = false;
    owner.view.failure = Some(failure);
    let event = match owner.view.state {
        State::Moved => Event::MoveDisputed,
        _ => Event::ProofMissing,
    };
    owner.advance_anyway(event, vec![]).await;
}

async fn begin_after_failure(owner: &mut Owner, failure: Failure) {
    if owner.view.state == State::RollingBack {
        return;
    }
    tracing::warn!(operation = %owner.id(), %failure, "the operation failed; undoing it");
    owner.view.failure = Some(failure.clone());
    let step = owner.memory.intended.last().copied().unwrap_or(StepKind::CreateDestination);
    owner.advance_anyway(Event::FailureSeen, vec![What::Failed { step, failure }]).await;
}

/// Errors: the disk turned out to be on the destination; nothing more may be undone.
async fn undo(owner: &mut Owner, step: &crate::plan::Step) -> Result<(), Failure> {
    let kind = step.kind();
    owner.note_anyway(vec![What::UndoIntent { step: kind }]).await;
    match steps::undo(owner, step).await {
        Ok(()) => {
            owner.note_anyway(vec![What::UndoDone { step: kind }]).await;
            Ok(())
        }
        Err(UndoError::LeftBehind(volumes)) => {
            let texts: Vec<String> = volumes.iter().map(LeftBehind::to_string).collect();
            let text = texts.join("; ");
            for (volume, text) in volumes.into_iter().zip(texts) {
                owner.warn(text);
                leftovers::leave(owner, volume);
            }
            owner.note_anyway(vec![What::UndoFailed { step: kind, text }]).await;
            Ok(())
        }
        Err(UndoError::NotTheSource(text)) => Err(Failure::new(
            FailureCause::JobStolen,
            Side::Host,
            format!(
                "while the operation was undone the destination turned out to be, or perhaps to be, the current \
                 volume: {text}; nothing more was undone and both volumes are kept: compare their contents and \
                 times of writing"
            ),
        )),
    }
}
