//! `volferry ops`: operations listed, shown, followed and steered.

use serde_json::{Value, json};

use super::address::Address;
use super::arguments::{Keep, Limit, OpsCommand};
use super::client::{Client, incomplete};
use super::failure::Failure;
use super::follow;
use super::output::{self, Output};
use super::render::{json, operation, table};
use super::resolve;
use crate::api::pb;
use crate::api::status::Exit;

/// Runs one of them.
pub async fn run(
    agent: &Address,
    command: OpsCommand,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let mut client = Client::connect(agent).await?;
    match command {
        OpsCommand::List { running, domain, limit } => {
            list(&client.operations(running, domain, limit).await?, output);
            Ok(Exit::Done)
        }
        OpsCommand::Show { id } => {
            let told = client.history(&id).await?;
            let operation = told.operation.as_ref().ok_or_else(|| incomplete("operation"))?;
            if output.is_json() {
                output.json(&json::history(operation, &told));
            } else {
                operation::show(operation, output);
                operation::history(&told, output);
            }
            Ok(Exit::Done)
        }
        OpsCommand::Watch { ids } => watch(&mut client, ids, output).await,
        OpsCommand::Cancel { id } => {
            let operation = client.cancel(&id).await?;
            taken(&operation, "cancelling", output)
        }
        OpsCommand::Pivot { id } => {
            let operation = client.complete(&id).await?;
            taken(&operation, "it may switch as soon as the copy is in step", output)
        }
        OpsCommand::SetBandwidth { id, limit: Limit(limit) } => {
            let operation = client.set_bandwidth(&id, limit.map_or(0, u64::from)).await?;
            let told = match limit {
                Some(limit) => format!("at most {limit}"),
                None => "no limit".to_owned(),
            };
            taken(&operation, &told, output)
        }
        OpsCommand::Settle { id } => resolve::decided(&client.settle(&id).await?, output),
        OpsCommand::Resolve { id, keep: None, .. } => {
            let answer = client.resolve(&id, pb::Place::Unspecified, false).await?;
            resolve::evidence(&answer, output)
        }
        OpsCommand::Resolve { id, keep: Some(keep), remove_other } => {
            let keep = match keep {
                Keep::Source => pb::Place::Source,
                Keep::Destination => pb::Place::Destination,
            };
            resolve::decided(&client.resolve(&id, keep, remove_other).await?, output)
        }
    }
}

/// A command was taken; how the operation goes on is seen by following it.
fn taken(operation: &pb::Operation, told: &str, output: &mut Output) -> Result<Exit, Failure> {
    if output.is_json() {
        output.json(&json::operation(operation));
    } else {
        output.line(&format!("operation {}: {told}", operation.id));
        output::note(&format!("follow it with: volferry ops watch {}", operation.id));
    }
    Ok(Exit::Done)
}

/// Follows the operations that are named, or all that run.
async fn watch(
    client: &mut Client,
    mut ids: Vec<String>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    if ids.is_empty() {
        let running = client.operations(true, None, u32::MAX).await?;
        ids = running.into_iter().map(|operation| operation.id).collect();
        if ids.is_empty() {
            output::note("no operation runs");
            return Ok(Exit::Done);
        }
    }
    if let [id] = &*ids {
        let mut reporter = follow::reporter(output);
        let ended = follow::follow(client, id, reporter.as_mut(), output, None).await?;
        drop(reporter);
        return operation::ending(&ended, output);
    }
    follow::many(client, &ids, output).await
}

fn list(operations: &[pb::Operation], output: &mut Output) {
    if output.is_json() {
        let operations: Vec<Value> = operations.iter().map(json::operation).collect();
        output.json(&json!({ "operations": operations }));
    } else if operations.is_empty() {
        output::note("no operations");
    } else {
        let rows: Vec<_> = operations.iter().map(operation::row).collect();
        table::print(&operation::HEADINGS, &rows, 1, output);
    }
}
