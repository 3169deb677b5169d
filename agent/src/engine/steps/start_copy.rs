//! Starts the block copy into the destination just made.
//!
//! Begun before, or no answer: the live XML says whether our job runs.

use volferry_xml::{Disk, DomainXml};

use super::UndoError;
use super::await_ready::space::stalled;
use super::current::{Current, current};
use super::verify_move::{Used, lost, qemu_uses};
use crate::engine::backoff::{Asking, Patience};
use crate::engine::owner::{Owner, Stop};
use crate::journal::{StepOutcome, What};
use crate::operation::{Event, Failure, FailureCause, Side};
use crate::plan::source::Named;
use crate::plan::{Plan, StepKind};
use crate::ports::{CopyRequest, DomainState, ErrorClass, PortError, Ports};
use crate::spec::{BytesPerSecond, VolumeLocation};

const STEP: StepKind = StepKind::StartCopy;

/// What the live XML says about our disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// No block job.
    NoJob,
    /// Our copy, and whether it is ready.
    OurCopy {
        /// `<mirror ready='yes'>`.
        ready: bool,
    },
    /// Some other block job.
    OtherJob,
    /// The disk is no longer one of the running domain's.
    NoDisk,
    /// The domain runs no more.
    Gone,
}

/// Starts the job.
pub async fn run(owner: &mut Owner, bandwidth: Option<BytesPerSecond>) -> Result<(), Stop> {
    let begun_before = owner.was_intended(STEP);
    if !begun_before || look(owner).await? != (Seen::OurCopy { ready: false }) {
        check_qemu_view(owner).await?;
    }
    owner.intend(STEP).await?;
    let request = CopyRequest {
        domain: owner.plan.domain.clone(),
        target: owner.plan.target.clone(),
        destination_xml: owner.plan.destination_xml.clone(),
        flags: owner.plan.flags.clone(),
        bandwidth,
    };
    let mut patience = Patience::new(owner);
    let mut known = !begun_before;
    loop {
        if !known {
            match look(owner).await? {
                Seen::OurCopy { .. } => break,
                Seen::OtherJob => return Err(other_job(owner)),
                Seen::Gone => return Err(Stop::Failed(guest_gone("before the copy began"))),
                Seen::NoDisk => return Err(Stop::Failed(unplugged(owner))),
                Seen::NoJob => {}
            }
        }
        let error = match owner.context.ports.jobs.start_copy(&request).await {
            Ok(()) => break,
            Err(error) => error,
        };
        known = false;
        let may_succeed_later = matches!(
            error.class,
            ErrorClass::Busy | ErrorClass::NoAnswer | ErrorClass::Unavailable
        );
        if !may_succeed_later {
            // libvirt says of a guest that has stopped only that the call is not valid.
            return Err(match see(owner).await {
                Ok(Seen::Gone) => Stop::Failed(guest_gone("before the copy began")),
                Ok(Seen::NoDisk) => Stop::Failed(unplugged(owner)),
                _ => start_failed(owner, &error).await,
            });
        }
        owner.say(Some(format!("starting the copy: {}", error.message)));
        if !patience.wait(owner, error.class).await? && look(owner).await? == Seen::NoJob {
            return Err(start_failed(owner, &error).await);
        }
    }
    owner.remember_done(STEP, &StepOutcome::Nothing);
    let outcome = StepOutcome::Nothing;
    owner.advance(Event::CopyStarted, vec![What::Done { step: STEP, outcome }]).await
}

async fn start_failed(owner: &Owner, error: &PortError) -> Stop {
    let secret = owner.plan.destination_encryption.is_some()
        && (error.class == ErrorClass::WrongPassphrase || error.message.contains("no secret with"));
    let cause = match error.class {
        _ if secret => FailureCause::SecretNeeded,
        ErrorClass::NotFound => FailureCause::GuestGone,
        ErrorClass::NoSpace => FailureCause::DestinationFull,
        ErrorClass::PermissionDenied => FailureCause::DestinationWriteError,
        ErrorClass::Unavailable => FailureCause::LibvirtGone,
        _ => FailureCause::DestinationWriteError,
    };
    let side = match cause {
        FailureCause::GuestGone => Side::Guest,
        FailureCause::LibvirtGone => Side::Host,
        _ => Side::Destination,
    };
    let mut text = error.to_string();
    if error.class == ErrorClass::PermissionDenied
        && let Some(confinement) = confinement(owner).await
    {
        text = format!("{text}; {confinement}");
    }
    Stop::Failed(Failure::new(cause, side, text))
}

/// What may forbid QEMU a file that its user may open.
async fn confinement(owner: &Owner) -> Option<&'static str> {
    let VolumeLocation::File { path } = &owner.plan.destination else { return None };
    let seen = owner.context.ports.files.access(path.parent()?, None).await;
    // Only a hint is lost when that cannot be read.
    seen.ok()?.confinement
}

fn other_job(owner: &Owner) -> Stop {
    Stop::Failed(Failure::new(
        FailureCause::VolumeInUse,
        Side::Source,
        format!("another block job began on disk {} meanwhile", owner.plan.target),
    ))
}

/// The failure of a guest that stopped.
pub fn guest_gone(when: &str) -> Failure {
    Failure::new(FailureCause::GuestGone, Side::Guest, format!("the guest stopped {when}"))
}

/// The failure of a disk that somebody unplugged.
pub fn unplugged(owner: &Owner) -> Failure {
    let text = format!("somebody unplugged disk {} from the running guest", owner.plan.target);
    Failure::new(FailureCause::JobStolen, Side::Host, text)
}

