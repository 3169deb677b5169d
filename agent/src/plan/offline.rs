//! PURE: judges what was seen of a volume that nobody uses, and writes the plan of its copy down.

use std::path::Path;

use super::clone::Way;
use super::complete::{
    check_destination, check_expected, create_destination, exact_size, is_rbd,
    remove_source_secret, set_secret,
};
use super::refusal::{Refusal, RefusalCode};
use super::route::Route;
use super::source_steps::source_steps;
use super::steps::{
    Plan, PlannedCopy, PlannedEncryption, SourceCipher, SourceEncryption, Step, StepKind,
};
use super::{clone, encryption, same_volume, snapshots, space};
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
    let mut warnings = Vec::new();
    if let Some((name, _)) = domain {
        warnings.extend(snapshots::check(spec, name, &world.snapshots)?);
    }
    let source = world.source.as_ref().ok_or_else(|| missing(spec, route))?;
    check_no_link(route, source)?;
    check_users(domain.map(|(name, _)| name), route, world, offline)?;
    snapshots::check_internal(&route.source.location, source)?;
    check_layers(host, route, source, &offline.layers)?;
    let source_encryption = encryption::of_source(route, offline.source_header, domain.is_some())?;
    let size = exact_size(route, world.source_usable.unwrap_or(world.block.capacity))?;
    check_expected(spec, route, size)?;
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
    let planned = encryption::choose(route, world.encryption.as_ref(), &spec.encryption)?;
    let way = clone::choose(
        spec,
        route,
        source,
        world.clusters.as_ref(),
        (source_encryption.as_ref(), planned.as_ref()),
    );
    let full = planned.is_some() && is_rbd(route) && way != Way::Clone;
    if let Some(planned) = &planned {
        warnings.extend(encryption::warning(planned, full, size));
    }
    let ciphers = Ciphers { source: source_encryption.as_ref(), destination: planned.as_ref() };
    let steps = steps(spec, route, source, size, &ciphers, way, &mut warnings);
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
        destination_xml: match &planned {
            Some(planned) => encryption::destination_xml(route, planned),
            None => route.destination.xml.clone(),
        },
        flags: CopyFlags::new(),
        size,
        // An image with a header is written from end to end.
        source_allocated: Some(if full { size } else { world.block.allocation }),
        source_cipher: SourceCipher::of(source_encryption.as_ref()),
        source_encryption,
        destination_encryption: planned,
        steps,
        warnings,
    })
}

/// How both sides are encrypted.
struct Ciphers<'a> {
    source: Option<&'a SourceEncryption>,
    destination: Option<&'a PlannedEncryption>,
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

/// A link may lead out of the pool, to what no request may have copied; and it is not the volume that could be removed.
fn check_no_link(route: &Route, source: &SourceFacts) -> Result<(), Refusal> {
    match source {
        SourceFacts::File(file) if file.link => Err(Refusal::new(
            RefusalCode::UnsupportedSource,
            format!("{} is a symbolic link: name the file it leads to", route.source.location),
        )),
        _ => Ok(()),
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
    check_header(location, header, route.disk.is_encrypted())?;
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
            (Some("qcow2"), Some(header)) => check_header(&below, header, false)?,
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

/// `opened`: with its passphrase, which is looked at elsewhere.
fn check_header(
    location: &VolumeLocation,
    header: &ImageHeader,
    opened: bool,
) -> Result<(), Refusal> {
    if header.has_data_file {
        return Err(Refusal::new(
            RefusalCode::UnsupportedSource,
            format!("the data of {location} lie in another file"),
        ));
    }
    if header.is_encrypted && !opened {
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
    ciphers: &Ciphers<'_>,
    way: Way,
    warnings: &mut Vec<String>,
) -> Vec<Step> {
    let destination = &route.destination;
    let private = destination.location.renamed(&spec.operation.private_volume_name());
    let copy = PlannedCopy {
        from: route.source.location.clone(),
        from_format: route.source.format,
        from_header: ciphers.source.map(|source| source.header),
        to: private.clone(),
        to_format: destination.format,
        to_header: ciphers.destination.map(|planned| planned.scheme.header()),
    };
    let definition = matches!(spec.subject, Subject::Disk { .. });
    // libvirt is told of secrets only where a definition names them.
    let secret = ciphers.destination.filter(|_| definition);
    let mut steps: Vec<Step> = secret.map(set_secret).into_iter().collect();
    let cloned = way == Way::Clone;
    match way {
        Way::Clone => steps.push(Step::CloneSource {
            from: copy.from.clone(),
            snapshot: private.name(),
            to: private.clone(),
        }),
        Way::Copy(why) => {
            let scheme = ciphers.destination.map(|planned| planned.scheme);
            steps.push(create_destination(route, source, size, scheme, &private));
            steps.push(Step::CopyImage { copy: copy.clone(), bandwidth: spec.bandwidth, why });
        }
    }
    if !spec.no_compare {
        steps.push(Step::CompareImages { copy });
    }
    // Nobody finds half a copy under the volume's name.
    let snapshot = private.name();
    steps.push(Step::PublishDestination { from: private, to: destination.location.clone() });
    steps.push(Step::Switch { manual_pivot: spec.manual_pivot, definition });
    // A volume alone has no disk to limit.
    let tune = spec.iotune.clone().filter(|_| definition);
    steps.extend(tune.map(|tune| Step::SetIotune { tune }));
    let mut of_source = source_steps(spec, route, source, warnings);
    if cloned {
        flatten(&mut of_source, route, snapshot);
    }
    steps.extend(of_source);
    if definition {
        steps.extend(remove_source_secret(route, ciphers.destination, &steps));
    }
    steps
}

/// Once the source has its retired name, so that an old record cannot boot old data meanwhile, and before anything of
/// it goes.
fn flatten(of_source: &mut Vec<Step>, route: &Route, snapshot: String) {
    let retired = of_source.iter().position(|step| step.kind() == StepKind::RetireSource);
    let mut source = vec![route.source.location.clone()];
    if let Some(Step::RetireSource { to, .. }) = retired.and_then(|at| of_source.get(at)) {
        source.insert(0, to.clone());
    }
    let step = Step::Flatten { volume: route.destination.location.clone(), source, snapshot };
    of_source.insert(retired.map_or(0, |at| at + 1), step);
}
