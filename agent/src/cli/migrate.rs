//! `volferry migrate`: ask for the move, follow it, tell how it ended.

use tokio::time::{Instant, sleep};

use super::address::Address;
use super::arguments::{ImageFormat, MigrateArguments, RequestOptions};
use super::client::Client;
use super::failure::Failure;
use super::follow::{self, Interrupts, Wish};
use super::output::{self, Output};
use super::passphrases;
use super::pool_file;
use super::render::{json, operation};
use crate::api::convert::operation::duration;
use crate::api::pb;
use crate::api::status::Exit;
use crate::spec::{HeaderKind, IoLimit, IoTune, OperationId};

/// Runs it.
pub async fn run(
    agent: &Address,
    arguments: MigrateArguments,
    output: &mut Output,
) -> Result<Exit, Failure> {
    // An id of our own, so that the operation can be found again whatever happens to the connection.
    let id = arguments.operation_id.unwrap_or_else(OperationId::random).to_string();
    let (domain, disk) = (arguments.domain, arguments.disk);
    let request = request(id.clone(), domain, disk, arguments.to, arguments.options)?;
    let mut interrupts = Interrupts::new()?;
    let mut client = Client::connect(agent).await?;
    let accepted = accept(&mut client, request, &mut interrupts).await?;
    if arguments.detach {
        if output.is_json() {
            output.json(&json::event("accepted", &accepted));
        } else {
            output.line(&format!("operation {}", accepted.id));
            output::note(&format!("follow it with: volferry ops watch {}", accepted.id));
        }
        return Ok(Exit::Done);
    }
    let mut reporter = follow::reporter(output);
    let ended =
        follow::follow(&mut client, &id, reporter.as_mut(), output, Some(&mut interrupts)).await?;
    drop(reporter);
    operation::ending(&ended, output)
}

/// Waits for the agent's answer, which may take as long as its looks at libvirt and storage.
/// A cancel that is asked for meanwhile follows the answer.
pub async fn accept(
    client: &mut Client,
    request: pb::MigrateRequest,
    interrupts: &mut Interrupts,
) -> Result<pb::Operation, Failure> {
    let id = request.operation_id.clone();
    let answer = insist(client.clone(), request);
    tokio::pin!(answer);
    let mut cancel = false;
    let accepted = loop {
        tokio::select! {
            answer = &mut answer => break answer?,
            wish = interrupts.next() => match wish {
                Wish::Cancel => {
                    cancel = true;
                    output::note("it will be cancelled as soon as the agent has answered");
                }
                wish => output::note(&follow::obey(wish, client, &id).await?),
            }
        }
    };
    if cancel {
        output::note(&follow::obey(Wish::Cancel, client, &id).await?);
    }
    Ok(accepted)
}

/// Sends the request again when the agent was lost before it answered: its id makes it the same operation.
async fn insist(mut client: Client, request: pb::MigrateRequest) -> Result<pb::Operation, Failure> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        let answer = client.migrate(request.clone()).await;
        let lost = answer.as_ref().is_err_and(|failure| failure.exit == Exit::Unreachable);
        if !lost || begun.elapsed() > follow::AWAY {
            return answer;
        }
        if !std::mem::replace(&mut told, true) {
            output::note("the agent is away; the request is sent again every second");
        }
        sleep(follow::ASK_AGAIN).await;
    }
}

/// The request on the wire.
///
/// Errors: a passphrase cannot be read.
pub fn request(
    operation_id: String,
    domain: Option<String>,
    disk: Option<String>,
    to: Option<String>,
    options: RequestOptions,
) -> Result<pb::MigrateRequest, Failure> {
    let volume = match (&options.volume, options.format) {
        (Some(volume), Some(format)) => {
            Some(volume_selector(volume, format, options.volume_encryption)?)
        }
        _ => None,
    };
    let brought = options.to_pool_file.as_deref().map(pool_file::read).transpose()?;
    let (to_pool, pool) = match brought {
        Some((name, pool)) => (name, Some(pool)),
        None => (to.unwrap_or_default(), None),
    };
    let mut request = pb::MigrateRequest {
        operation_id,
        domain: domain.unwrap_or_default(),
        disk: disk.unwrap_or_default(),
        to_pool,
        pool,
        destination_volume: options.destination_volume.clone().unwrap_or_default(),
        bandwidth_bytes_per_second: options.bandwidth.map_or(0, u64::from),
        keep_source: options.keep_source,
        keep_source_name: options.keep_source_name,
        delete_source_snapshots: options.delete_source_snapshots,
        write_blocking: options.write_blocking,
        manual_pivot: options.manual_pivot,
        deadline: options.deadline.map(duration),
        allow_checkpoint_loss: options.allow_checkpoint_loss.clone(),
        volume,
        live: options.live,
        no_compare: options.no_compare,
        expected_bytes: options.expect_size.map_or(0, |size| size.0),
        method: options.method.as_str().to_owned(),
        iotune: options.iotune.iter().flat_map(IoTune::iter).map(on_the_wire).collect(),
        ..Default::default()
    };
    passphrases::fill(&mut request, &options)?;
    Ok(request)
}

/// `POOL/NAME`.
fn volume_selector(
    volume: &str,
    format: ImageFormat,
    encryption: Option<HeaderKind>,
) -> Result<pb::VolumeSelector, Failure> {
    let Some((pool, name)) = volume.split_once('/') else {
        let text = format!("--volume {volume:?} is not of the form POOL/NAME");
        return Err(Failure::new(Exit::Usage, text));
    };
    let format = match format {
        ImageFormat::Raw => pb::VolumeFormat::Raw,
        ImageFormat::Qcow2 => pb::VolumeFormat::Qcow2,
    };
    Ok(pb::VolumeSelector {
        pool: pool.to_owned(),
        name: name.to_owned(),
        format: format.into(),
        encryption: encryption.map_or_else(String::new, |header| header.to_string()),
    })
}

fn on_the_wire((limit, value): (IoLimit, u64)) -> (String, u64) {
    (limit.to_string(), value)
}
