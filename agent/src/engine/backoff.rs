//! Waiting longer from try to try, up to a bound.

use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::begin::sleep_until;
use super::context::{Context, Tuning};
use super::owner::{Owner, Stop};
use crate::operation::{Failure, FailureCause, Side};
use crate::ports::{ErrorClass, EventKind, TimedEvent};

/// The waits between tries of one call.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// Tries for ever.
    pub fn unbounded(tuning: &Tuning) -> Self {
        Self { next: tuning.backoff.0, longest: tuning.backoff.1, until: None }
    }

    /// Gives up after `patience`.
    pub fn bounded(tuning: &Tuning, patience: Duration) -> Self {
        Self { until: Some(Instant::now() + patience), ..Self::unbounded(tuning) }
    }

    /// Waits; false when patience is at its end.
    pub async fn wait(&mut self) -> bool {
        if self.until.is_some_and(|until| Instant::now() + self.next > until) {
            return false;
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(self.longest);
        true
    }
}

/// The waits of a question that libvirt must answer, without a bound; asked at once when libvirt is back.
#[derive(Debug)]
pub struct Asking {
    tuning: Tuning,
    backoff: Backoff,
    events: broadcast::Receiver<TimedEvent>,
}

impl Asking {
    /// Begins before the first try, so that no return of libvirt is missed.
    pub fn new(context: &Context) -> Self {
        let tuning = context.tuning;
        let events = context.ports.events.subscribe();
        Self { tuning, backoff: Backoff::unbounded(&tuning), events }
    }

    /// Waits before the next try.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.backoff.wait() => {}
            () = restored(&mut self.events) => self.backoff = Backoff::unbounded(&self.tuning),
        }
    }
}

/// Ends when libvirt is back.
async fn restored(events: &mut broadcast::Receiver<TimedEvent>) {
    loop {
        match events.recv().await {
            Ok(event) if event.event.kind == EventKind::ConnectionRestored => return,
            // What was missed may have been that.
            Err(RecvError::Lagged(_)) => return,
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The waits of an operation that has not begun to copy: without a bound while libvirt is away, bounded while
/// something else is in the way. A cancel and the deadline end them.
#[derive(Debug)]
pub struct Patience {
    tuning: Tuning,
    backoff: Backoff,
    away: bool,
    deadline: Option<Instant>,
}

impl Patience {
    /// Patience that begins now.
    pub fn new(owner: &Owner) -> Self {
        let tuning = owner.context.tuning;
        let deadline = owner.plan.spec.deadline.map(|deadline| owner.expires(deadline));
        let backoff = Backoff::bounded(&tuning, tuning.busy_patience);
        Self { tuning, backoff, away: false, deadline }
    }

    /// Waits before the next try; false when patience with what is not libvirt's absence is at its end.
    ///
    /// Errors: a cancel, or the deadline.
    pub async fn wait(&mut self, owner: &mut Owner, class: ErrorClass) -> Result<bool, Stop> {
        let away = class == ErrorClass::Unavailable;
        if away != self.away {
            self.away = away;
            self.backoff = match away {
                true => Backoff::unbounded(&self.tuning),
                false => Backoff::bounded(&self.tuning, self.tuning.busy_patience),
            };
        }
        let deadline = self.deadline;
        loop {
            owner.check_cancel()?;
            tokio::select! {
                more = self.backoff.wait() => return Ok(more),
                changed = owner.wishes.changed() => if changed.is_err() {
                    // The registry is gone with the daemon; this task ends with it.
                    std::future::pending::<()>().await;
                },
                () = sleep_until(deadline) => return Err(passed(away)),
            }
        }
    }
}

fn passed(away: bool) -> Stop {
    Stop::Failed(match away {
        true => Failure::new(
            FailureCause::LibvirtGone,
            Side::Host,
            "the deadline passed while libvirt was away",
        ),
        false => Failure::new(
            FailureCause::Deadline,
            Side::Host,
            "the deadline passed before the copy could begin",
        ),
    })
}
