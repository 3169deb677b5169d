//! Points the stored definition at the destination, which is the whole switch of a volume that nobody uses; a volume
//! that belongs to no domain has moved when its copy has its name.
//!
//! A domain can be started at any moment. One that started before the definition was changed runs on the source: the
//! change is then taken back. One that started after it runs on the destination, and the volume has moved.
//!
//! Begun before: the stored definition says how far it came.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;
use tokio::time::Instant;
use volferry_xml::DomainXml;

use super::offline::{cannot_tell, check_unused, failed, in_use, request, user_of_source};
use super::start_copy::{disk_is_on, is_volume};
use super::volumes::{self, may_pass};
use super::{UndoError, verify_move};
use crate::engine::backoff::Backoff;
use crate::engine::begin::sleep_until;
use crate::engine::owner::{Owner, Stop, internal};
use crate::engine::users::other_user;
use crate::journal::{Proof, StepOutcome, What};
use crate::operation::{Event, Failure, FailureCause, Kept, Side, State};
use crate::plan::source::Named;
use crate::plan::{PlannedCopy, StepKind, lone_volume};
use crate::ports::{Comparison, DomainObservation, DomainState, ErrorClass, ImageCopy, PortError};
use crate::spec::{Bytes, Passphrases, VolumeLocation};

const STEP: StepKind = StepKind::Switch;

/// What the stored definition says of our disk.
enum Stored {
    Source,
    Destination,
    /// Neither, or there is no such domain, definition or disk any more; in words.
    Lost(String),
}

/// Switches.
pub async fn run(owner: &mut Owner, manual_pivot: bool, definition: bool) -> Result<(), Stop> {
    if owner.view.state != State::Pivoting {
        let mut unseen = owner.memory.resumed || was_held_up(owner);
        if owner.memory.resumed {
            // What cannot be compared any more ends here, and waits for nobody's word.
            comparison(owner)?;
        }
        if manual_pivot && !owner.memory.pivot_wished {
            wait_for_word(owner).await?;
            unseen = true;
        }
        check(owner).await?;
        if unseen {
            compare_again(owner).await?;
            check(owner).await?;
        }
        intend(owner).await?;
    } else if owner.memory.resumed && !definition {
        compare_again(owner).await?;
    }
    let proof = match definition {
        true => redefine(owner).await?,
        false => Proof::DestinationNamed,
    };
    owner.memory.proof = Some(proof);
    owner.memory.passphrases = Passphrases::default();
    let outcome = StepOutcome::Nothing;
    owner.remember_done(STEP, &outcome);
    let what = vec![What::Proved { proof }, What::Done { step: STEP, outcome }];
    owner.advance_anyway(Event::PivotProved, what).await;
    Ok(())
}

/// Longer than anything takes from the comparison to the switch where nothing is slow.
const HELD_UP: Duration = Duration::from_secs(2);

/// Whether something (a disk, a cluster, this host itself) kept the agent from going on at once, so that time passed in
/// which somebody could come, write to the source, and go again.
pub fn was_held_up(owner: &Owner) -> bool {
    owner.memory.equal_at.is_some_and(|equal| equal.elapsed() > HELD_UP)
}

/// Whether the source, which is called `source` by now, still holds what the destination does. `Err` says why not, or why
/// that cannot be told.
pub async fn still_equal(owner: &Owner, source: &VolumeLocation) -> Result<(), String> {
    let words = |stop| match stop {
        Stop::Failed(failure) => failure.to_string(),
        _ => "it was given up".to_owned(),
    };
    let request = comparison_of(owner, source).map_err(words)?;
    let (done, _progress) = watch::channel(Bytes(0));
    match owner.context.ports.copies.clone().compare(&request, &done).await {
        Ok(Comparison::Identical) => Ok(()),
        Ok(Comparison::Different(what)) => Err(format!("they differ: {what}")),
        Err(error) => Err(error.error.to_string()),
    }
}

/// The comparison of the source with its copy, under its final name.
///
/// Errors: the passphrases of an encrypted side are gone.
fn comparison(owner: &Owner) -> Result<ImageCopy, Stop> {
    comparison_of(owner, &owner.plan.source)
}

