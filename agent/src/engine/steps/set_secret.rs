//! Sets the libvirt secret of the destination, before anything is made that needs it.
//!
//! Begun before: set again, with the same uuid and mark; it is the same secret. Without the passphrase, which is kept
//! in memory only, the operation ends here.

use super::{UndoError, begin_preparing, secret_needed};
use crate::engine::backoff::Backoff;
use crate::engine::leftovers;
use crate::engine::owner::{Owner, Stop};
use crate::engine::users::naming_secret;
use crate::journal::StepOutcome;
use crate::operation::{Failure, FailureCause, Side};
use crate::plan::{StepKind, encryption};
use crate::ports::{ErrorClass, NewSecret, PortError};
use crate::spec::Passphrase;

use super::volumes::may_pass;

const STEP: StepKind = StepKind::SetSecret;

/// Defines the secret, or sets the value of the one that is there.
pub async fn run(owner: &mut Owner, uuid: &str, usage: &str, reused: bool) -> Result<(), Stop> {
    let Some(passphrase) = owner.memory.passphrases.for_destination().cloned() else {
        return Err(secret_needed());
    };
    if reused {
        check_unused(owner, uuid).await?;
    }
    begin_preparing(owner, STEP).await?;
    let new = NewSecret {
        uuid: uuid.to_owned(),
        usage: usage.to_owned(),
        description: encryption::mark(owner.id()),
        ephemeral: false,
    };
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.busy_patience);
    loop {
        let error = match set(owner, &new, reused, &passphrase).await {
            Ok(()) => break,
            Err(error) => error,
        };
        owner.say(Some(format!("setting the destination's secret: {}", error.message)));
        owner.check_cancel()?;
        if !may_pass(&error) || !backoff.wait().await {
            return Err(failed(&error));
        }
    }
    owner.done(STEP, StepOutcome::Nothing).await
}

/// A domain may have come to name the secret since the plan was made, and would not start with another passphrase.
/// Not asked of a secret this operation has set before: that is done.
async fn check_unused(owner: &Owner, uuid: &str) -> Result<(), Stop> {
    if owner.was_intended(STEP) {
        return Ok(());
    }
    match naming_secret(&owner.context.ports, uuid).await {
        Ok(None) => Ok(()),
        Ok(Some(user)) => Err(Stop::Failed(Failure::new(
            FailureCause::VolumeInUse,
            Side::Destination,
            format!("domain {user} names the libvirt secret {uuid} of the destination by now"),
        ))),
        Err(error) => Err(failed(&error)),
    }
}

async fn set(
    owner: &Owner,
    new: &NewSecret,
    reused: bool,
    passphrase: &Passphrase,
) -> Result<(), PortError> {
    let secrets = &owner.context.ports.secrets;
    match reused {
        true => secrets.set(&new.uuid, passphrase).await,
        false => secrets.define(new, passphrase).await,
    }
}

fn failed(error: &PortError) -> Stop {
    let (cause, side) = match error.class {
        ErrorClass::Unavailable | ErrorClass::NoAnswer => (FailureCause::LibvirtGone, Side::Host),
        _ => (FailureCause::DestinationWriteError, Side::Destination),
    };
    Stop::Failed(Failure::new(cause, side, error.to_string()))
}

/// Removes the secret if it bears this operation's mark. One that was there before stays, with its new value.
pub async fn undo(owner: &mut Owner, uuid: &str) -> Result<(), UndoError> {
    let mark = encryption::mark(owner.id());
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        let secrets = owner.context.ports.secrets.clone();
        let removed = match secrets.look(uuid).await {
            Ok(Some(found)) if found.description.as_deref() == Some(mark.as_str()) => {
                secrets.undefine(uuid).await
            }
            Ok(_) => return Ok(()),
            Err(error) => Err(error),
        };
        let error = match removed {
            Ok(()) => return Ok(()),
            Err(error) if error.class == ErrorClass::NotFound => return Ok(()),
            Err(error) => error,
        };
        owner.say(Some(format!("removing the destination's secret: {}", error.message)));
        if !backoff.wait().await {
            owner.warn(format!(
                "the libvirt secret {uuid} of the destination could not be removed: {error}"
            ));
            let destination = owner.plan.destination.clone();
            leftovers::leave_secret(owner, destination, uuid, error.to_string());
            return Ok(());
        }
    }
}
