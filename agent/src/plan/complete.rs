//! PURE: judges what was seen of the world and writes the plan down.

use super::refusal::{Refusal, RefusalCode};
use super::route::Route;
use super::source_steps::source_steps;
use super::space;
use super::steps::{Plan, PlannedEncryption, Step, StepKind};
use super::{access, encryption, qemu_view, same_volume, snapshots};
use crate::facts::{DestinationFacts, SourceFacts, WorldFacts};
use crate::ports::{DomainState, FileOwner, FolderAccess, QemuBlockDevice};
use crate::spec::{
    Bytes, CopyFlag, DomainUuid, EncryptionScheme, MigrateSpec, Reserve, VolumeFormat,
    VolumeLocation,
};

/// What QEMU can address; images of other sizes cannot be copied exactly.
const SECTOR: u64 = 512;
/// QEMU counts bytes in 63 bits.
const LARGEST: u64 = i64::MAX as u64;

/// Writes the plan of `route` down, or refuses.
///
/// Errors: everything about the world that forbids the move, each with its code; nothing was changed.
pub fn complete(
    spec: &MigrateSpec,
    domain_name: &str,
    domain: &DomainUuid,
    route: &Route,
    world: &WorldFacts,
    reserve: &Reserve,
) -> Result<Plan, Refusal> {
    check_state(domain_name, world.state)?;
    let mut warnings = Vec::new();
    warnings.extend(snapshots::check(spec, domain_name, &world.snapshots)?);
    let device = check_qemu_view(route, world)?;
    let source = world.source.as_ref().ok_or_else(|| {
        Refusal::new(
            RefusalCode::StateMismatch,
            format!(
                "the source {} of disk {} does not exist under that name although QEMU uses it",
                route.source.location, route.target
            ),
        )
    })?;
    snapshots::check_internal(&route.source.location, source)?;
    warnings.extend(check_users(route, world, source)?);
    let size = exact_size(route, world.block.capacity)?;
    check_expected(spec, route, size)?;
    same_volume::check(
        (&route.source.location, source),
        (&route.destination.location, &world.destination),
        world.clusters.as_ref(),
    )?;
    check_destination(route, world)?;
    let mut flags = route.flags.clone();
    if !world.persistent {
        flags.remove(&CopyFlag::TransientJob);
    }
    warnings.extend(space::check(route, world, reserve)?);
    encryption::check_source(route, world.source_usable, size)?;
    let planned = encryption::choose(route, world.encryption.as_ref(), &spec.encryption)?;
    let full = planned.is_some() && is_rbd(route);
    if let Some(planned) = &planned {
        warnings.extend(encryption::warning(planned, full, size));
    }
    let steps = steps(spec, route, source, size, planned.as_ref(), &mut warnings);
    Ok(Plan {
        spec: spec.clone(),
        domain_name: domain_name.to_owned(),
        domain: domain.clone(),
        domain_run: world.run.clone(),
        persistent: world.persistent,
        target: route.target.clone(),
        alias: route.disk.alias.clone(),
        source: route.source.location.clone(),
        source_pool: route.source.pool.clone(),
        source_mount: route.source.mount.clone(),
        source_format: route.source.format,
        source_identity: source.identity(),
        source_node: device.node_name.clone(),
        destination_pool: route.destination.pool.clone(),
        destination_pool_of_libvirt: route.destination.of_libvirt,
        destination: route.destination.location.clone(),
        destination_format: route.destination.format,
        destination_xml: match &planned {
            Some(planned) => encryption::destination_xml(route, planned),
            None => route.destination.xml.clone(),
        },
        flags,
        size,
        // An image with a header is written from end to end.
        source_allocated: Some(if full { size } else { world.block.allocation }),
        source_encryption: None,
        source_cipher: encryption::cipher_of(route),
        destination_encryption: planned,
        steps,
        warnings,
    })
}

/// Refuses every state but running.
pub fn check_state(name: &str, state: DomainState) -> Result<(), Refusal> {
    let state = match state {
        DomainState::Running => return Ok(()),
        DomainState::Paused => "paused",
        DomainState::PausedOnIoError => "paused on an I/O error",
        DomainState::Starting => "starting",
        DomainState::ShuttingDown => "shutting down",
        DomainState::ShutOff => "shut off",
        DomainState::Crashed => "crashed",
        DomainState::Other => "in a state libvirt does not name",
    };
    Err(Refusal::new(
        RefusalCode::NotRunning,
        format!("domain {name} is {state}: a live move needs a running guest"),
    ))
}

