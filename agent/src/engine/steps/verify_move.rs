//! After the pivot: QEMU, the live XML and the stored XML must agree on the destination; a stale stored XML is
//! repaired. Nothing here fails the operation. What does not matter keeps the source; where QEMU or libvirt's live XML
//! still names the source, an operator is needed, since the live XML of a running domain cannot be pointed elsewhere.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use volferry_xml::{DestinationEncryption, DomainXml};

use super::start_copy::disk_is_on;
use super::volumes::{self, may_pass};
use crate::engine::backoff::{Asking, Backoff};
use crate::engine::owner::{Owner, Stop};
use crate::journal::{StepOutcome, What};
use crate::operation::{Failure, FailureCause, Kept, Names, Side};
use crate::plan::encryption::{xml_encryption, xml_of};
use crate::plan::{Plan, SourceCipher, StepKind, lone_volume, qemu_view};
use crate::ports::{DomainObservation, DomainState, ErrorClass, PortError, Ports};
use crate::spec::Identity;

const STEP: StepKind = StepKind::VerifyMove;
/// How long a QEMU that ends may still be seen; the kernel tells nobody of a process that is not its child.
const LAST_BREATH: Duration = Duration::from_secs(1);

/// Which of the two volumes QEMU uses for our disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Used {
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// Neither, or what is not understood.
    Other,
    /// It has no such disk: somebody unplugged it.
    NoDevice,
    /// There is no QEMU.
    Gone,
    /// libvirt says that there is none, and it still runs: libvirt lost sight of it.
    Lost,
}

/// Asks QEMU.
pub async fn qemu_uses(owner: &Owner) -> Result<Used, PortError> {
    used_in(&owner.context.ports, &owner.plan).await
}

/// The same for an operation without an owner.
pub async fn used_in(ports: &Ports, plan: &Plan) -> Result<Used, PortError> {
    let devices = match ports.domains.qemu_devices(&plan.domain).await {
        Ok(devices) => devices,
        Err(error) => {
            return match ports.domains.observe(&plan.domain.clone().into()).await {
                Err(gone) if gone.class == ErrorClass::NotFound => gone_or_lost(ports, plan).await,
                Ok(domain) if is_off(domain.state) => gone_or_lost(ports, plan).await,
                _ => Err(error),
            };
        }
    };
    let alias = plan.alias.as_deref().unwrap_or(plan.target.as_str());
    let Some(device) = qemu_view::device(&devices, alias) else { return Ok(Used::NoDevice) };
    let uses = |volume| qemu_view::uses(device, volume) == Some(true);
    Ok(match (uses(&plan.source), uses(&plan.destination)) {
        (true, _) => Used::Source,
        (false, true) => Used::Destination,
        (false, false) => Used::Other,
    })
}

/// A QEMU that libvirt does not know any more: one that ends needs a moment for it.
async fn gone_or_lost(ports: &Ports, plan: &Plan) -> Result<Used, PortError> {
    if plan.domain_run.is_empty() {
        return Ok(Used::Gone);
    }
    let deadline = tokio::time::Instant::now() + LAST_BREATH;
    while ports.domains.is_alive(&plan.domain_run).await? {
        if tokio::time::Instant::now() >= deadline {
            return Ok(Used::Lost);
        }
        tokio::time::sleep(LAST_BREATH / 20).await;
    }
    Ok(Used::Gone)
}

/// What to say of a QEMU that libvirt lost.
pub fn lost(plan: &Plan) -> String {
    format!(
        "libvirt has lost sight of the QEMU of domain {}, which still runs: shut the guest down from inside (a second \
         start would write to the same volumes), then settle the operation",
        plan.domain_name
    )
}

pub fn is_off(state: DomainState) -> bool {
    matches!(state, DomainState::ShutOff | DomainState::Crashed)
}

/// Compares and repairs.
///
/// Errors: the move is disputed.
pub async fn run(owner: &mut Owner) -> Result<(), Stop> {
    owner.remember_intent(STEP);
    owner.note_anyway(vec![What::Intent { step: STEP }]).await;
    let mut asking = Asking::new(&owner.context);
    let disputed = loop {
        match verify(owner).await {
            Ok(disputed) => break disputed,
            // libvirt is away: there is nothing to compare, and nothing may be removed before.
            Err(error) => owner.say(Some(format!("comparing QEMU and libvirt: {}", error.message))),
        }
        asking.wait().await;
    };
    if let Some(failure) = disputed {
        return Err(Stop::Undecided(failure));
    }
    let outcome = StepOutcome::Nothing;
    owner.remember_done(STEP, &outcome);
    owner.note_anyway(vec![What::Done { step: STEP, outcome }]).await;
    Ok(())
}

