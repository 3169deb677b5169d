//! PURE: which disks and which pairs of pools are moved at all.

use volferry_xml::{DeviceKind, Disk, DomainXml};

use super::refusal::{Refusal, RefusalCode};
use super::source::Named;
use crate::spec::{Method, VolumeLocation};

/// Refuses a way of copying that no pair of pools has here.
pub fn check_method(method: Method) -> Result<(), Refusal> {
    match method {
        Method::Auto | Method::Mirror => Ok(()),
        Method::Handover => Err(Refusal::new(
            RefusalCode::MethodUnavailable,
            "the method handover is not possible with this agent: leave --method out, and QEMU mirrors the disk",
        )),
    }
}

/// Refuses what is wrong with the disk itself, whatever the destination. The order is part of the contract: the
/// kind of device decides before read-only.
pub fn check_disk(domain: &DomainXml, disk: &Disk) -> Result<(), Refusal> {
    let target = &disk.target;
    let refuse = |code, why: String| Err(Refusal::new(code, format!("disk {target} {why}")));
    let kind = match &disk.device {
        DeviceKind::Disk => None,
        DeviceKind::Cdrom => Some("a CD-ROM"),
        DeviceKind::Floppy => Some("a floppy"),
        DeviceKind::Lun => Some("a LUN passed through"),
        DeviceKind::Other(other) => Some(other.as_str()),
    };
    if let Some(kind) = kind {
        return refuse(RefusalCode::NotADisk, format!("is {kind}, not a disk"));
    }
    if target.is_empty() {
        return refuse(RefusalCode::NotADisk, "has no target, so no block job can name it".into());
    }
    if disk.readonly {
        return refuse(RefusalCode::ReadOnly, "is read-only: copy its image instead".into());
    }
    if disk.transient {
        return refuse(
            RefusalCode::TransientDisk,
            "is transient: libvirt throws its content away at shutdown".into(),
        );
    }
    if disk.shareable {
        return refuse(
            RefusalCode::Shareable,
            "is shareable: the writes of other guests would be lost".into(),
        );
    }
    check_other_disks(domain, disk)?;
    if let Some(mirror) = &disk.mirror {
        let job = mirror.job.as_deref().unwrap_or("unknown");
        return refuse(
            RefusalCode::BlockJobActive,
            format!(
                "has a block job ({job}) to {}: wait for it or end it first",
                mirror.source.describe()
            ),
        );
    }
    Ok(())
}

/// One image on two disks, or one disk's image below another's: after the move the other disk would lose it.
fn check_other_disks(domain: &DomainXml, disk: &Disk) -> Result<(), Refusal> {
    let Some(own) = Named::of(&disk.source) else { return Ok(()) };
    for other in domain.disks().iter().filter(|other| other.target != disk.target) {
        let images = std::iter::once(&other.source)
            .chain(other.backing_chain.iter().map(|layer| &layer.source))
            .chain(other.mirror.iter().map(|mirror| &mirror.source));
        if images.filter_map(Named::of).any(|image| image.may_be(&own)) {
            return Err(Refusal::new(
                RefusalCode::Shareable,
                format!(
                    "disk {} is {}, which disk {} of the same guest uses too",
                    disk.target,
                    disk.source.describe(),
                    other.target
                ),
            ));
        }
    }
    Ok(())
}

/// The pair of a live move.
pub fn check_pair(disk: &Disk, from: &VolumeLocation, to: &VolumeLocation) -> Result<(), Refusal> {
    match (from, to) {
        (VolumeLocation::File { .. }, VolumeLocation::File { .. }) => Err(Refusal::new(
            RefusalCode::FileToFile,
            format!(
                "disk {} lies in a file pool and a running guest's disk is not moved between two file pools: \
                 stop the VM and move offline, or move by way of RBD",
                disk.target
            ),
        )),
        _ => Ok(()),
    }
}

/// The destination must be neither the source nor any other image of the guest.
pub fn check_same_volume(
    domain: &DomainXml,
    disk: &Disk,
    destination: &Named,
    place: &VolumeLocation,
) -> Result<(), Refusal> {
    let same = |other: &Disk, role: &str| {
        Err(Refusal::new(
            RefusalCode::SameVolume,
            format!(
                "the destination {place} of disk {} is {role} disk {} of the same guest",
                disk.target, other.target
            ),
        ))
    };
    for other in domain.disks() {
        let is = |source| Named::of(source).is_some_and(|image| image.may_be(destination));
        if is(&other.source) {
            return same(other, "the source of");
        }
        if other.backing_chain.iter().any(|layer| is(&layer.source)) {
            return same(other, "a backing image of");
        }
        if other.mirror.as_ref().is_some_and(|mirror| is(&mirror.source)) {
            return same(other, "the target of a block job on");
        }
    }
    Ok(())
}
