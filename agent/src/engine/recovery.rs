//! From the journal back to an owner: the records are folded through the same transition function, and the steps
//! themselves probe what they had begun.

use std::sync::Arc;

use super::context::Context;
use super::owner::{Links, Memory, Owner};
use crate::journal::{StepOutcome, StoredOperation, What, Wish};
use crate::operation::{State, transition};

/// Rebuilds the owner of an unfinished operation; `why` is said until there is more to say.
pub fn rebuild(context: Arc<Context>, stored: StoredOperation, links: Links, why: &str) -> Owner {
    let StoredOperation { plan, mut view, records } = stored;
    let mut state = State::Queued;
    let mut memory = Memory { resumed: true, ..Memory::default() };
    memory.words.miss();
    for record in &records {
        if let What::Transition { event } = record.what {
            match transition(state, event) {
                Ok(next) => state = next,
                Err(error) => {
                    tracing::error!(operation = %plan.spec.operation, %error, "journal");
                }
            }
        }
        recall(&mut memory, &record.what);
    }
    view.state = state;
    view.detail = Some(why.to_owned());
    if memory.pivot_wished {
        view.waits_for_pivot = false;
    }
    Owner::with_memory(context, plan, view, memory, links)
}

/// Takes one record into the memory.
pub fn recall(memory: &mut Memory, what: &What) {
    match what {
        What::Intent { step } if !memory.intended.contains(step) => memory.intended.push(*step),
        What::Done { step, outcome } => {
            if let StepOutcome::Created { identity } = outcome {
                memory.created = Some(identity.clone());
            }
            if !memory.done.contains(step) {
                memory.done.push(*step);
            }
        }
        What::Proved { proof } => memory.proof = Some(*proof),
        What::Wished { wish: Wish::Cancel } => memory.cancel_wished = true,
        What::Wished { wish: Wish::Pivot } => memory.pivot_wished = true,
        What::Wished { wish: Wish::Bandwidth { limit } } => {
            memory.bandwidth_wished = Some(*limit);
        }
        What::Intent { .. }
        | What::Transition { .. }
        | What::Failed { .. }
        | What::UndoIntent { .. }
        | What::UndoDone { .. }
        | What::UndoFailed { .. }
        | What::Resolving { .. }
        | What::Warning { .. } => {}
    }
}
