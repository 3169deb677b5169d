//! PURE: a plan as JSON and as lines for people. The shape of the JSON is part of the command line's contract.

use serde_json::{Value, json};

use super::encryption;
use super::refusal::Refusal;
use super::route::{self, Destination, Request, Route};
use super::steps::{Plan, PlannedCopy, PlannedEncryption, Step};
use crate::facts::HostFacts;
use crate::spec::span::humane;
use crate::spec::{CopyFlags, HeaderKind, VolumeFormat, VolumeLocation};

/// What the offline form could not look at.
pub const UNCHECKED: [&str; 10] = [
    "the domain runs",
    "whether the domain is persistent (TRANSIENT_JOB only then)",
    "stored definition",
    "QEMU's own view of the disk",
    "snapshots and checkpoints",
    "the source exists, its exact size, who else uses it",
    "the destination does not exist",
    "space and quota of the destination pool",
    "pool reachable, secret defined, capabilities of libvirt and QEMU",
    "passphrases, headers, the secret of an encrypted destination (its uuid on RBD is written as zeros)",
];

/// The offline plan of one disk, as JSON; accepted or refused.
pub fn offline_json(
    host: &HostFacts,
    domain_xml: &str,
    request: &Request<'_>,
) -> (Value, Result<(), Refusal>) {
    match route::choose(host, domain_xml, request) {
        Ok(route) => (route_json(&route), Ok(())),
        Err(refusal) => (refusal_json(&refusal), Err(refusal)),
    }
}

/// A refusal in the shape of a plan.
pub fn refusal_json(refusal: &Refusal) -> Value {
    json!({
        "verdict": "refused",
        "refusal": { "code": refusal.code.as_str(), "message": refusal.message },
        "source": null,
        "destination": null,
        "flags": [],
        "steps": [],
        "warnings": [],
        "unchecked": [],
    })
}

fn route_json(route: &Route) -> Value {
    let destination = &route.destination;
    json!({
        "verdict": "accepted",
        "refusal": null,
        "domain": { "name": route.domain.name(), "uuid": route.domain.uuid() },
        "disk": route.target.as_str(),
        "source": source_json(
            &route.source.location,
            route.source.pool.as_ref().map(|pool| pool.as_str()),
            route.source.format,
        ),
        "destination": {
            "pool": destination.pool.as_str(),
            "volume": destination.volume.as_str(),
            "location": destination.location.to_string(),
            "format": destination.format.as_str(),
            "encryption": destination.schemes.first().map(|scheme| json!({ "scheme": scheme.as_str() })),
            "xml": offline_xml(destination, route),
        },
        "flags": flags_json(&route.flags),
        "steps": [
            format!("create {} of exactly the running disk's size under a private name",
                destination.format),
            format!("rename it to {}, replacing nothing", destination.location),
            format!("start the block copy of {}", route.target),
            "wait for READY".to_owned(),
            "look at the destination again, then pivot".to_owned(),
            "compare QEMU, the live XML and the stored XML".to_owned(),
            format!("give the source {} a retired name, then remove it", route.source.location),
        ],
        "warnings": [],
        "unchecked": UNCHECKED,
    })
}

fn encryption_json(planned: Option<&PlannedEncryption>) -> Value {
    planned.map_or(Value::Null, |planned| {
        json!({
            "scheme": planned.scheme.as_str(),
            "secret_uuid": planned.secret_uuid,
            "secret_usage": planned.secret_usage,
            "rekeyed": planned.rekeyed,
        })
    })
}

/// The destination `<disk>` with its best encryption. The uuid of a secret on RBD depends on the cluster's id, which
/// nobody was asked for.
fn offline_xml(destination: &Destination, route: &Route) -> String {
    let Some(scheme) = destination.schemes.first() else { return destination.xml.clone() };
    let (secret_uuid, secret_usage) = match &destination.location {
        VolumeLocation::File { path } => {
            let usage = path.display().to_string();
            (encryption::secret_uuid(&usage), usage)
        }
        VolumeLocation::Rbd { .. } => (uuid::Uuid::nil().to_string(), String::new()),
    };
    let planned = PlannedEncryption {
        scheme: *scheme,
        secret_uuid,
        secret_usage,
        secret_reused: false,
        rekeyed: false,
    };
    encryption::destination_xml(route, &planned)
}

fn source_json(location: &VolumeLocation, pool: Option<&str>, format: VolumeFormat) -> Value {
    json!({
        "pool": pool,
        "volume": location.name(),
        "location": location.to_string(),
        "format": format.as_str(),
    })
}

fn flags_json(flags: &CopyFlags) -> Vec<&'static str> {
    flags.iter().map(|flag| flag.as_str()).collect()
}

