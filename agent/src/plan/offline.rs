//! PURE: judges what was seen of a volume that nobody uses, and writes the plan of its copy down.

use std::path::Path;

use super::complete::{check_destination, create_destination, exact_size};
use super::refusal::{Refusal, RefusalCode};
use super::route::Route;
use super::source_steps::source_steps;
use super::steps::{Plan, PlannedCopy, Step};
use super::{same_volume, snapshots, space};
use crate::facts::{HostFacts, Layer, OfflineFacts, SourceFacts, WorldFacts};
use crate::ports::{DomainState, ImageHeader};
use crate::spec::{
    Bytes, CopyFlags, DomainUuid, MigrateSpec, PoolKind, Subject, VolumeFormat, VolumeLocation,
};

/// Refuses a domain that may use its disks.
pub fn check_stopped(name: &str, state: DomainState, persistent: bool) -> Result<(), Refusal> {
    match (state, persistent) {
        (DomainState::ShutOff, true) => Ok(()),
        _ => Err(Refusal::new(
            RefusalCode::VolumeInUse,
            format!("domain {name} runs: its disks are copied offline only while it is shut off"),
        )),
    }
}

/// Writes the plan of `route` down, or refuses. `domain` is the domain's name and uuid, none of a volume alone.
///
/// Errors: everything about the world that forbids the copy, each with its code; nothing was changed.
pub fn complete(
    spec: &MigrateSpec,
    domain: Option<(&str, &DomainUuid)>,
    host: &HostFacts,
    route: &Route,
    world: &WorldFacts,
    offline: &OfflineFacts,
) -> Result<Plan, Refusal> {
    check_plain(spec, route)?;
    let mut warnings = Vec::new();
    if let Some((name, _)) = domain {
        warnings.extend(snapshots::check(spec, name, &world.snapshots)?);
    }
    let source = world.source.as_ref().ok_or_else(|| missing(spec, route))?;
    check_users(domain.map(|(name, _)| name), route, world, offline)?;
    snapshots::check_internal(&route.source.location, source)?;
    check_layers(host, route, source, &offline.layers)?;
    let size = exact_size(route, world.block.capacity)?;
    same_volume::check(
        (&route.source.location, source),
        (&route.destination.location, &world.destination),
        world.clusters.as_ref(),
    )?;
    check_destination(route, world)?;
    warnings.extend(space::check(route, world, &host.limits.reserve)?);
    if spec.write_blocking {
        warnings
            .push("nobody writes during an offline copy: --write-blocking changes nothing".into());
    }
    let steps = steps(spec, route, source, size, &mut warnings);
    let (domain_name, domain) = match domain {
        Some((name, uuid)) => (name.to_owned(), uuid.clone()),
        None => (String::new(), DomainUuid::none()),
    };
    Ok(Plan {
        spec: spec.clone(),
        domain_name,
        domain,
        domain_run: String::new(),
        persistent: world.persistent,
        target: route.target.clone(),
        alias: None,
        source: route.source.location.clone(),
        source_pool: route.source.pool.clone(),
        source_mount: route.source.mount.clone(),
        source_format: route.source.format,
        source_identity: source.identity(),
        source_node: None,
        destination_pool: route.destination.pool.clone(),
        destination_pool_of_libvirt: route.destination.of_libvirt,
        destination: route.destination.location.clone(),
        destination_format: route.destination.format,
        destination_xml: route.destination.xml.clone(),
        flags: CopyFlags::new(),
        size,
        source_allocated: Some(world.block.allocation),
        destination_encryption: None,
        steps,
        warnings,
    })
}

/// An offline copy neither opens nor makes encryption headers.
fn check_plain(spec: &MigrateSpec, route: &Route) -> Result<(), Refusal> {
    if !route.disk.is_encrypted() && route.destination.schemes.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::EncryptionUnsupported,
        format!(
            "{}: encrypted volumes are moved while their guest runs; offline they are not copied yet",
            spec.subject
        ),
    ))
}

fn missing(spec: &MigrateSpec, route: &Route) -> Refusal {
    let place = &route.source.location;
    match &spec.subject {
        Subject::Volume { .. } => {
            Refusal::new(RefusalCode::DiskNotFound, format!("there is no volume {place}"))
        }
        Subject::Disk { .. } => Refusal::new(
            RefusalCode::StateMismatch,
            format!(
                "the source {place} of disk {} does not exist, although the stored definition names it",
                route.target
            ),
        ),
    }
}

