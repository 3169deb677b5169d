//! Waits until the copy is in step with the source: the READY event, or `ready='yes'` in the live XML where the
//! event was lost. Equal numbers are never taken for READY.

pub(in crate::engine::steps) mod space;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, MissedTickBehavior};

use space::{SpaceWatch, StallWatch};

use super::current::{Current, current};
use super::start_copy::{Seen, guest_gone, see, unplugged};
use crate::engine::backoff::Asking;
use crate::engine::begin::sleep_until;
use crate::engine::owner::{Owner, Stop};
use crate::journal::{StepOutcome, What};
use crate::operation::progress::{next_look, outrun_hint};
use crate::operation::space::still_needed;
use crate::operation::{Event, Failure, FailureCause, Progress, RateMeter, Side, State};
use crate::plan::{Step, StepKind};
use crate::ports::{EventKind, JobEnd, JobInfo, PortError, TimedEvent};

const STEP: StepKind = StepKind::AwaitReady;

/// So long a guest may outrun its copy before that is said: bursts pass.
const OUTRUN: Duration = Duration::from_secs(10);

type Look = Pin<Box<dyn Future<Output = Result<Option<JobInfo>, PortError>> + Send>>;

/// Waits for READY, then, if asked for, for the word to pivot.
pub async fn run(
    owner: &mut Owner,
    deadline: Option<Duration>,
    manual_pivot: bool,
) -> Result<(), Stop> {
    let mut wait = Wait::new(owner, deadline);
    if owner.view.state == State::Copying {
        wait.until_ready(owner).await?;
        if owner.memory.proof.is_some() {
            return Ok(());
        }
        // With a pivot at once, READY and the intent to pivot are written down together, in one flush.
        if manual_pivot && !owner.memory.pivot_wished {
            owner.view.waits_for_pivot = true;
            owner.advance(Event::CopyReady, vec![]).await?;
        }
    }
    if manual_pivot && !owner.memory.pivot_wished {
        owner.memory.ready_at = None;
        wait.until_wished(owner).await?;
        if owner.memory.proof.is_some() {
            return Ok(());
        }
        owner.view.waits_for_pivot = false;
        owner.memory.pivot_wished = true;
        let outcome = StepOutcome::Nothing;
        owner.remember_done(STEP, &outcome);
        owner
            .note(vec![What::Done { step: STEP, outcome }])
            .await
            .map_err(|error| Stop::Failed(crate::engine::owner::internal(&error)))?;
    }
    Ok(())
}

/// Waits once more after QEMU refused a pivot as not ready.
pub async fn again(owner: &mut Owner) -> Result<(), Stop> {
    owner.memory.ready_at = None;
    let deadline = owner.plan.steps.iter().find_map(|step| match step {
        Step::AwaitReady { deadline, .. } => *deadline,
        _ => None,
    });
    let mut wait = Wait::new(owner, deadline);
    wait.state.reset_immediately();
    wait.until_ready(owner).await
}

/// One wait, with everything that may end it.
struct Wait {
    deadline: Option<Instant>,
    began: Instant,
    meter: RateMeter,
    look: Option<Look>,
    /// When the job is looked at next.
    look_at: Instant,
    /// Until then nothing is asked about the domain: READY is near, and a call would be in the way of the pivot.
    quiet_until: Instant,
    state: tokio::time::Interval,
    space: SpaceWatch,
    stall: StallWatch,
}