fn comparison_of(owner: &Owner, source: &VolumeLocation) -> Result<ImageCopy, Stop> {
    let plan = &owner.plan;
    let copy = PlannedCopy {
        from: source.clone(),
        from_format: plan.source_format,
        from_header: plan.source_encryption.as_ref().map(|source| source.header),
        to: plan.destination.clone(),
        to_format: plan.destination_format,
        to_header: plan.destination_encryption.as_ref().map(|planned| planned.scheme.header()),
    };
    request(owner, &copy, None)
}

/// Compares the source with its copy once more, also where a comparison was not asked for: time passed in which nobody
/// looked, and who wrote to the source meanwhile may be gone again.
async fn compare_again(owner: &mut Owner) -> Result<(), Stop> {
    let request = comparison(owner)?;
    owner.say(Some("comparing the source with its copy once more".to_owned()));
    let (done, _progress) = watch::channel(Bytes(0));
    let compared = owner.context.ports.copies.clone().compare(&request, &done).await;
    owner.say(None);
    match compared {
        Ok(Comparison::Identical) => {
            owner.memory.equal_at = Some(Instant::now());
            Ok(())
        }
        Ok(Comparison::Different(what)) => {
            let text = format!(
                "the source {} was written to after it was copied, the copy {} is older: {what}",
                owner.plan.source, owner.plan.destination
            );
            Err(Stop::Failed(Failure::new(FailureCause::VerifyMismatch, Side::Source, text)))
        }
        Err(error) => Err(Stop::Failed(failed(owner, &error).await)),
    }
}

/// Waits for the operator's word. Users that appear meanwhile are seen, at the latest before anything is changed.
async fn wait_for_word(owner: &mut Owner) -> Result<(), Stop> {
    if owner.view.state == State::Copying {
        owner.view.waits_for_pivot = true;
        owner.advance(Event::CopyReady, vec![]).await?;
    }
    owner.view.waits_for_pivot = true;
    owner.publish();
    let deadline = owner.plan.spec.deadline.map(|deadline| owner.expires(deadline));
    let period = owner.context.tuning.progress_period;
    while !owner.wishes.borrow_and_update().pivot {
        owner.check_cancel()?;
        tokio::select! {
            changed = owner.wishes.changed() => if changed.is_err() {
                // The registry is gone with the daemon; this task ends with it.
                std::future::pending::<()>().await;
            },
            () = tokio::time::sleep(period) => if !owner.memory.resumed {
                // A look that fails is made up for by the last one. After a restart it may be a watch of our own.
                let user = user_of_source(&owner.context.ports, &owner.plan, 0).await;
                if let Ok(Some(user)) = user {
                    return Err(Stop::Failed(in_use(&owner.plan, &user)));
                }
            },
            () = sleep_until(deadline) => return Err(Stop::Failed(Failure::new(
                FailureCause::Deadline,
                Side::Host,
                "the deadline passed while the word to switch was waited for",
            ))),
        }
    }
    owner.view.waits_for_pivot = false;
    owner.memory.pivot_wished = true;
    Ok(())
}

/// Everything that must still be so before the definition is changed.
async fn check(owner: &mut Owner) -> Result<(), Stop> {
    check_unused(owner).await?;
    let ports = owner.context.ports.clone();
    let failed = |error: PortError| Stop::Failed(cannot_tell(&error));
    let (source, destination) = (owner.plan.source.clone(), owner.plan.destination.clone());
    let is_it = |image: &Named| is_volume(image, &source);
    if let Some(other) =
        other_user(&ports, Some(&owner.plan.domain), is_it).await.map_err(failed)?
    {
        return Err(Stop::Failed(in_use(&owner.plan, &format!("domain {other} has it as a disk"))));
    }
    let found = volumes::identity(&ports, &source).await.map_err(failed)?;
    if found.as_ref() != Some(&owner.plan.source_identity) {
        let text = "it was replaced by another volume, or removed";
        return Err(Stop::Failed(in_use(&owner.plan, text)));
    }
    let found = volumes::identity(&ports, &destination).await.map_err(|error| {
        let text = format!("cannot look at the destination: {error}");
        Stop::Failed(Failure::new(FailureCause::DestinationWriteError, Side::Destination, text))
    })?;
    if found.is_none() || found != owner.memory.created {
        let now = found.map_or("nothing".to_owned(), |identity| identity.to_string());
        return Err(Stop::Failed(Failure::new(
            FailureCause::DestinationReplaced,
            Side::Destination,
            format!("under the name {destination} there is now {now} instead of the copy"),
        )));
    }
    owner.check_cancel()
}