/// Whoever may write while it is copied, or start from it afterwards.
fn check_users(
    domain: Option<&str>,
    route: &Route,
    world: &WorldFacts,
    offline: &OfflineFacts,
) -> Result<(), Refusal> {
    let source = &route.source.location;
    let refuse = |why: String| Err(Refusal::new(RefusalCode::VolumeInUse, why));
    if let (Some(name), true) = (domain, offline.managed_save) {
        return refuse(format!(
            "domain {name} has a saved state, which would start on {source} again: start it, or remove the state with \
             virsh managedsave-remove"
        ));
    }
    if let Some(other) = &world.other_user {
        let way_out = match domain {
            Some(_) => "detach it there first".to_owned(),
            None => format!("move it as a disk of that domain, volferry migrate {other} DISK"),
        };
        return refuse(format!("{source} is used by domain {other}: {way_out}"));
    }
    if !offline.users.is_empty() {
        return refuse(format!("{source} is in use: {}", offline.users.join(", ")));
    }
    Ok(())
}

/// A header is written by whoever wrote the image: what it names is read only where the pool's images lie, and only in
/// a format that is said.
fn check_layers(
    host: &HostFacts,
    route: &Route,
    source: &SourceFacts,
    layers: &[Layer],
) -> Result<(), Refusal> {
    let (SourceFacts::File(file), VolumeFormat::Qcow2) = (source, route.source.format) else {
        return Ok(());
    };
    let location = &route.source.location;
    let refuse = |why: String| Err(Refusal::new(RefusalCode::UnsupportedSource, why));
    let Some(header) = &file.header else {
        return refuse(format!("{location} is said to be qcow2 and has no header of qcow2"));
    };
    check_header(location, header)?;
    let pools = host.pools.iter().filter(|pool| Some(&pool.name) == route.source.pool.as_ref());
    let folder = pools.into_iter().find_map(|pool| match &pool.kind {
        PoolKind::File(folder) => Some(folder.path.as_path()),
        PoolKind::Rbd(_) => None,
    });
    let inside = |path: &Path| folder.is_some_and(|folder| path.starts_with(folder));
    for Layer { path, name, format, header } in layers {
        let Some(path) = path.as_deref().filter(|path| inside(path)) else {
            return refuse(format!(
                "the header of {location} names the backing file {name:?}, which is not a file of its pool"
            ));
        };
        let below = VolumeLocation::File { path: path.to_owned() };
        match (format.as_deref(), header) {
            (Some("raw"), _) => {}
            (Some("qcow2"), Some(header)) => check_header(&below, header)?,
            (Some("qcow2"), None) => {
                return refuse(format!(
                    "the backing file {below} is not there, or has no header of qcow2"
                ));
            }
            (Some(other), _) => {
                return refuse(format!("the backing file {below} has the format {other}"));
            }
            (None, _) => {
                return refuse(format!(
                    "the header above {below} does not say its format, and guessing it could open anything: \
                     qemu-img rebase -u -F FORMAT says it"
                ));
            }
        }
    }
    Ok(())
}

fn check_header(location: &VolumeLocation, header: &ImageHeader) -> Result<(), Refusal> {
    if header.has_data_file {
        return Err(Refusal::new(
            RefusalCode::UnsupportedSource,
            format!("the data of {location} lie in another file"),
        ));
    }
    if header.is_encrypted {
        return Err(Refusal::new(
            RefusalCode::EncryptionUnsupported,
            format!("{location} is encrypted, and the request or the definition does not say so"),
        ));
    }
    Ok(())
}

fn steps(
    spec: &MigrateSpec,
    route: &Route,
    source: &SourceFacts,
    size: Bytes,
    warnings: &mut Vec<String>,
) -> Vec<Step> {
    let destination = &route.destination;
    let private = destination.location.renamed(&spec.operation.private_volume_name());
    let copy = PlannedCopy {
        from: route.source.location.clone(),
        from_format: route.source.format,
        to: private.clone(),
        to_format: destination.format,
    };
    let mut steps = vec![
        create_destination(route, source, size, None, &private),
        Step::CopyImage { copy: copy.clone(), bandwidth: spec.bandwidth },
    ];
    if !spec.no_compare {
        steps.push(Step::CompareImages { copy });
    }
    // Nobody finds half a copy under the volume's name.
    steps.push(Step::PublishDestination { from: private, to: destination.location.clone() });
    let definition = matches!(spec.subject, Subject::Disk { .. });
    steps.push(Step::Switch { manual_pivot: spec.manual_pivot, definition });
    // A volume alone has no disk to limit.
    let tune = spec.iotune.clone().filter(|_| definition);
    steps.extend(tune.map(|tune| Step::SetIotune { tune }));
    steps.extend(source_steps(spec, route, source, warnings));
    steps
}