/// Right before the job starts: QEMU must still use the source, or the copy would mirror another image.
async fn check_qemu_view(owner: &mut Owner) -> Result<(), Stop> {
    let mut patience = Patience::new(owner);
    loop {
        let error = match qemu_uses(owner).await {
            Ok(Used::Source) => match same_run(owner).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(Stop::Failed(guest_gone("and was started again"))),
                Err(error) => error,
            },
            Ok(Used::Gone) => return Err(Stop::Failed(guest_gone("before the copy began"))),
            Ok(Used::Lost) => {
                let text = lost(&owner.plan);
                return Err(Stop::Failed(Failure::new(
                    FailureCause::LibvirtGone,
                    Side::Host,
                    text,
                )));
            }
            Ok(Used::NoDevice) => return Err(Stop::Failed(unplugged(owner))),
            Ok(Used::Destination) | Ok(Used::Other) => {
                return Err(Stop::Failed(Failure::new(
                    FailureCause::VolumeInUse,
                    Side::Source,
                    format!(
                        "QEMU no longer uses {} for disk {}",
                        owner.plan.source, owner.plan.target
                    ),
                )));
            }
            Err(error) => error,
        };
        owner.say(Some(format!("asking QEMU what it uses: {}", error.message)));
        if !patience.wait(owner, error.class).await? {
            return Err(start_failed(owner, &error).await);
        }
    }
}

/// Reads the live XML, waiting as long as libvirt is away.
pub async fn look(owner: &mut Owner) -> Result<Seen, Stop> {
    let mut patience = Patience::new(owner);
    loop {
        match see(owner).await {
            Ok(seen) => return Ok(seen),
            Err(error) => owner.say(Some(format!("waiting for libvirt: {}", error.message))),
        }
        patience.wait(owner, ErrorClass::Unavailable).await?;
    }
}

/// Whether the guest still runs in the QEMU it had when the plan was made.
pub async fn same_run(owner: &Owner) -> Result<bool, PortError> {
    is_same_run(&owner.context.ports, &owner.plan).await
}

/// The same for an operation without an owner.
pub async fn is_same_run(ports: &Ports, plan: &Plan) -> Result<bool, PortError> {
    match ports.domains.run_of(&plan.domain).await {
        Ok(run) => Ok(run == plan.domain_run),
        Err(error) if error.class == ErrorClass::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads the live XML once.
pub async fn see(owner: &Owner) -> Result<Seen, PortError> {
    let reference = owner.plan.domain.clone().into();
    let domain = match owner.context.ports.domains.observe(&reference).await {
        Ok(domain) => domain,
        Err(error) if error.class == ErrorClass::NotFound => return Ok(Seen::Gone),
        Err(error) => return Err(error),
    };
    if matches!(domain.state, DomainState::ShutOff | DomainState::Crashed) {
        return Ok(Seen::Gone);
    }
    let malformed = |error: &dyn std::fmt::Display| {
        PortError::new(ErrorClass::Other, "read the live XML", error)
    };
    let xml = DomainXml::parse(&domain.live_xml).map_err(|error| malformed(&error))?;
    let Ok(disk) = xml.find_disk(owner.plan.target.as_str()) else { return Ok(Seen::NoDisk) };
    Ok(match &disk.mirror {
        None => Seen::NoJob,
        Some(mirror) => {
            let ours = mirror.job.as_deref() == Some("copy")
                && Named::of(&mirror.source)
                    .is_some_and(|image| is_volume(&image, &owner.plan.destination));
            match ours {
                true => Seen::OurCopy { ready: mirror.ready.as_deref() == Some("yes") },
                false => Seen::OtherJob,
            }
        }
    })
}

/// Whether an image of the XML is this volume, in the same cluster as far as can be told.
pub fn is_volume(image: &Named, volume: &VolumeLocation) -> bool {
    Named::of_volume(volume).is_some_and(|volume| image.may_be(&volume))
}

/// Whether a disk's source is this volume.
pub fn disk_is_on(disk: &Disk, volume: &VolumeLocation) -> bool {
    Named::of(&disk.source).is_some_and(|image| is_volume(&image, volume))
}

/// Ends the job without a pivot, waits until it is really gone, and makes sure that the source is the current volume.
pub async fn undo(owner: &mut Owner) -> Result<(), UndoError> {
    let (domain, target) = (owner.plan.domain.clone(), owner.plan.target.clone());
    let mut asking = Asking::new(&owner.context);
    loop {
        let trouble = match see(owner).await {
            Ok(Seen::OurCopy { .. }) => {
                match owner.context.ports.jobs.abort(&domain, &target).await {
                    // Looked at again: only a disk without a job is one whose copy may be removed.
                    Ok(()) => continue,
                    Err(error) => match stalled(owner).await {
                        Some(why) => format!("{} ({why})", error.message),
                        None => error.message,
                    },
                }
            }
            Ok(Seen::NoJob | Seen::OtherJob | Seen::NoDisk | Seen::Gone) => {
                match current(owner).await {
                    Ok(Current::Source) => return Ok(()),
                    Ok(Current::Destination(proof)) => {
                        return Err(UndoError::NotTheSource(format!(
                            "disk {target} is on {} ({})",
                            owner.plan.destination,
                            proof.as_str()
                        )));
                    }
                    Ok(Current::Unclear(why)) => return Err(UndoError::NotTheSource(why)),
                    Err(error) => error.message,
                }
            }
            Err(error) => error.message,
        };
        owner.say(Some(format!("ending the block job: {trouble}")));
        asking.wait().await;
    }
}
