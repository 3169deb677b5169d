//! The whole history of one operation, in words: what was written down when, and what is left to do.

use std::sync::Arc;
use std::time::SystemTime;

use super::{CommandError, Engine};
use crate::journal::{Record, StepOutcome, StoredOperation, What, Wish};
use crate::operation::{Leftover, LeftoverKind, OperationView, State, transition};
use crate::plan::render::describe;
use crate::plan::{Plan, StepKind};
use crate::report::chain;
use crate::spec::OperationId;

/// An operation with everything that was written down about it.
#[derive(Debug, Clone)]
pub struct History {
    /// The operation as it is now.
    pub view: Arc<OperationView>,
    /// What happened, in order.
    pub entries: Vec<Entry>,
    /// What is left to do, by the agent while the operation runs, by people once it has ended.
    pub to_do: Vec<String>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When it was written down.
    pub at: SystemTime,
    /// What.
    pub text: String,
}

impl Engine {
    /// The whole history of an operation. Of one at hand that the journal cannot tell of, the operation alone, and why.
    ///
    /// Errors: no such operation at hand, and none in the journal or no way to read it.
    pub async fn history_of(&self, id: &OperationId) -> Result<History, CommandError> {
        // At hand it is newer than in the journal.
        let view = self.operation(id).await?;
        let journal = &self.context.journal;
        match (journal.stored(id).await, journal.leftovers().await) {
            (Ok(Some(stored)), Ok(mut leftovers)) => {
                leftovers.retain(|leftover| leftover.operation == *id);
                Ok(tell(&stored, view, &leftovers))
            }
            (Ok(None), _) => Err(CommandError::UnknownOperation(id.clone())),
            (Err(error), _) | (_, Err(error)) => {
                let text = format!("mend the journal, its history is not read: {}", chain(&error));
                Ok(History { view, entries: vec![], to_do: vec![text] })
            }
        }
    }
}

fn tell(stored: &StoredOperation, view: Arc<OperationView>, leftovers: &[Leftover]) -> History {
    let plan = &stored.plan;
    let mut entries = Vec::new();
    if let Some(at) = view.accepted() {
        let text = format!("accepted: {} to pool {}", plan.subject(), plan.destination_pool);
        entries.push(Entry { at, text });
    }
    let mut state = State::Queued;
    for Record { at, what } in &stored.records {
        let text = match what {
            What::Transition { event } => match transition(state, *event) {
                Ok(next) => {
                    state = next;
                    format!("is {next}")
                }
                Err(error) => error.to_string(),
            },
            other => words(plan, other),
        };
        entries.push(Entry { at: *at, text });
    }
    let to_do = to_do(stored, &view, leftovers);
    History { view, entries, to_do }
}

/// A record that is no edge, in words.
fn words(plan: &Plan, what: &What) -> String {
    match what {
        What::Transition { event } => event.to_string(),
        What::Intent { step } => format!("begins: {}", step_words(plan, *step)),
        What::Done { step, outcome: StepOutcome::Created { identity } } => {
            format!("done: {} ({identity})", step.as_str())
        }
        What::Done { step, outcome: StepOutcome::Nothing } => format!("done: {}", step.as_str()),
        What::Failed { step, failure } => format!("failed at {}: {failure}", step.as_str()),
        What::UndoIntent { step } => format!("undoing {}", step.as_str()),
        What::UndoDone { step } => format!("undone: {}", step.as_str()),
        What::UndoFailed { step, text } => {
            format!("could not be undone: {}: {text}", step.as_str())
        }
        What::Proved { proof } => format!("proof of the pivot: {}", proof.as_str()),
        What::Wished { wish: Wish::Cancel } => "asked for: cancel".to_owned(),
        What::Wished { wish: Wish::Pivot } => "asked for: pivot".to_owned(),
        What::Wished { wish: Wish::Bandwidth { limit: Some(limit) } } => {
            format!("asked for: at most {limit}")
        }
        What::Wished { wish: Wish::Bandwidth { limit: None } } => "asked for: no limit".to_owned(),
        What::Resolving { keep, by, .. } => format!("being decided for the {keep}, by {by}"),
        What::Warning { text } => format!("warning: {text}"),
    }
}

fn step_words(plan: &Plan, kind: StepKind) -> String {
    let step = plan.steps.iter().find(|step| step.kind() == kind);
    step.map_or_else(|| kind.as_str().to_owned(), describe)
}

fn to_do(stored: &StoredOperation, view: &OperationView, leftovers: &[Leftover]) -> Vec<String> {
    let id = &view.spec.operation;
    let mut to_do = Vec::new();
    if view.waits_for_pivot {
        to_do.push(format!("give the word to pivot: volferry ops pivot {id}"));
    }
    if view.state == State::RollingBack {
        to_do.extend(to_undo(stored));
    } else if !view.state.is_final() {
        let done = |kind| {
            let mut records = stored.records.iter();
            records.any(|record| matches!(record.what, What::Done { step, .. } if step == kind))
        };
        let left = stored.plan.steps.iter().filter(|step| !done(step.kind()));
        to_do.extend(left.map(describe));
    }
    if matches!(view.state, State::Failed | State::NeedsOperator) {
        to_do.extend(view.hint());
    }
    to_do.extend(leftovers.iter().map(leftover_words));
    to_do
}

/// What was begun and is not undone yet, last step first.
fn to_undo(stored: &StoredOperation) -> Vec<String> {
    let mut left: Vec<StepKind> = Vec::new();
    for record in &stored.records {
        match record.what {
            What::Intent { step } if !left.contains(&step) => left.push(step),
            What::UndoDone { step } | What::UndoFailed { step, .. } => {
                left.retain(|kind| *kind != step);
            }
            _ => {}
        }
    }
    left.iter().rev().map(|step| format!("undo {}", step.as_str())).collect()
}

fn leftover_words(leftover: &Leftover) -> String {
    let Leftover { id, location, reason, .. } = leftover;
    match leftover.kind {
        LeftoverKind::Trash => format!("nothing: {location} is removed when it is due"),
        LeftoverKind::Secret => format!(
            "volferry leftovers retry {id}: the libvirt secret of {location} stays: {reason}"
        ),
        LeftoverKind::Snapshot => {
            format!("volferry leftovers retry {id}: the snapshot of {location} stays: {reason}")
        }
        _ => format!("volferry leftovers retry {id}: {location} stays: {reason}"),
    }
}
