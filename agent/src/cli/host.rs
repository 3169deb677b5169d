//! `volferry disks`, `pools` and `host`: what there is to move, where to, and by what.

use serde_json::{Value, json};

use super::address::Address;
use super::client::Client;
use super::failure::Failure;
use super::output::{Output, Tone, one_line};
use super::render::json::{refusal, text};
use super::render::table::{self, cell};
use crate::api::pb;
use crate::api::status::Exit;
use crate::spec::Bytes;

/// `volferry disks DOMAIN`.
pub async fn disks(agent: &Address, domain: String, output: &mut Output) -> Result<Exit, Failure> {
    let disks = Client::connect(agent).await?.disks(domain).await?;
    if output.is_json() {
        let disks: Vec<Value> = disks.iter().map(disk_json).collect();
        output.json(&json!({ "disks": disks }));
        return Ok(Exit::Done);
    }
    let rows: Vec<_> = disks
        .iter()
        .map(|disk| {
            let movable = match &disk.immovable {
                None => ("yes".to_owned(), Tone::Good),
                Some(refusal) => (format!("no: {}", one_line(&refusal.code)), Tone::Bad),
            };
            let pool = if disk.pool.is_empty() { "-" } else { &disk.pool };
            let format = if disk.format.is_empty() { "-" } else { &disk.format };
            vec![cell(&disk.target), cell(&disk.source), cell(format), cell(pool), movable]
        })
        .collect();
    table::print(&["DISK", "SOURCE", "FORMAT", "POOL", "MOVABLE"], &rows, 1, output);
    for disk in &disks {
        if let Some(refusal) = &disk.immovable {
            output.line(&format!("{}: {}", disk.target, one_line(&refusal.message)));
        }
    }
    Ok(Exit::Done)
}

fn disk_json(disk: &pb::Disk) -> Value {
    json!({
        "target": disk.target,
        "source": disk.source,
        "format": text(&disk.format),
        "pool": text(&disk.pool),
        "immovable": disk.immovable.as_ref().map(refusal),
    })
}

/// `volferry pools`.
pub async fn pools(agent: &Address, output: &mut Output) -> Result<Exit, Failure> {
    let pools = Client::connect(agent).await?.pools().await?;
    if output.is_json() {
        let pools: Vec<Value> = pools.iter().map(pool_json).collect();
        output.json(&json!({ "pools": pools }));
        return Ok(Exit::Done);
    }
    let rows: Vec<_> = pools
        .iter()
        .map(|pool| {
            let free = pool.available_bytes.map_or("-".to_owned(), |free| Bytes(free).to_string());
            let usable = match pool.problem.as_str() {
                "" => ("yes".to_owned(), Tone::Good),
                _ => ("no".to_owned(), Tone::Bad),
            };
            let kind = match pool.of_libvirt {
                true => format!("{} (libvirt)", pool.r#type),
                false => pool.r#type.clone(),
            };
            vec![cell(&pool.name), cell(kind), cell(&pool.location), cell(free), usable]
        })
        .collect();
    table::print(&["POOL", "TYPE", "LOCATION", "FREE", "USABLE"], &rows, 2, output);
    for pool in pools.iter().filter(|pool| !pool.problem.is_empty()) {
        output.line(&format!("{}: {}", pool.name, one_line(&pool.problem)));
    }
    Ok(Exit::Done)
}

fn pool_json(pool: &pb::Pool) -> Value {
    json!({
        "name": pool.name,
        "type": pool.r#type,
        "location": pool.location,
        "available_bytes": pool.available_bytes,
        "problem": text(&pool.problem),
        "of_libvirt": pool.of_libvirt,
    })
}

/// `volferry host`.
pub async fn capabilities(agent: &Address, output: &mut Output) -> Result<Exit, Failure> {
    let host = Client::connect(agent).await?.host().await?;
    if output.is_json() {
        output.json(&json!({
            "host_name": host.host_name,
            "agent_version": host.agent_version,
            "libvirt_connected": host.libvirt_connected,
            "libvirt_version": text(&host.libvirt_version),
            "qemu_version": text(&host.qemu_version),
            "luks2_librbd": text(&host.luks2_librbd),
        }));
        return Ok(Exit::Done);
    }
    let version =
        |version: &str| if version.is_empty() { "-".to_owned() } else { one_line(version) };
    let libvirt = if host.libvirt_connected {
        output.paint("connected", Tone::Good)
    } else {
        output.paint("away", Tone::Bad)
    };
    output.line(&format!("host     {}", one_line(&host.host_name)));
    output.line(&format!("agent    {}", version(&host.agent_version)));
    output.line(&format!("libvirt  {} ({libvirt})", version(&host.libvirt_version)));
    output.line(&format!("qemu     {}", version(&host.qemu_version)));
    if !host.luks2_librbd.is_empty() {
        output
            .line(&format!("librbd   copies into luks2-librbd: {}", one_line(&host.luks2_librbd)));
    }
    Ok(Exit::Done)
}
