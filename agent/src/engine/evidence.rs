//! Looks at everything that can tell which of two volumes is a disk's current one. Nothing here decides.

use super::steps::start_copy::is_same_run;
use super::steps::verify_move::{Used, is_off, lost, named_in, used_in};
use super::steps::volumes;
use crate::journal::Proof;
use crate::operation::{Evidence, Found, Kept, Names};
use crate::plan::Plan;
use crate::ports::{DomainObservation, ErrorClass, PortError, Ports};
use crate::spec::{Identity, VolumeLocation};

/// Looks. What cannot be looked at is said in the evidence.
pub async fn gather(
    ports: &Ports,
    plan: &Plan,
    created: Option<&Identity>,
    proofs: &[Proof],
) -> Evidence {
    let (source_found, destination_found) = tokio::join!(
        found(ports, &plan.source, Some(&plan.source_identity)),
        found(ports, &plan.destination, created),
    );
    let qemu = match used_in(ports, plan).await {
        Ok(Used::Source) => Names::One(Kept::Source),
        Ok(Used::Destination) => Names::One(Kept::Destination),
        Ok(Used::Other) => Names::Neither,
        Ok(Used::Gone | Used::NoDevice) => Names::Absent,
        Ok(Used::Lost) => Names::Unknown(lost(plan)),
        Err(error) => Names::Unknown(error.message),
    };
    // Asked after the volume, so that a run that ended in between is not taken for the one that answered.
    let (qemu, same_run) = match is_same_run(ports, plan).await {
        Ok(same) => (qemu, same),
        Err(error) => (Names::Unknown(error.message), false),
    };
    let domain = ports.domains.observe(&plan.domain.clone().into()).await;
    let (live, stored, job) = definitions(plan, domain);
    Evidence {
        source: plan.source.clone(),
        source_found,
        destination: plan.destination.clone(),
        destination_found,
        qemu,
        same_run,
        job,
        live,
        stored,
        proofs: proofs.iter().map(|proof| proof.as_str().to_owned()).collect(),
        equal: None,
    }
}

/// What the live XML and the stored definition name, and whether a block job works on the disk.
fn definitions(plan: &Plan, domain: Result<DomainObservation, PortError>) -> (Names, Names, bool) {
    let domain = match domain {
        Ok(domain) => domain,
        Err(error) if error.class == ErrorClass::NotFound => {
            return (Names::Absent, Names::Absent, false);
        }
        Err(error) => {
            let unknown = Names::Unknown(error.message);
            return (unknown.clone(), unknown, false);
        }
    };
    let live = match is_off(domain.state) {
        true => Names::Absent,
        false => named_in(plan, &domain.live_xml),
    };
    let job = volferry_xml::DomainXml::parse(&domain.live_xml).is_ok_and(|xml| {
        xml.find_disk(plan.target.as_str()).is_ok_and(|disk| disk.mirror.is_some())
    });
    let stored =
        domain.inactive_xml.as_deref().map_or(Names::Absent, |stored| named_in(plan, stored));
    (live, stored, job)
}

async fn found(ports: &Ports, volume: &VolumeLocation, meant: Option<&Identity>) -> Found {
    match (volumes::identity(ports, volume).await, meant) {
        (Ok(None), _) => Found::Nothing,
        (Ok(Some(found)), Some(meant)) if found == *meant => Found::Itself,
        (Ok(Some(found)), Some(_)) => Found::Another(found),
        (Ok(Some(found)), None) => Found::Something(found),
        (Err(error), _) => Found::Unknown(error.message),
    }
}