/// QEMU's own view must be the XML's: a copy of another image than the XML names loses data.
fn check_qemu_view<'a>(
    route: &Route,
    world: &'a WorldFacts,
) -> Result<&'a QemuBlockDevice, Refusal> {
    let refuse = |why: String| Err(Refusal::new(RefusalCode::StateMismatch, why));
    let target = &route.target;
    let alias = route.disk.alias.as_deref().unwrap_or(target.as_str());
    let Some(device) = qemu_view::device(&world.qemu, alias) else {
        return refuse(format!(
            "QEMU has no device {alias} for disk {target} although the live XML names it"
        ));
    };
    let seen = device.file_name.as_deref().unwrap_or("nothing");
    match qemu_view::uses(device, &route.source.location) {
        Some(true) => Ok(device),
        Some(false) => refuse(format!(
            "disk {target}: QEMU uses {seen}, but the live XML names {}: libvirt lost track; \
             stop and start the guest from the right volume before moving it",
            route.source.location
        )),
        None => refuse(format!("disk {target}: what QEMU uses ({seen}) is not understood")),
    }
}

/// Another domain's use forbids the move; another client's watch only keeps the source from being removed, since
/// watchers cannot be told from those a dead client left.
fn check_users(
    route: &Route,
    world: &WorldFacts,
    source: &SourceFacts,
) -> Result<Option<String>, Refusal> {
    if let Some(other) = &world.other_user {
        return Err(Refusal::new(
            RefusalCode::VolumeInUse,
            format!(
                "the source {} of disk {} is used by domain {other} too, as a disk or below one: detach it there first",
                route.source.location, route.target
            ),
        ));
    }
    Ok(match source {
        // The guest's own QEMU is one of them.
        SourceFacts::Image(image) if image.watchers.len() > 1 => Some(format!(
            "the source is watched by {} clients, one of them the guest's QEMU ({}): it stays behind while another \
             one watches it",
            image.watchers.len(),
            image.watchers.join(", ")
        )),
        SourceFacts::Image(_) | SourceFacts::File(_) => None,
    })
}

pub(super) fn exact_size(route: &Route, capacity: Bytes) -> Result<Bytes, Refusal> {
    if capacity.0 == 0 || capacity.0 > LARGEST || !capacity.0.is_multiple_of(SECTOR) {
        return Err(Refusal::new(
            RefusalCode::SizeMismatch,
            format!(
                "disk {} has {} bytes, and a destination of exactly that size cannot be made: \
                 sizes are whole sectors of 512 bytes, at least one and less than 8 EiB",
                route.target, capacity.0
            ),
        ));
    }
    Ok(capacity)
}

/// Whoever asks may say how large the volume is by his records; another size is another volume, or a damaged one.
pub(super) fn check_expected(
    spec: &MigrateSpec,
    route: &Route,
    size: Bytes,
) -> Result<(), Refusal> {
    match spec.expected_size {
        Some(expected) if expected != size => Err(Refusal::new(
            RefusalCode::SizeMismatch,
            format!(
                "{} holds {} bytes for a guest, and the request says that it must be {}",
                route.source.location, size.0, expected.0
            ),
        )),
        _ => Ok(()),
    }
}

pub(super) fn check_destination(route: &Route, world: &WorldFacts) -> Result<(), Refusal> {
    let destination = &route.destination;
    let refuse = |code, why: String| Err(Refusal::new(code, why));
    let pool = &destination.pool;
    let existing = match &world.destination {
        DestinationFacts::Rbd { existing, secret_exists, .. } => {
            if !secret_exists {
                return refuse(
                    RefusalCode::SecretMissing,
                    format!("pool {pool}: libvirt has no secret of the uuid in the configuration"),
                );
            }
            if let VolumeLocation::Rbd { address, .. } = &destination.location
                && let Some(namespace) = &address.namespace
            {
                return refuse(
                    RefusalCode::HostUnsupported,
                    format!(
                        "pool {pool} is the namespace {namespace}: this libvirt does not split \
                         pool/namespace/image and would write an image of another name"
                    ),
                );
            }
            existing.is_some()
        }
        DestinationFacts::File { existing, folder, access } => {
            check_folder(route, folder.mounted, access.as_ref())?;
            existing.is_some()
        }
    };
    if existing {
        return refuse(
            RefusalCode::DestinationExists,
            format!(
                "{} exists already (pool {pool}): remove it or choose another name with \
                 --destination-volume",
                destination.location
            ),
        );
    }
    Ok(())
}

