//! Which of the two volumes is the current one when the copy ended in another way than by our own pivot. Whatever is
//! not certainly the source may never be removed.
//!
//! A living QEMU is asked. One that is gone, or was started again, cannot tell; then libvirt's word for the end of the
//! job counts, and its silence too, but only where nothing can have been missed. Where something can, the stored
//! definition is looked at: libvirt rewrites it with a pivot. It may speak against a removal, and for one only as long
//! as no pivot of ours was intended.

use super::start_copy::{disk_is_on, same_run};
use super::verify_move::{Used, lost, qemu_uses, xml_names};
use crate::engine::owner::Owner;
use crate::journal::Proof;
use crate::ports::{ErrorClass, PortError};
use volferry_xml::DomainXml;

/// The current volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Current {
    /// Certainly the source.
    Source,
    /// Certainly the destination.
    Destination(Proof),
    /// It cannot be told; why.
    Unclear(String),
}

/// Finds out.
///
/// Errors: libvirt or QEMU cannot be asked at the moment.
pub async fn current(owner: &mut Owner) -> Result<Current, PortError> {
    let used = qemu_uses(owner).await?;
    owner.hear_all();
    let destination = &owner.plan.destination;
    Ok(match used {
        Used::Destination => Current::Destination(Proof::QemuUsesDestination),
        Used::Source if same_run(owner).await? => Current::Source,
        Used::Source => without_qemu(owner, "the guest was started again meanwhile").await?,
        Used::Lost if owner.memory.words.pivoted() => Current::Destination(Proof::JobCompleted),
        Used::Lost => Current::Unclear(lost(&owner.plan)),
        Used::Gone => without_qemu(owner, "QEMU is gone").await?,
        Used::NoDevice => without_qemu(owner, "the disk was unplugged").await?,
        Used::Other => Current::Unclear(format!(
            "QEMU uses neither {} nor {destination} on top of disk {}; the destination may be below what it uses",
            owner.plan.source, owner.plan.target
        )),
    })
}

/// What can be said when the QEMU that copied can no longer tell.
async fn without_qemu(owner: &Owner, why: &str) -> Result<Current, PortError> {
    if owner.memory.words.pivoted() {
        return Ok(Current::Destination(Proof::JobCompleted));
    }
    if !owner.memory.words.missed() {
        // Every event since before the job began was heard, and a pivot would have been among them.
        return Ok(Current::Source);
    }
    let unclear = |text: &str| Current::Unclear(format!("{why}, events were missed, and {text}"));
    let stored = match owner.context.ports.domains.observe(&owner.plan.domain.clone().into()).await
    {
        Ok(domain) => domain.inactive_xml,
        Err(error) if error.class == ErrorClass::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some(stored) = stored else {
        return Ok(unclear(
            "there is no stored definition that would show a pivot by somebody else",
        ));
    };
    if xml_names(owner, &stored) {
        return Ok(unclear(
            "the stored definition names the destination: somebody else may have pivoted",
        ));
    }
    let on_source = DomainXml::parse(&stored).is_ok_and(|xml| {
        xml.find_disk(owner.plan.target.as_str())
            .is_ok_and(|disk| disk_is_on(disk, &owner.plan.source))
    });
    Ok(match on_source {
        true => Current::Source,
        false => unclear("the stored definition names neither volume"),
    })
}