/// Writes down that the copy is complete and the switch intended, in one flush.
async fn intend(owner: &mut Owner) -> Result<(), Stop> {
    let mut more = Vec::new();
    if owner.view.state == State::Copying {
        owner.enter(Event::CopyReady).map_err(Stop::Failed)?;
        more.push(What::Transition { event: Event::CopyReady });
    }
    owner.enter(Event::PivotIntended).map_err(Stop::Failed)?;
    owner.remember_intent(STEP);
    more.push(What::Transition { event: Event::PivotIntended });
    more.push(What::Intent { step: STEP });
    owner.note(more).await.map_err(|error| Stop::Failed(internal(&error)))
}

/// Changes the definition, however often libvirt has to be asked, and looks afterwards whether nobody was quicker.
async fn redefine(owner: &mut Owner) -> Result<Proof, Stop> {
    let mut backoff = Backoff::unbounded(&owner.context.tuning);
    loop {
        let error = match step(owner).await {
            Ok(Some(result)) => return result,
            Ok(None) => continue,
            Err(error) => error,
        };
        owner.say(Some(format!("changing the stored definition: {}", error.message)));
        backoff.wait().await;
    }
}

/// One look, and the change that follows from it. None: look again.
///
/// Errors: libvirt or the storage cannot be asked at the moment.
async fn step(owner: &mut Owner) -> Result<Option<Result<Proof, Stop>>, PortError> {
    let domain = observe(owner).await?;
    match stored(owner, domain.as_ref()) {
        Stored::Destination => {
            let Some(domain) = domain else { return Ok(None) };
            settled(owner, &domain).await
        }
        Stored::Source => {
            if let Some(user) = user_of_source(&owner.context.ports, &owner.plan, 0).await? {
                return Ok(Some(Err(Stop::Failed(in_use(&owner.plan, &user)))));
            }
            if owner.memory.resumed && !owner.memory.redefining {
                if let Err(stop) = compare_again(owner).await {
                    return Ok(Some(Err(stop)));
                }
                owner.memory.redefining = true;
                return Ok(None);
            }
            owner.memory.redefining = true;
            match define(owner, Kept::Destination).await {
                Ok(()) => Ok(None),
                Err(error) if may_pass(&error) => Err(error),
                Err(error) => Ok(Some(Err(Stop::Failed(not_changed(&error))))),
            }
        }
        Stored::Lost(why) if may_have_been_redefined(owner) => {
            let failure = Failure::new(FailureCause::PivotFailed, Side::Guest, why);
            Ok(Some(Err(Stop::Undecided(failure))))
        }
        Stored::Lost(why) => {
            Ok(Some(Err(Stop::Failed(Failure::new(FailureCause::GuestGone, Side::Guest, why)))))
        }
    }
}

/// A definition that named the destination may have been in force: somebody may have used it, and what stands there now
/// may build on the destination.
fn may_have_been_redefined(owner: &Owner) -> bool {
    owner.memory.redefining || owner.memory.resumed && owner.was_intended(STEP)
}

fn not_changed(error: &PortError) -> Failure {
    let text = format!("the stored definition could not be changed: {error}");
    Failure::new(FailureCause::PivotFailed, Side::Host, text)
}

/// The definition names the destination. Whoever uses the source now began before that, unless he runs on the
/// destination already. None: look again.
async fn settled(
    owner: &mut Owner,
    domain: &DomainObservation,
) -> Result<Option<Result<Proof, Stop>>, PortError> {
    let proof = Proof::DefinitionNamesDestination;
    if domain.state != DomainState::ShutOff {
        return Ok(Some(match verify_move::xml_names(owner, &domain.live_xml) {
            true => Ok(proof),
            false => {
                let user = format!("domain {} was started on it", domain.name);
                Err(Stop::Failed(in_use(&owner.plan, &user)))
            }
        }));
    }
    let Some(user) = user_of_source(&owner.context.ports, &owner.plan, 0).await? else {
        return Ok(Some(Ok(proof)));
    };
    // It may have been started, on the destination, between the two looks.
    let still_off = observe(owner).await?.is_none_or(|now| now.state == DomainState::ShutOff);
    Ok(still_off.then(|| Err(Stop::Failed(in_use(&owner.plan, &user)))))
}

