//! What the steps of an offline copy share: whether anybody uses the source, and the watch over work that takes long.

use std::future::Future;
use std::pin::Pin;

use tokio::sync::watch;
use tokio::time::Instant;

use super::await_ready::space::SpaceWatch;
use super::passphrases_lost;
use crate::engine::backoff::Backoff;
use crate::engine::begin::sleep_until;
use crate::engine::owner::{Owner, Stop};
use crate::engine::users::open_by;
use crate::operation::{Failure, FailureCause, Phase, RateMeter, Side};
use crate::plan::{Plan, PlannedCopy};
use crate::ports::{
    CopyError, CopySide, DomainState, ErrorClass, Image, ImageCopy, ImageKey, PortError, Ports,
};
use crate::spec::{Bytes, BytesPerSecond, HeaderKind, Passphrase};

/// Who uses the source, in words; none when nobody does. `ours` clients of ours are not counted.
pub async fn user_of_source(
    ports: &Ports,
    plan: &Plan,
    ours: usize,
) -> Result<Option<String>, PortError> {
    if !plan.domain.is_none() {
        match ports.domains.observe(&plan.domain.clone().into()).await {
            Ok(domain) if domain.state != DomainState::ShutOff => {
                return Ok(Some(format!("domain {} was started", domain.name)));
            }
            Ok(domain) if domain.managed_save => {
                return Ok(Some(format!("domain {} has a saved state now", domain.name)));
            }
            Ok(_) => {}
            // Nobody starts a domain that is not there; its definition is looked at before it is changed.
            Err(error) if error.class == ErrorClass::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let users = open_by(ports, &plan.source, ours).await?;
    Ok((!users.is_empty()).then(|| users.join(", ")))
}

/// The failure of a source that somebody uses.
pub fn in_use(plan: &Plan, user: &str) -> Failure {
    let text = format!("the source {} is in use: {user}", plan.source);
    Failure::new(FailureCause::VolumeInUse, Side::Source, text)
}

/// Makes sure that nobody uses the source. The watch of a client that was killed, ours too, lasts a while: after a
/// restart it is waited for.
pub async fn check_unused(owner: &mut Owner) -> Result<(), Stop> {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        owner.check_cancel()?;
        let (failure, why) = match user_of_source(&owner.context.ports, &owner.plan, 0).await {
            Ok(None) => return Ok(()),
            Ok(Some(user)) if !owner.memory.resumed => {
                return Err(Stop::Failed(in_use(&owner.plan, &user)));
            }
            Ok(Some(user)) => (in_use(&owner.plan, &user), user),
            Err(error) => (cannot_tell(&error), error.message),
        };
        owner.say(Some(format!("whether the source is in use: {why}")));
        if !backoff.wait().await {
            return Err(Stop::Failed(failure));
        }
    }
}

/// Whether the source is in use is not known, so nothing is done.
pub fn cannot_tell(error: &PortError) -> Failure {
    let text = format!("whether the source is in use cannot be told: {error}");
    let cause = match error.class {
        ErrorClass::Unavailable => FailureCause::LibvirtGone,
        _ => FailureCause::VolumeInUse,
    };
    Failure::new(cause, Side::Source, text)
}

/// The copy as the port takes it.
///
/// Errors: a side is encrypted, and its passphrase went with an earlier life of the agent.
pub fn request(
    owner: &Owner,
    copy: &PlannedCopy,
    bandwidth: Option<BytesPerSecond>,
) -> Result<ImageCopy, Stop> {
    let passphrases = &owner.memory.passphrases;
    let from = key(copy.from_header, passphrases.source.as_ref())?;
    let to = key(copy.to_header, passphrases.for_destination())?;
    Ok(ImageCopy {
        operation: owner.id().clone(),
        from: Image { location: copy.from.clone(), format: copy.from_format, key: from },
        to: Image { location: copy.to.clone(), format: copy.to_format, key: to },
        size: owner.plan.size,
        bandwidth,
    })
}

fn key(
    header: Option<HeaderKind>,
    passphrase: Option<&Passphrase>,
) -> Result<Option<ImageKey>, Stop> {
    let Some(header) = header else { return Ok(None) };
    let passphrase = passphrase.cloned().ok_or_else(passphrases_lost)?;
    Ok(Some(ImageKey { header, passphrase }))
}

type Asking = Pin<Box<dyn Future<Output = Result<Option<String>, PortError>> + Send>>;

/// Watches over work on both images: shows its progress, and gives it up for a cancel, the deadline, a user of the
/// source that appears, or a pool that becomes full. Work that is given up ends with its future.
pub async fn supervise<T>(
    owner: &mut Owner,
    phase: Phase,
    mut done: watch::Receiver<Bytes>,
    work: impl Future<Output = Result<T, CopyError>>,
) -> Result<T, Stop> {
    tokio::pin!(work);
    let began = Instant::now();
    let period = owner.context.tuning.progress_period;
    let deadline = owner.plan.spec.deadline.map(|deadline| owner.expires(deadline));
    let mut meter = RateMeter::default();
    let mut space = SpaceWatch::new(began, owner.context.host().limits.reserve);
    let mut asking: Option<Asking> = None;
    let mut ask_at = began + period;
    let mut show_at = began;
    loop {
        owner.check_cancel()?;
        tokio::select! {
            biased;
            result = &mut work => return match result {
                Ok(value) => Ok(value),
                Err(error) => Err(Stop::Failed(failed(owner, &error).await)),
            },
            changed = owner.wishes.changed() => if changed.is_err() {
                // The registry is gone with the daemon; this task ends with it.
                std::future::pending::<()>().await;
            },
            () = sleep_until(deadline) => return Err(Stop::Failed(deadline_passed(owner))),
            found = pending(&mut asking) => {
                asking = None;
                ask_at = Instant::now() + period;
                match found {
                    Ok(Some(user)) => return Err(Stop::Failed(in_use(&owner.plan, &user))),
                    Ok(None) => owner.say(space.detail()),
                    Err(error) => owner.say(Some(format!("looking for users: {}", error.message))),
                }
            }
            room = space.next(&owner.context, &owner.plan), if phase == Phase::Copying => {
                space.judge(owner, room)?;
            }
            () = tokio::time::sleep_until(show_at) => {
                show_at = Instant::now() + period;
                let (copied, total) = (*done.borrow_and_update(), owner.plan.size);
                let mut progress = meter.look(began.elapsed(), copied, total, false);
                progress.phase = phase;
                owner.look(progress);
                owner.publish();
            }
            () = tokio::time::sleep_until(ask_at), if asking.is_none() => {
                let (ports, plan) = (owner.context.ports.clone(), owner.plan.clone());
                // One client is the process that reads the source for us.
                asking = Some(Box::pin(async move { user_of_source(&ports, &plan, 1).await }));
            }
        }
    }
}

async fn pending(asking: &mut Option<Asking>) -> Result<Option<String>, PortError> {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn deadline_passed(owner: &Owner) -> Failure {
    let text = format!("the deadline passed with {} still to do", owner.view.progress.remaining);
    Failure::new(FailureCause::Deadline, Side::Host, text)
}

/// Why the work ended: a user of the source that appeared explains more than the error it led to.
/// The failure of work on both images.
pub async fn failed(owner: &Owner, error: &CopyError) -> Failure {
    if let Ok(Some(user)) = user_of_source(&owner.context.ports, &owner.plan, 1).await {
        return in_use(&owner.plan, &user);
    }
    let (cause, side) = match (error.error.class, error.side) {
        (ErrorClass::NoSpace, _) => (FailureCause::DestinationFull, Side::Destination),
        (ErrorClass::WrongPassphrase, CopySide::Source) => {
            (FailureCause::SecretNeeded, Side::Source)
        }
        (ErrorClass::WrongPassphrase, _) => (FailureCause::SecretNeeded, Side::Destination),
        (_, CopySide::Source) => (FailureCause::SourceReadError, Side::Source),
        (_, CopySide::Destination) => (FailureCause::DestinationWriteError, Side::Destination),
        (_, CopySide::Unknown) => (FailureCause::JobLost, Side::Host),
    };
    Failure::new(cause, side, error.error.to_string())
}