/// A complete plan as JSON.
pub fn plan_json(plan: &Plan) -> Value {
    json!({
        "verdict": "accepted",
        "refusal": null,
        "domain": (!plan.domain.is_none())
            .then(|| json!({ "name": plan.domain_name, "uuid": plan.domain.as_str() })),
        "disk": (!plan.domain.is_none()).then(|| plan.target.as_str()),
        "source": source_json(
            &plan.source,
            plan.source_pool.as_ref().map(|pool| pool.as_str()),
            plan.source_format,
        ),
        "destination": {
            "pool": plan.destination_pool.as_str(),
            "pool_of_libvirt": plan.destination_pool_of_libvirt,
            "volume": plan.destination.name(),
            "location": plan.destination.to_string(),
            "format": plan.destination_format.as_str(),
            "encryption": encryption_json(plan.destination_encryption.as_ref()),
            "size_bytes": plan.size.0,
            "xml": plan.destination_xml,
        },
        "flags": flags_json(&plan.flags),
        "steps": plan.steps.iter().map(describe).collect::<Vec<_>>(),
        "warnings": plan.warnings,
        "unchecked": [],
    })
}

/// One step in words.
pub fn describe(step: &Step) -> String {
    match step {
        Step::SetSecret { uuid, usage, reused: false } => {
            format!("set the libvirt secret {uuid} with the passphrase of {usage}")
        }
        Step::SetSecret { uuid, usage, reused: true } => {
            format!("set the value of the libvirt secret {uuid}, which is there for {usage}")
        }
        Step::RemoveSourceSecret { uuid } => {
            format!("remove the libvirt secret {uuid} of the source")
        }
        Step::CreateDestination { volume, format, size, owner, encryption, .. } => {
            let header =
                encryption.map_or(String::new(), |scheme| format!(" behind a header of {scheme}"));
            let owner = owner.map_or(String::new(), |owner| {
                format!(", owner {}:{} mode {:04o}", owner.uid, owner.gid, owner.mode)
            });
            format!("create {volume}, {format}, {} bytes{header}{owner}", size.0)
        }
        Step::PublishDestination { from, to } => {
            format!("rename {} to {to}, replacing nothing", from.name())
        }
        Step::StartCopy { bandwidth: Some(limit) } => {
            format!("start the block copy, at most {limit}")
        }
        Step::StartCopy { bandwidth: None } => "start the block copy".to_owned(),
        Step::AwaitReady { deadline, manual_pivot } => {
            let deadline =
                deadline.map_or(String::new(), |time| format!(" for at most {} s", time.as_secs()));
            let word = if *manual_pivot { ", then for the word to pivot" } else { "" };
            format!("wait for READY{deadline}{word}")
        }
        Step::Pivot => "look at the destination again, then pivot".to_owned(),
        Step::VerifyMove => {
            "compare QEMU, the live XML and the stored XML; repair the stored one".to_owned()
        }
        Step::CopyImage { copy, bandwidth, why } => {
            let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            let limit = bandwidth.map_or(String::new(), |limit| format!(", at most {limit}"));
            let PlannedCopy { from, from_format, from_header, to, to_format, to_header } = copy;
            let behind = |header: &Option<HeaderKind>| {
                header.map_or(String::new(), |header| format!(", behind a header of {header}"))
            };
            format!(
                "copy {from} ({from_format}{}) into {} ({to_format}{}){limit}{why}",
                behind(from_header),
                to.name(),
                behind(to_header)
            )
        }
        Step::CloneSource { from, snapshot, to } => format!(
            "make the snapshot {from}@{snapshot} and its clone {} (one cluster: the volume can be used before it is \
             copied)",
            to.name()
        ),
        Step::Flatten { volume, snapshot, .. } => format!(
            "flatten {volume}, so that it depends on its source no more, then delete the snapshot {snapshot}"
        ),
        Step::CompareImages { copy } => format!("compare {} with {}", copy.to.name(), copy.from),
        Step::Switch { manual_pivot, definition } => {
            let word = if *manual_pivot { "wait for the word to switch, " } else { "" };
            let end = match definition {
                true => ", then point the stored definition at the destination",
                false => "",
            };
            format!("{word}look whether anybody uses the source{end}")
        }
        Step::SetIotune { tune } => {
            format!("limit the disk, running and in the stored definition: {tune}")
        }
        Step::RetireSource { from, to, .. } => {
            format!("rename the source {from} to {}", to.name())
        }
        Step::DeleteSourceSnapshots { volume, snapshots } => {
            format!("delete the snapshots of {volume}: {}", snapshots.join(", "))
        }
        Step::TrashSource { volume, keep, .. } => {
            format!("put {volume} into the trash of its pool for {}", humane(*keep))
        }
        Step::RemoveSource { volume } => format!("remove {volume}"),
    }
}