async fn observe(owner: &Owner) -> Result<Option<DomainObservation>, PortError> {
    match owner.context.ports.domains.observe(&owner.plan.domain.clone().into()).await {
        Ok(domain) => Ok(Some(domain)),
        Err(error) if error.class == ErrorClass::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn stored(owner: &Owner, domain: Option<&DomainObservation>) -> Stored {
    let plan = &owner.plan;
    let Some(xml) = domain.and_then(|domain| domain.inactive_xml.as_deref()) else {
        return Stored::Lost(format!("domain {} was undefined meanwhile", plan.domain_name));
    };
    if verify_move::xml_names(owner, xml) {
        return Stored::Destination;
    }
    let on_source = DomainXml::parse(xml).is_ok_and(|xml| {
        xml.find_disk(plan.target.as_str()).is_ok_and(|disk| disk_is_on(disk, &plan.source))
    });
    match on_source {
        true => Stored::Source,
        false => Stored::Lost(format!(
            "the stored definition of domain {} no longer names {} for disk {}",
            plan.domain_name, plan.source, plan.target
        )),
    }
}

/// Stores the definition with our disk on one of the two volumes, and with what opens it. Errors say nothing of the
/// text, for it may hold passwords.
async fn define(owner: &Owner, on: Kept) -> Result<(), PortError> {
    let plan = &owner.plan;
    let (volume, format) = match on {
        Kept::Source => (&plan.source, plan.source_format),
        Kept::Destination => (&plan.destination, plan.destination_format),
    };
    let other =
        |text: String| PortError::new(ErrorClass::Other, "edit the stored definition", text);
    let domains = &owner.context.ports.domains;
    let text = domains.definition(&plan.domain).await?;
    let text = text.ok_or_else(|| other("there is none any more".to_owned()))?;
    let source = lone_volume::source(volume).map_err(other)?;
    let encryption = verify_move::encryption_of(plan, on).map_err(other)?;
    let edited: Option<SecretString> =
        DomainXml::parse(text.expose_secret()).ok().and_then(|xml| {
            let format = lone_volume::xml_format(format);
            let target = plan.target.as_str();
            xml.with_disk_volume_replaced(target, &source, format, encryption.as_ref())
                .ok()
                .map(Into::into)
        });
    let edited = edited.ok_or_else(|| other("it is not understood".to_owned()))?;
    domains.define(&plan.domain, edited.expose_secret()).await
}

/// Points the definition back at the source, if it was changed.
pub async fn undo(owner: &mut Owner, definition: bool) -> Result<(), UndoError> {
    if !definition {
        return Ok(());
    }
    let mut backoff = Backoff::unbounded(&owner.context.tuning);
    loop {
        let error = match observe(owner).await {
            Ok(domain) => match stored(owner, domain.as_ref()) {
                Stored::Lost(why) if may_have_been_redefined(owner) => {
                    return Err(UndoError::NotTheSource(why));
                }
                Stored::Source | Stored::Lost(_) => return Ok(()),
                Stored::Destination => {
                    if let Some(domain) = domain.filter(|one| one.state != DomainState::ShutOff)
                        && verify_move::xml_names(owner, &domain.live_xml)
                    {
                        let text = format!("domain {} was started on it", domain.name);
                        return Err(UndoError::NotTheSource(text));
                    }
                    match define(owner, Kept::Source).await {
                        // Looked at again: only a definition that names the source lets the copy go.
                        Ok(()) => continue,
                        Err(error) if may_pass(&error) => error,
                        Err(error) => {
                            return Err(UndoError::NotTheSource(format!(
                                "the stored definition names it and could not be changed back: {error}"
                            )));
                        }
                    }
                }
            },
            Err(error) => error,
        };
        owner.say(Some(format!("changing the stored definition back: {}", error.message)));
        backoff.wait().await;
    }
}