fn disagree(owner: &mut Owner, text: String) {
    owner.warn(text.clone());
    owner.memory.keep_reason.get_or_insert(text);
}

/// What disputes the move, if anything does.
///
/// Errors: libvirt cannot be asked.
async fn verify(owner: &mut Owner) -> Result<Option<Failure>, PortError> {
    let plan = owner.plan.clone();
    let used = qemu_uses(owner).await?;
    match used {
        Used::Destination | Used::Lost => {}
        Used::Gone => owner.warn("the guest stopped right after the pivot".to_owned()),
        Used::NoDevice => {
            owner.warn("somebody unplugged the disk right after the pivot".to_owned());
        }
        Used::Source => return Ok(Some(disputed(owner, "QEMU, asked, uses the source"))),
        Used::Other => {
            let text = format!(
                "QEMU does not say that it uses {}: the source is kept, look before removing it",
                plan.destination
            );
            disagree(owner, text);
        }
    }
    match look_patiently(owner).await {
        Ok(found) if found == owner.memory.created => {}
        Ok(_) => {
            let text = format!("under the name {} there is another volume now", plan.destination);
            disagree(owner, text);
        }
        Err(error) => {
            disagree(owner, format!("the destination could not be looked at again: {error}"));
        }
    }
    let domain = match owner.context.ports.domains.observe(&plan.domain.clone().into()).await {
        Ok(domain) => domain,
        Err(error) if error.class == ErrorClass::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let stale = used == Used::Destination
        && !is_off(domain.state)
        && named_in(&plan, &domain.live_xml) == Names::One(Kept::Source);
    if stale {
        let text = "libvirt was interrupted while the disk was switched: QEMU uses the destination, and libvirt's \
                    live XML still names the source until the guest is stopped and started";
        return Ok(Some(disputed(owner, text)));
    }
    compare_live(owner, &domain);
    check_secret(owner).await?;
    repair_stored(owner, domain).await?;
    Ok((used == Used::Lost).then(|| disputed(owner, &lost(&plan))))
}

fn disputed(owner: &Owner, why: &str) -> Failure {
    let (source, destination) = (&owner.plan.source, &owner.plan.destination);
    Failure::new(
        FailureCause::LibvirtGone,
        Side::Host,
        format!("the disk was switched from {source} to {destination}, but {why}; both are kept"),
    )
}

/// The destination's identity, asked for as long as a source is tried to be removed.
async fn look_patiently(owner: &mut Owner) -> Result<Option<Identity>, PortError> {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        let error = match volumes::identity(&owner.context.ports, &owner.plan.destination).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        owner.say(Some(format!("looking at the destination: {}", error.message)));
        if !backoff.wait().await {
            return Err(error);
        }
    }
}

fn compare_live(owner: &mut Owner, domain: &DomainObservation) {
    if domain.state == DomainState::PausedOnIoError {
        owner.warn("the guest is paused on an I/O error: look at its disks".to_owned());
    }
    if !is_off(domain.state) && !xml_names(owner, &domain.live_xml) {
        let text = format!(
            "libvirt's live XML does not name {}: stop and start the guest to set it right",
            owner.plan.destination
        );
        disagree(owner, text);
    }
}

/// Without the destination's secret the guest goes on, and does not start again.
async fn check_secret(owner: &mut Owner) -> Result<(), PortError> {
    let Some(planned) = &owner.plan.destination_encryption else { return Ok(()) };
    let uuid = planned.secret_uuid.clone();
    if owner.context.ports.secrets.look(&uuid).await?.is_none() {
        owner.warn(format!(
            "the libvirt secret {uuid} of the destination is gone: the guest does not start again until it is \
             defined and set"
        ));
    }
    Ok(())
}

/// Whether the XML has our disk on the destination.
pub fn xml_names(owner: &Owner, xml: &str) -> bool {
    named_in(&owner.plan, xml) == Names::One(Kept::Destination)
}