/// The folder must be where it says it is, and QEMU must be able to get there.
fn check_folder(
    route: &Route,
    mounted: bool,
    access: Option<&FolderAccess>,
) -> Result<(), Refusal> {
    let pool = &route.destination.pool;
    if must_be_mounted(route) && !mounted {
        return Err(Refusal::new(
            RefusalCode::NotMounted,
            not_mounted(&route.destination.location),
        ));
    }
    match access {
        Some(seen) => access::check(pool.as_str(), seen, access::qemu_user(&route.domain)),
        None => Ok(()),
    }
}

fn must_be_mounted(route: &Route) -> bool {
    route.destination.folder.as_ref().is_some_and(|folder| folder.must_be_mounted)
}

/// Why nothing is written to a folder without its mount, and the way out.
pub fn not_mounted(volume: &VolumeLocation) -> String {
    format!(
        "the folder of {volume} lies on the root file system, so its mount is missing: mount it, or set \
         must_be_mounted = false for the pool if the folder is meant to be there"
    )
}

/// Owner and mode of a new file: the source's, or of QEMU's user as the live XML's DAC label names it.
fn owner(route: &Route, source: &SourceFacts) -> Option<FileOwner> {
    match source {
        SourceFacts::File(file) => Some(file.owner),
        SourceFacts::Image(_) => access::qemu_user(&route.domain),
    }
}

fn steps(
    spec: &MigrateSpec,
    route: &Route,
    source: &SourceFacts,
    size: Bytes,
    planned: Option<&PlannedEncryption>,
    warnings: &mut Vec<String>,
) -> Vec<Step> {
    let destination = &route.destination;
    let private = destination.location.renamed(&spec.operation.private_volume_name());
    let mut steps: Vec<Step> = planned.map(set_secret).into_iter().collect();
    steps.extend([
        create_destination(route, source, size, planned.map(|planned| planned.scheme), &private),
        Step::PublishDestination { from: private, to: destination.location.clone() },
        Step::StartCopy { bandwidth: spec.bandwidth },
        Step::AwaitReady { deadline: spec.deadline, manual_pivot: spec.manual_pivot },
        Step::Pivot,
        Step::VerifyMove,
    ]);
    steps.extend(spec.iotune.clone().map(|tune| Step::SetIotune { tune }));
    steps.extend(source_steps(spec, route, source, warnings));
    steps.extend(remove_source_secret(route, planned, &steps));
    steps
}

/// The destination under its private name: a file belongs to whom the source's does.
pub(super) fn create_destination(
    route: &Route,
    source: &SourceFacts,
    size: Bytes,
    encryption: Option<EncryptionScheme>,
    private: &VolumeLocation,
) -> Step {
    let format = route.destination.format;
    Step::CreateDestination {
        volume: private.clone(),
        format,
        size,
        owner: match format {
            VolumeFormat::Qcow2 => owner(route, source),
            VolumeFormat::Raw => None,
        },
        must_be_mounted: must_be_mounted(route),
        encryption,
    }
}

pub(super) fn set_secret(planned: &PlannedEncryption) -> Step {
    Step::SetSecret {
        uuid: planned.secret_uuid.clone(),
        usage: planned.secret_usage.clone(),
        reused: planned.secret_reused,
    }
}

/// The source's secret goes with the source, unless it is the destination's too.
pub(super) fn remove_source_secret(
    route: &Route,
    planned: Option<&PlannedEncryption>,
    steps: &[Step],
) -> Option<Step> {
    let uuid = route.disk.encryption.as_ref()?.secret_uuid.clone()?;
    let removed = steps.iter().any(|step| step.kind() == StepKind::RemoveSource);
    let shared = planned.is_some_and(|planned| planned.secret_uuid == uuid);
    (removed && !shared).then_some(Step::RemoveSourceSecret { uuid })
}

pub(super) fn is_rbd(route: &Route) -> bool {
    matches!(route.destination.location, VolumeLocation::Rbd { .. })
}
