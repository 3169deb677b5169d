//! The way out of the queue: waits for the operation's turn, then looks at the world again, for a plan that waited
//! may be stale. Until the plan is written down as the one to follow, nothing has been changed.

use tokio::time::Instant;

use super::backoff::Patience;
use super::observe;
use super::owner::{Owner, Stop, internal};
use super::steps::secret_needed;
use super::turns;
use crate::operation::queue::Turn;
use crate::operation::{Event, Failure, FailureCause, Side};
use crate::plan::{Plan, Refusal, stale};
use crate::ports::ErrorClass;

/// Takes an operation from `queued` to `planned`.
pub async fn run(owner: &mut Owner) -> Result<(), Stop> {
    let (plan, passphrases) = (&owner.plan, &owner.memory.passphrases);
    if plan.destination_encryption.is_some() && passphrases.for_destination().is_none()
        || plan.source_encryption.is_some() && passphrases.source.is_none()
    {
        // Lost with an earlier life of the agent; waiting for a turn would not bring it back.
        return Err(secret_needed());
    }
    let waited = wait(owner).await?;
    if waited || owner.memory.resumed {
        // What was reported while it waited is about another time.
        owner.events = owner.events.resubscribe();
        let plan = plan_again(owner).await?;
        for warning in &plan.warnings {
            if !owner.view.warnings.contains(warning) {
                owner.view.warnings.push(warning.clone());
            }
        }
        owner.plan = plan;
        return owner.advance_with_plan(Event::PlanRecorded).await;
    }
    owner.advance(Event::PlanRecorded, vec![]).await
}

/// Waits for the turn; true when it did not come at once.
async fn wait(owner: &mut Owner) -> Result<bool, Stop> {
    let deadline = owner.plan.spec.deadline.map(|deadline| owner.expires(deadline));
    let mut waited = false;
    loop {
        let turn = owner.place.turn();
        if turn == Some(Turn::Runs) {
            owner.say(None);
            return Ok(waited);
        }
        owner.say(turns::detail(turn.as_ref(), &owner.view));
        owner.check_cancel()?;
        waited = true;
        tokio::select! {
            () = owner.place.changed() => {}
            changed = owner.wishes.changed() => if changed.is_err() {
                // The registry is gone with the daemon; this task ends with it.
                std::future::pending::<()>().await;
            },
            () = sleep_until(deadline) => return Err(Stop::Failed(Failure::new(
                FailureCause::Deadline,
                Side::Host,
                "the deadline passed while the operation waited for its turn",
            ))),
        }
    }
}

/// Waits until then, or for ever.
pub async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Looks again, as at the request.
///
/// Errors: the world no longer allows it, or it would move something else.
async fn plan_again(owner: &mut Owner) -> Result<Plan, Stop> {
    let mut patience = Patience::new(owner);
    let plan = loop {
        owner.check_cancel()?;
        let reference = owner.plan.domain.clone().into();
        let seen = owner.context.ports.domains.observe(&reference).await;
        if let Err(error) = seen
            && error.class == ErrorClass::Unavailable
        {
            owner.say(Some(format!("waiting for libvirt: {}", error.message)));
            patience.wait(owner, error.class).await?;
            continue;
        }
        let refusal = match look(owner).await {
            Ok(plan) => break plan,
            Err(refusal) => refusal,
        };
        if !stale::may_pass(&refusal) {
            return Err(Stop::Failed(stale::failure(&refusal)));
        }
        owner.say(Some(format!("looking at everything again: {}", refusal.message)));
        if !patience.wait(owner, ErrorClass::Busy).await? {
            return Err(Stop::Failed(stale::failure(&refusal)));
        }
    };
    stale::still_holds(&owner.plan, &plan).map_err(Stop::Failed)?;
    Ok(plan)
}

async fn look(owner: &Owner) -> Result<Plan, Refusal> {
    let context = &owner.context;
    let located = observe::locate_again(context, &owner.plan).await?;
    observe::plan(context, &owner.plan.spec, &owner.memory.passphrases, &located).await
}

impl Owner {
    /// Takes an edge and writes it down together with the plan to follow from there.
    async fn advance_with_plan(&mut self, event: Event) -> Result<(), Stop> {
        self.enter(event).map_err(Stop::Failed)?;
        self.note_plan(event).await.map_err(|error| Stop::Failed(internal(&error)))
    }
}