impl Wait {
    fn new(owner: &Owner, deadline: Option<Duration>) -> Self {
        // The first look at the state is at once only where READY may have come and gone unseen.
        let every = |period, at_once: bool| {
            let first = if at_once { Instant::now() } else { Instant::now() + period };
            let mut interval = tokio::time::interval_at(first, period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        let tuning = owner.context.tuning;
        let now = Instant::now();
        Self {
            deadline: deadline.map(|deadline| owner.expires(deadline)),
            began: now,
            meter: RateMeter::default(),
            look: None,
            look_at: now,
            quiet_until: now,
            space: SpaceWatch::new(now, owner.context.host().limits.reserve),
            stall: StallWatch::new(now),
            state: every(tuning.state_period, owner.memory.resumed),
        }
    }

    /// Returns at READY, or when the memory holds proof that somebody else pivoted.
    async fn until_ready(&mut self, owner: &mut Owner) -> Result<(), Stop> {
        while owner.memory.proof.is_none() {
            if let Some(event) = self.next(owner).await? {
                if ours(owner, &event) && event.event.kind == EventKind::JobReady {
                    owner.memory.ready_at = Some(event.at);
                    return Ok(());
                }
                self.check_end(owner, &event).await?;
            } else if self.read_state(owner).await? {
                owner.memory.ready_at = None;
                return Ok(());
            }
        }
        Ok(())
    }

    async fn until_wished(&mut self, owner: &mut Owner) -> Result<(), Stop> {
        while !owner.wishes.borrow().pivot && owner.memory.proof.is_none() {
            if let Some(event) = self.next(owner).await? {
                self.check_end(owner, &event).await?;
            } else {
                self.read_state(owner).await?;
            }
        }
        Ok(())
    }

    /// The next event; none when the state should be read. Progress, wishes and the deadline are dealt with here.
    async fn next(&mut self, owner: &mut Owner) -> Result<Option<TimedEvent>, Stop> {
        loop {
            apply_bandwidth(owner).await;
            owner.check_cancel()?;
            if owner.view.waits_for_pivot && owner.wishes.borrow().pivot {
                return Ok(None);
            }
            tokio::select! {
                biased;
                event = owner.events.recv() => match event {
                    Ok(event) => {
                        owner.memory.words.hear(&event, &owner.plan.domain, &owner.plan.target);
                        return Ok(Some(event));
                    }
                    // Events were lost, or none will come any more: only reading tells.
                    Err(RecvError::Lagged(_)) => {
                        owner.memory.words.miss();
                        return Ok(None);
                    }
                    Err(RecvError::Closed) => { self.state.tick().await; return Ok(None) }
                },
                changed = owner.wishes.changed() => if changed.is_err() {
                    // The registry is gone with the daemon; this task ends with it.
                    std::future::pending::<()>().await;
                },
                () = sleep_until(self.deadline) => return Err(self.deadline_passed(owner)),
                look = pending_look(&mut self.look) => {
                    self.look = None;
                    if let Some(event) = self.show(owner, look) { return Ok(event) }
                }
                room = self.space.next(&owner.context, &owner.plan) => self.space.judge(owner, room)?,
                _ = self.state.tick(), if Instant::now() >= self.quiet_until => return Ok(None),
                () = tokio::time::sleep_until(self.look_at), if self.look.is_none() => {
                    self.begin_look(owner);
                }
            }
        }
    }

    fn begin_look(&mut self, owner: &Owner) {
        let jobs = std::sync::Arc::clone(&owner.context.ports.jobs);
        let (domain, target) = (owner.plan.domain.clone(), owner.plan.target.clone());
        self.look = Some(Box::pin(async move { jobs.info(&domain, &target).await }));
    }

    /// Publishes progress; some(none) asks for a look at the state, for the job is gone.
    fn show(
        &mut self,
        owner: &mut Owner,
        look: Result<Option<JobInfo>, PortError>,
    ) -> Option<Option<TimedEvent>> {
        self.look_at = Instant::now() + owner.context.tuning.progress_period;
        match look {
            Ok(Some(info)) => {
                let ready = owner.view.state == State::Ready;
                let elapsed = self.began.elapsed();
                let progress = self.meter.look(elapsed, info.current, info.end, ready);
                self.leave_alone(owner, &progress);
                self.stall.look(&progress);
                let outrun = self.meter.outrun_for(elapsed).is_some_and(|time| time >= OUTRUN);
                let hint = outrun.then(|| outrun_hint(&progress, info.bandwidth.is_some()));
                if owner.view.state == State::Copying {
                    owner.place.needs(still_needed(&progress, owner.plan.source_allocated));
                }
                owner.look(progress);
                owner.view.bandwidth = info.bandwidth;
                let stall = self.stall.detail(owner, &self.space);
                owner.view.detail = stall.or_else(|| self.space.detail()).or(hint);
                owner.publish();
                None
            }
            Ok(None) => Some(None),
            Err(error) => {
                let stall = self.stall.detail(owner, &self.space);
                let text = format!("no progress to show: {}", error.message);
                owner.say(Some(stall.map_or(text.clone(), |stall| format!("{stall} ({text})"))));
                None
            }
        }
    }

    /// Decides when the job is looked at next.
    fn leave_alone(&mut self, owner: &Owner, progress: &Progress) {
        let (now, period) = (Instant::now(), owner.context.tuning.progress_period);
        let wait = next_look(progress, period);
        self.look_at = now + wait;
        self.quiet_until = if wait > period { self.look_at } else { now };
    }

    /// Reads the live XML; true when our copy is ready.
    async fn read_state(&mut self, owner: &mut Owner) -> Result<bool, Stop> {
        match see(owner).await {
            Ok(Seen::OurCopy { ready }) => Ok(ready),
            Ok(Seen::Gone) => {
                ended(owner, guest_gone("during the copy")).await?;
                Ok(false)
            }
            Ok(Seen::NoDisk) => {
                ended(owner, unplugged(owner)).await?;
                Ok(false)
            }
            Ok(Seen::OtherJob) => {
                let text = "another block job took the place of the copy";
                let stolen = Failure::new(FailureCause::JobStolen, Side::Host, text);
                ended(owner, stolen).await?;
                Ok(false)
            }
            Ok(Seen::NoJob) => {
                let why = self.why(owner).await;
                ended(owner, why).await?;
                Ok(false)
            }
            Err(error) => {
                owner.say(Some(format!("waiting for libvirt: {}", error.message)));
                Ok(false)
            }
        }
    }

    /// Ends the wait when the event says that the job or the guest ended.
    async fn check_end(&mut self, owner: &mut Owner, event: &TimedEvent) -> Result<(), Stop> {
        if event.event.domain.as_ref() != Some(&owner.plan.domain) {
            if event.event.kind == EventKind::ConnectionRestored {
                self.state.reset_immediately();
            }
            return Ok(());
        }
        match &event.event.kind {
            EventKind::DomainStopped { reason } => {
                ended(owner, guest_gone(&format!("during the copy ({reason})"))).await
            }
            EventKind::JobEnded(end) if ours(owner, event) => {
                let failure = match end {
                    JobEnd::Failed => self.why(owner).await,
                    JobEnd::Completed | JobEnd::Cancelled => Failure::new(
                        FailureCause::JobStolen,
                        Side::Host,
                        "the block job was ended by somebody else",
                    ),
                };
                ended(owner, failure).await
            }
            _ => Ok(()),
        }
    }

    fn deadline_passed(&self, owner: &Owner) -> Stop {
        if let Some(stall) = self.stall.detail(owner, &self.space) {
            let text = format!("the deadline passed: {stall}");
            let failure = Failure::new(FailureCause::PoolStalled, Side::Destination, text);
            return Stop::Failed(failure);
        }
        let text = if owner.view.waits_for_pivot {
            "the deadline passed while the word to pivot was waited for".to_owned()
        } else {
            format!("the deadline passed with {} still to copy", owner.view.progress.remaining)
        };
        Stop::Failed(Failure::new(FailureCause::Deadline, Side::Host, text))
    }

    /// The cause of a failed job: QEMU's own words, which may arrive a little later than libvirt's.
    async fn why(&mut self, owner: &mut Owner) -> Failure {
        let until = Instant::now() + owner.context.tuning.words_grace;
        while owner.memory.words.error.is_none() {
            match tokio::time::timeout_at(until, owner.events.recv()).await {
                Ok(Ok(event)) => {
                    owner.memory.words.hear(&event, &owner.plan.domain, &owner.plan.target);
                    if let EventKind::DomainStopped { reason } = event.event.kind
                        && event.event.domain.as_ref() == Some(&owner.plan.domain)
                    {
                        return guest_gone(&format!("during the copy ({reason})"));
                    }
                }
                Ok(Err(RecvError::Lagged(_))) => {}
                Ok(Err(RecvError::Closed)) | Err(_) => break,
            }
        }
        match see(owner).await {
            Ok(Seen::Gone) => guest_gone("during the copy"),
            Ok(Seen::NoDisk) => unplugged(owner),
            _ => owner.memory.words.failure(),
        }
    }
}

/// The job or the guest ended, and not by us: which volume is current now decides what that means.
///
/// Errors: the source is current, and the operation failed; or it cannot be told. Otherwise the memory holds proof
/// that somebody else pivoted.
async fn ended(owner: &mut Owner, failure: Failure) -> Result<(), Stop> {
    let mut asking = Asking::new(&owner.context);
    loop {
        let error = match current(owner).await {
            Ok(Current::Source) => return Err(Stop::Failed(failure)),
            Ok(Current::Destination(proof)) => {
                owner.memory.proof = Some(proof);
                return Ok(());
            }
            Ok(Current::Unclear(why)) => return Err(Stop::Undecided(unclear(failure, &why))),
            Err(error) => error,
        };
        owner.say(Some(format!("which volume is current is not known yet: {}", error.message)));
        owner.check_cancel()?;
        asking.wait().await;
    }
}

fn unclear(failure: Failure, why: &str) -> Failure {
    let text = format!(
        "{}, and which volume is the current one cannot be told: {why}; both are kept: compare their contents and \
         times of writing before starting the guest",
        failure.text
    );
    Failure { text, ..failure }
}

fn ours(owner: &Owner, event: &TimedEvent) -> bool {
    event.event.domain.as_ref() == Some(&owner.plan.domain)
        && event.event.target.as_ref() == Some(&owner.plan.target)
}

async fn pending_look(look: &mut Option<Look>) -> Result<Option<JobInfo>, PortError> {
    match look {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

/// Takes a new limit up; what libvirt does not take is said and tried no more.
async fn apply_bandwidth(owner: &mut Owner) {
    let wished = owner.wishes.borrow_and_update().bandwidth;
    let wished = wished.or(owner.memory.bandwidth_wished);
    let Some(limit) = wished.filter(|_| wished != owner.memory.bandwidth) else { return };
    owner.memory.bandwidth = wished;
    let (domain, target) = (owner.plan.domain.clone(), owner.plan.target.clone());
    match owner.context.ports.jobs.set_bandwidth(&domain, &target, limit).await {
        Ok(()) => {
            owner.view.bandwidth = limit;
            owner.publish();
        }
        Err(error) => owner.warn(format!("the limit was not changed: {error}")),
    }
}
