//! Gives the moved disk the limits that were asked for, in the running guest and in its stored definition. Nothing
//! here fails the operation.
//!
//! Begun before: setting them twice does no harm.

use super::volumes::may_pass;
use crate::engine::backoff::Backoff;
use crate::engine::owner::Owner;
use crate::journal::{StepOutcome, What};
use crate::plan::StepKind;
use crate::spec::IoTune;

const STEP: StepKind = StepKind::SetIotune;

/// Sets the limits, for a bounded time; what libvirt does not take is a warning.
pub async fn run(owner: &mut Owner, tune: &IoTune) {
    owner.remember_intent(STEP);
    owner.note_anyway(vec![What::Intent { step: STEP }]).await;
    if let Err(reason) = set(owner, tune).await {
        let target = owner.plan.target.clone();
        owner.warn(format!("the limits {tune} of disk {target} were not set: {reason}"));
    }
    let outcome = StepOutcome::Nothing;
    owner.remember_done(STEP, &outcome);
    owner.note_anyway(vec![What::Done { step: STEP, outcome }]).await;
}

async fn set(owner: &mut Owner, tune: &IoTune) -> Result<(), String> {
    if let Some(reason) = &owner.memory.keep_reason {
        return Err(reason.clone());
    }
    let (domain, target) = (owner.plan.domain.clone(), owner.plan.target.clone());
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.busy_patience);
    loop {
        let domains = &owner.context.ports.domains;
        let error = match domains.set_iotune(&domain, &target, tune).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        owner.say(Some(format!("limiting the disk: {}", error.message)));
        if !may_pass(&error) || !backoff.wait().await {
            return Err(error.to_string());
        }
    }
}
