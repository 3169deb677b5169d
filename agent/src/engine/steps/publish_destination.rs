//! Gives the destination its final name, replacing nothing.
//!
//! Begun before: done when the final name has the recorded identity.

use super::volumes;
use crate::engine::backoff::Backoff;
use crate::engine::owner::{Owner, Stop};
use crate::journal::StepOutcome;
use crate::operation::{Failure, FailureCause, Side};
use crate::plan::StepKind;
use crate::ports::{ErrorClass, PortError};
use crate::spec::VolumeLocation;

const STEP: StepKind = StepKind::PublishDestination;

/// Renames and looks whether the right volume has the name.
pub async fn run(
    owner: &mut Owner,
    from: &VolumeLocation,
    to: &VolumeLocation,
) -> Result<(), Stop> {
    let begun_before = owner.was_intended(STEP);
    owner.intend(STEP).await?;
    let ports = owner.context.ports.clone();
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.busy_patience);
    let mut unsure = begun_before;
    loop {
        if unsure
            && volumes::identity(&ports, to).await.map_err(|error| failed(&error))?
                == owner.memory.created
        {
            break;
        }
        match volumes::rename(&ports, from, to).await {
            Ok(()) => break,
            // It may have happened all the same: look, and try again if it did not.
            Err(error) if error.class == ErrorClass::NoAnswer => {
                unsure = true;
                owner.say(Some(format!("naming the destination: {}", error.message)));
                owner.check_cancel()?;
                if !backoff.wait().await {
                    return Err(failed(&error));
                }
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    let found = volumes::identity(&ports, to).await.map_err(|error| failed(&error))?;
    if found.is_none() || found != owner.memory.created {
        let now = found.map_or("nothing".to_owned(), |identity| identity.to_string());
        return Err(Stop::Failed(Failure::new(
            FailureCause::DestinationReplaced,
            Side::Destination,
            format!("{to} was given to the destination just made and is now {now}"),
        )));
    }
    owner.done(STEP, StepOutcome::Nothing).await
}

fn failed(error: &PortError) -> Stop {
    let cause = match error.class {
        // Somebody took the name between the look at it and now; he keeps his volume.
        ErrorClass::Exists | ErrorClass::NotFound => FailureCause::DestinationReplaced,
        ErrorClass::NoSpace => FailureCause::DestinationFull,
        _ => FailureCause::DestinationWriteError,
    };
    Stop::Failed(Failure::new(cause, Side::Destination, error.to_string()))
}
