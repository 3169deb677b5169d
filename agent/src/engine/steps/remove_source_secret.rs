//! Removes the libvirt secret of a source that is gone, unless a disk of this host still names it. What cannot be
//! removed is said.
//!
//! Begun before: a secret that is not there was removed.

use crate::engine::backoff::Backoff;
use crate::engine::leftovers;
use crate::engine::owner::Owner;
use crate::engine::users::naming_secret;
use crate::journal::{StepOutcome, What};
use crate::operation::SourceFate;
use crate::plan::StepKind;
use crate::ports::{ErrorClass, PortError, Ports};

const STEP: StepKind = StepKind::RemoveSourceSecret;

/// Removes it if nothing needs it any more.
pub async fn run(owner: &mut Owner, uuid: &str) {
    match owner.view.result.as_ref().map(|result| &result.source) {
        Some(SourceFate::Removed) => {}
        Some(SourceFate::AlreadyGone) => {
            // Gone from its names: perhaps somebody keeps it under another, and a secret cannot be read back.
            stays(owner, uuid, "the source went by another hand".to_owned());
            return;
        }
        // Whoever opens what was kept needs it; it goes when that is removed.
        _ => return,
    }
    owner.remember_intent(STEP);
    owner.note_anyway(vec![What::Intent { step: STEP }]).await;
    if let Err(reason) = remove(owner, uuid).await {
        stays(owner, uuid, reason);
    }
    let outcome = StepOutcome::Nothing;
    owner.remember_done(STEP, &outcome);
    owner.note_anyway(vec![What::Done { step: STEP, outcome }]).await;
}

fn stays(owner: &mut Owner, uuid: &str, reason: String) {
    owner.warn(format!("the libvirt secret {uuid} of the source stays: {reason}"));
    let source = owner.plan.source.clone();
    leftovers::leave_secret(owner, source, uuid, reason);
}

async fn remove(owner: &mut Owner, uuid: &str) -> Result<(), String> {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        let error = match unless_used(&owner.context.ports, uuid).await {
            Ok(None) => return Ok(()),
            Ok(Some(user)) => return Err(format!("domain {user} uses it")),
            Err(error) if error.class == ErrorClass::NotFound => return Ok(()),
            Err(error) => error,
        };
        owner.say(Some(format!("removing the source's secret: {}", error.message)));
        if !backoff.wait().await {
            return Err(error.to_string());
        }
    }
}

/// The domain that uses it, else none once it is removed.
pub async fn unless_used(ports: &Ports, uuid: &str) -> Result<Option<String>, PortError> {
    match naming_secret(ports, uuid).await? {
        Some(user) => Ok(Some(user)),
        None => ports.secrets.undefine(uuid).await.map(|()| None),
    }
}
