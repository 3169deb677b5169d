//! `volferry ops resolve` and `settle`: the evidence about an undecided operation, and its end.

use serde_json::{Value, json};

use super::client::incomplete;
use super::failure::Failure;
use super::leftovers::removal_json;
use super::output::{self, Output, one_line};
use super::render::json::text;
use super::render::{json as shapes, operation};
use crate::api::convert::words::{state_of, word};
use crate::api::pb;
use crate::api::status::{Exit, retry_exit, state_exit};
use crate::operation::State;

/// Shows what is known; nothing was changed.
pub fn evidence(
    answer: &pb::ResolveOperationResponse,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let shown = answer.operation.as_ref().ok_or_else(|| incomplete("operation"))?;
    let state = state_of(shown.state()).ok_or_else(|| incomplete("known state"))?;
    if output.is_json() {
        output.json(&whole(answer));
        return Ok(state_exit(state));
    }
    operation::show(shown, output);
    list(answer, output);
    if state != State::NeedsOperator {
        output::note(&format!("it is {state} and needs no operator: nothing is to be decided"));
        return Ok(state_exit(state));
    }
    for (keep, refused) in
        [("source", &answer.source_refused), ("destination", &answer.destination_refused)]
    {
        let way = match refused.as_str() {
            "" => format!("volferry ops resolve {} --keep {keep}", shown.id),
            why => format!("not possible now: {}", one_line(why)),
        };
        output.line(&format!("  {:<17} {way}", format!("keep {keep}")));
    }
    Ok(state_exit(state))
}

/// Shows the end it was given.
pub fn decided(
    answer: &pb::ResolveOperationResponse,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let shown = answer.operation.as_ref().ok_or_else(|| incomplete("operation"))?;
    let exit = answer.removal.as_ref().map_or(Exit::Done, |removal| retry_exit(removal.outcome()));
    if output.is_json() {
        output.json(&whole(answer));
        return Ok(exit);
    }
    operation::show(shown, output);
    list(answer, output);
    if let Some(removal) = &answer.removal {
        let leftover = removal.leftover.as_ref().ok_or_else(|| incomplete("leftover"))?;
        let outcome = word(removal.outcome().as_str_name(), "RETRY_OUTCOME_");
        output.line(&format!("  other volume      {}: {outcome}", one_line(&leftover.location)));
    } else {
        output::note("nothing was removed: `volferry leftovers list` shows the other volume");
    }
    Ok(exit)
}

fn list(answer: &pb::ResolveOperationResponse, output: &mut Output) {
    for line in &answer.evidence {
        output.line(&format!("  evidence          {}", one_line(line)));
    }
}

fn whole(answer: &pb::ResolveOperationResponse) -> Value {
    json!({
        "operation": answer.operation.as_ref().map(shapes::operation),
        "evidence": answer.evidence,
        "source_refused": text(&answer.source_refused),
        "destination_refused": text(&answer.destination_refused),
        "removal": answer.removal.as_ref().map(removal_json),
    })
}