/// Which of the two volumes the XML has our disk on.
pub fn named_in(plan: &Plan, xml: &str) -> Names {
    let Ok(xml) = DomainXml::parse(xml) else {
        return Names::Unknown("it cannot be read".to_owned());
    };
    let Ok(disk) = xml.find_disk(plan.target.as_str()) else { return Names::Absent };
    if disk_is_on(disk, &plan.destination) {
        Names::One(Kept::Destination)
    } else if disk_is_on(disk, &plan.source) {
        Names::One(Kept::Source)
    } else {
        Names::Neither
    }
}

async fn repair_stored(owner: &mut Owner, domain: DomainObservation) -> Result<(), PortError> {
    let Some(stored) = domain.inactive_xml else { return Ok(()) };
    let target = owner.plan.target.to_string();
    match DomainXml::parse(&stored) {
        // A disk that is not in the stored definition was plugged in live only.
        Ok(xml) if xml.find_disk(&target).is_err() => return Ok(()),
        _ if xml_names(owner, &stored) => return Ok(()),
        _ => {}
    }
    match redefine(&owner.context.ports, &owner.plan, Kept::Destination).await? {
        Ok(()) => owner.warn(format!(
            "the stored definition named another source for disk {target}; it now names {}",
            owner.plan.destination
        )),
        Err(text) => disagree(
            owner,
            format!("the stored definition does not name {}: {text}", owner.plan.destination),
        ),
    }
    Ok(())
}

/// Stores the definition again with our disk on `kept`; nothing where there is none.
///
/// Errors: libvirt cannot be asked at the moment; inside, why it stays as it is.
pub async fn redefine(
    ports: &Ports,
    plan: &Plan,
    kept: Kept,
) -> Result<Result<(), String>, PortError> {
    // Read with its passwords, which are stored again with the rest.
    let Some(definition) = ports.domains.definition(&plan.domain).await? else {
        return Ok(Ok(()));
    };
    let xml = match repaired(plan, &definition, kept) {
        Ok(xml) => xml,
        Err(text) => return Ok(Err(text)),
    };
    match ports.domains.define(&plan.domain, &xml).await {
        // Defining twice does no harm; what is stored is compared again.
        Err(error) if may_pass(&error) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
        Ok(()) => Ok(Ok(())),
    }
}

/// How a definition with our disk on `kept` is to open it; none of a plain volume.
///
/// Errors: the plan does not say it.
pub fn encryption_of(plan: &Plan, kept: Kept) -> Result<Option<DestinationEncryption>, String> {
    let destination = plan.destination_encryption.as_ref();
    match (kept, &plan.source_encryption) {
        (Kept::Destination, _) => Ok(destination.map(xml_encryption)),
        (Kept::Source, Some(source)) => {
            let uuid = source.secret_uuid.as_deref();
            let uuid = uuid.ok_or("the plan names no secret of the source")?;
            Ok(Some(xml_of(source.header, uuid)))
        }
        (Kept::Source, None) => match &plan.source_cipher {
            SourceCipher::Header { kind, secret_uuid } => Ok(Some(xml_of(*kind, secret_uuid))),
            SourceCipher::Plain => Ok(None),
            SourceCipher::Unknown
                if !plan.is_offline()
                    && (destination.is_some() || plan.spec.encryption.decrypt) =>
            {
                Err("how the source is encrypted is in no plan: put the disk back by hand"
                    .to_owned())
            }
            // By a plan of before this was remembered, of a move that had nothing to do with encryption.
            SourceCipher::Unknown => Ok(None),
        },
    }
}

/// The definition with our disk on `kept`. Errors say nothing of the text, for it may hold passwords.
fn repaired(plan: &Plan, definition: &SecretString, kept: Kept) -> Result<String, String> {
    let encryption = encryption_of(plan, kept)?;
    let (volume, format) = match kept {
        Kept::Source => (&plan.source, plan.source_format),
        Kept::Destination => (&plan.destination, plan.destination_format),
    };
    let source = lone_volume::source(volume)?;
    let format = lone_volume::xml_format(format);
    let target = plan.target.as_str();
    DomainXml::parse(definition.expose_secret())
        .ok()
        .and_then(|xml| {
            xml.with_disk_volume_replaced(target, &source, format, encryption.as_ref()).ok()
        })
        .ok_or_else(|| "the stored definition could not be edited".to_owned())
}
