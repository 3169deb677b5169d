//! `volferry leftovers`: what operations could not remove, listed, tried again, forgotten.

use serde_json::{Value, json};

use super::address::Address;
use super::arguments::LeftoversCommand;
use super::client::{Client, incomplete};
use super::failure::Failure;
use super::output::{self, Output, one_line};
use super::render::json::text;
use super::render::table::{self, cell};
use crate::api::convert::words::word;
use crate::api::pb;
use crate::api::status::{Exit, retry_exit};

/// Runs one of them.
pub async fn run(
    agent: &Address,
    command: LeftoversCommand,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let mut client = Client::connect(agent).await?;
    match command {
        LeftoversCommand::List => {
            list(&client.leftovers().await?, output);
            Ok(Exit::Done)
        }
        LeftoversCommand::Retry { id } => retried(&client.retry_leftover(id).await?, output),
        LeftoversCommand::Forget { id } => {
            let leftover = client.forget_leftover(id).await?;
            if output.is_json() {
                output.json(&leftover_json(&leftover));
            } else {
                let (id, location) = (one_line(&leftover.id), what(&leftover));
                output.line(&format!("leftover {id}: forgotten; {location} was not touched"));
            }
            Ok(Exit::Done)
        }
    }
}

fn list(leftovers: &[pb::Leftover], output: &mut Output) {
    if output.is_json() {
        let leftovers: Vec<Value> = leftovers.iter().map(leftover_json).collect();
        output.json(&json!({ "leftovers": leftovers }));
        return;
    }
    if leftovers.is_empty() {
        output::note("no leftovers");
        return;
    }
    let rows: Vec<_> = leftovers
        .iter()
        .map(|leftover| {
            let since = leftover.since.map_or("-".to_owned(), |since| since.to_string());
            vec![cell(&leftover.id), cell(kind(leftover)), cell(since)]
        })
        .collect();
    table::print(&["LEFTOVER", "KIND", "SINCE"], &rows, 0, output);
    for leftover in leftovers {
        output.line(&one_line(&leftover.id));
        output.line(&format!("  location  {}", one_line(&leftover.location)));
        if !leftover.secret_uuid.is_empty() {
            output.line(&format!("  secret    {}", one_line(&leftover.secret_uuid)));
        }
        output.line(&format!("  reason    {}", one_line(&leftover.reason)));
    }
}

fn retried(answer: &pb::RetryLeftoverResponse, output: &mut Output) -> Result<Exit, Failure> {
    let leftover = answer.leftover.as_ref().ok_or_else(|| incomplete("leftover"))?;
    let outcome = word(answer.outcome().as_str_name(), "RETRY_OUTCOME_");
    if output.is_json() {
        output.json(&json!({ "outcome": outcome, "leftover": leftover_json(leftover) }));
        return Ok(retry_exit(answer.outcome()));
    }
    let (id, location) = (one_line(&leftover.id), what(leftover));
    output.line(&match answer.outcome() {
        pb::RetryOutcome::Removed => format!("leftover {id}: {location} is removed"),
        pb::RetryOutcome::AlreadyGone => format!("leftover {id}: {location} was gone already"),
        pb::RetryOutcome::Stays | pb::RetryOutcome::Unspecified => {
            format!("leftover {id}: {location} stays: {}", one_line(&leftover.reason))
        }
    });
    Ok(retry_exit(answer.outcome()))
}

/// A removal that was tried.
pub fn removal_json(answer: &pb::RetryLeftoverResponse) -> Value {
    json!({
        "outcome": word(answer.outcome().as_str_name(), "RETRY_OUTCOME_"),
        "leftover": answer.leftover.as_ref().map(leftover_json),
    })
}

fn what(leftover: &pb::Leftover) -> String {
    let location = one_line(&leftover.location);
    match leftover.kind() {
        pb::LeftoverKind::Secret => format!("the libvirt secret of {location}"),
        pb::LeftoverKind::Snapshot => format!("the snapshot of {location}"),
        _ => location,
    }
}

fn kind(leftover: &pb::Leftover) -> String {
    word(leftover.kind().as_str_name(), "LEFTOVER_KIND_")
}

fn leftover_json(leftover: &pb::Leftover) -> Value {
    json!({
        "id": leftover.id,
        "operation_id": leftover.operation_id,
        "kind": kind(leftover),
        "location": leftover.location,
        "identity": text(&leftover.identity),
        "secret_uuid": text(&leftover.secret_uuid),
        "since": leftover.since.map(|since| since.to_string()),
        "reason": leftover.reason,
        "tries": leftover.tries,
        "due": leftover.due.map(|due| due.to_string()),
        "last_try": leftover.last_try.map(|last| last.to_string()),
    })
}
