//! `volferry cloudstack run`: a command of CloudStack on standard input, its answer on standard output.

use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use super::address::Address;
use super::arguments::CloudstackArguments;
use super::client::{Client, incomplete};
use super::failure::Failure;
use super::follow::{self, Interrupts, Reporter};
use super::migrate::accept;
use super::output::{self, Output};
use crate::api::convert::words::{state_of, word};
use crate::api::pb;
use crate::api::status::Exit;
use crate::cloudstack::answer::not_understood;
use crate::cloudstack::{Answer, Command, Moved, Place, migrate_request, read};
use crate::operation::State;
use crate::spec::OperationId;

/// More than any command has.
const LARGEST: u64 = 16 << 20;

/// Runs it. An answer is written in every case.
pub async fn run(
    agent: &Address,
    arguments: CloudstackArguments,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let commands = match document().and_then(|read_in| read(&read_in, arguments.ignore_unknown)) {
        Ok(commands) => commands,
        Err(why) => {
            output.json(&Value::Array(vec![not_understood(&why)]));
            return Ok(Exit::Usage);
        }
    };
    if commands.len() > 1 && arguments.operation_id.is_some() {
        let why = "one operation id is for one command, and these are several";
        output.json(&Value::Array(vec![not_understood(why)]));
        return Ok(Exit::Usage);
    }
    let mut answers = Vec::new();
    let mut good = true;
    for (kind, command) in commands {
        let answer = match command {
            _ if !good => Answer::stopped(),
            Err(why) => Answer::Failed(why),
            Ok(command) => match carry_out(agent, &arguments, &command, output).await {
                Ok(answer) => answer,
                Err(failure) => Answer::Failed(failure.message().to_owned()),
            },
        };
        good &= answer.is_good();
        answers.push(answer.json(kind));
    }
    output.json(&Value::Array(answers));
    Ok(if good { Exit::Done } else { Exit::Failed })
}

/// Errors: it cannot be read, or is no JSON; nothing of it is repeated, for it may hold secrets.
fn document() -> Result<Value, String> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(LARGEST).read_to_end(&mut text);
    read.map_err(|error| format!("the command cannot be read: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("the command is no JSON, at line {line}, column {column}")
    })
}

async fn carry_out(
    agent: &Address,
    arguments: &CloudstackArguments,
    command: &Command,
    output: &mut Output,
) -> Result<Answer, Failure> {
    let id = arguments.operation_id.clone().unwrap_or_else(OperationId::random).to_string();
    let mut client = Client::connect(agent).await?;
    let pools = client.pools().await?;
    let place = Place { pools: &pools, mounts: Path::new(&arguments.mounts) };
    let request = match migrate_request(command, id.clone(), &place) {
        Ok(request) => request,
        Err(why) => return Ok(Answer::Failed(why)),
    };
    let mut interrupts = Interrupts::new()?;
    accept(&mut client, request, &mut interrupts).await?;
    let ended = follow::follow(&mut client, &id, &mut Quiet, output, Some(&mut interrupts)).await?;
    answer(&ended)
}

fn answer(operation: &pb::Operation) -> Result<Answer, Failure> {
    let state = state_of(operation.state()).ok_or_else(|| incomplete("known state"))?;
    let result = match (&operation.result, state) {
        (Some(result), State::Succeeded) => result,
        _ => return Ok(Answer::Failed(why(operation))),
    };
    let format = match result.format() {
        pb::VolumeFormat::Qcow2 => "QCOW2",
        pb::VolumeFormat::Raw | pb::VolumeFormat::Unspecified => "RAW",
    };
    let encrypt_format = match result.encryption.as_str() {
        "luks2-librbd" => Some("luks2"),
        "luks1-qemu" => Some("luks"),
        _ => None,
    };
    Ok(Answer::Moved(Moved {
        path: result.volume.clone(),
        format,
        encrypt_format,
        details: operation.warnings.join("; "),
    }))
}

fn why(operation: &pb::Operation) -> String {
    let state = word(operation.state().as_str_name(), "STATE_");
    let id = &operation.id;
    match &operation.failure {
        Some(failure) => {
            format!(
                "operation {id} {state}: {}: {} ({})",
                failure.cause, failure.text, failure.hint
            )
        }
        None => format!("operation {id} {state}"),
    }
}

/// Says nothing on the way but what there is to know, and that on standard error.
struct Quiet;

impl Reporter for Quiet {
    fn change(&mut self, _: &pb::Operation, _: &mut Output) {}

    fn note(&mut self, text: &str, _: &mut Output) {
        output::note(text);
    }
}
