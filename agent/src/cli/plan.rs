//! `volferry plan`: what a move would do, from the agent or from files alone.

use std::fs;

use serde_json::Value;

use super::address::Address;
use super::arguments::{OfflinePlan, PlanArguments};
use super::client::Client;
use super::failure::Failure;
use super::migrate;
use super::output::Output;
use super::render::{json, plan as render};
use crate::api::status::{Exit, refusal_answer};
use crate::config::Config;
use crate::facts::HostFacts;
use crate::plan::render::{offline_json, refusal_json};
use crate::plan::route::Request;
use crate::plan::{Refusal, RefusalCode};
use crate::report;
use crate::spec::{DiskReference, InvalidName, PoolName, VolumeName};

/// Asks the agent.
pub async fn online(
    agent: &Address,
    arguments: PlanArguments,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let request = migrate::request(
        String::new(),
        arguments.domain,
        arguments.online_disk,
        arguments.to,
        arguments.options,
    )?;
    let mut client = Client::connect(agent).await?;
    match client.plan(request).await {
        Ok(plan) => {
            show(&render::accepted(&plan), output);
            Ok(Exit::Done)
        }
        Err(failure) => {
            // A refused plan is an answer like an accepted one, told on standard output.
            let Some(refusal) = failure.refusal() else { return Err(failure) };
            show(&render::refused(&json::refusal(refusal)), output);
            Ok(failure.exit)
        }
    }
}

/// Plans from files alone: no agent, no libvirt.
pub fn offline(arguments: &OfflinePlan, output: &mut Output) -> Result<Exit, Failure> {
    let config = Config::load(&arguments.config)
        .map_err(|error| Failure::new(Exit::Usage, report::chain(&error)))?;
    let file = &arguments.domain_xml;
    let xml = fs::read(file)
        .map_err(|error| Failure::new(Exit::Usage, format!("{}: {error}", file.display())))?;
    // What is no UTF-8 becomes characters that no name has; the reader of the XML judges the rest.
    let xml = String::from_utf8_lossy(&xml);
    let (plan, verdict) = match plan_offline(config, &xml, arguments) {
        Ok(planned) => planned,
        Err(name) => {
            let refusal = Refusal::new(RefusalCode::InvalidName, name.to_string());
            (refusal_json(&refusal), Err(refusal))
        }
    };
    show(&plan, output);
    Ok(verdict.map_or_else(|refusal| refusal_answer(refusal.code).exit, |()| Exit::Done))
}

fn plan_offline(
    config: Config,
    xml: &str,
    arguments: &OfflinePlan,
) -> Result<(Value, Result<(), Refusal>), InvalidName> {
    let host = HostFacts {
        host_name: config.host_name,
        pools: config.pools,
        limits: config.limits,
        source_retention: config.source_retention,
        request_pools: config.request_pools,
    };
    let disk = DiskReference::new(arguments.disk.as_str())?;
    let to = PoolName::new(arguments.to.as_str())?;
    let volume = arguments.destination_volume.as_deref().map(VolumeName::new).transpose()?;
    let request = Request {
        disk: &disk,
        to: &to,
        destination_volume: volume.as_ref(),
        write_blocking: arguments.write_blocking,
        offline: false,
        encryption: &arguments.encryption,
    };
    Ok(offline_json(&host, xml, &request))
}

fn show(plan: &Value, output: &mut Output) {
    if output.is_json() {
        output.json(plan);
    } else {
        render::show(plan, output);
    }
}
