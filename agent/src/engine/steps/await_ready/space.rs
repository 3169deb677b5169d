//! Watches the room in the destination pool beside a running copy. The question goes to the pool and never to the
//! domain, so that it is not in the way of a pivot; an answer that never comes changes nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::context::Context;
use crate::engine::owner::{Owner, Stop};
use crate::operation::space::{Room, is_full, little_room, room, still_needed};
use crate::operation::{Failure, FailureCause, Phase, Progress, Side, State};
use crate::plan::Plan;
use crate::ports::{ErrorClass, FolderObservation, PortError, RbdPoolSpace};
use crate::spec::span::humane;
use crate::spec::{Bytes, Reserve, VolumeLocation};

/// How long a pool is asked why a job cannot be ended.
const SOON: Duration = Duration::from_secs(2);
/// A copy that moves nothing for so long stands still: a chunk at a low limit takes less.
const STILL: Duration = Duration::from_secs(10);
/// After so many questions without an answer that is said.
const SILENT: u32 = 3;

/// What was seen of the pool.
pub(in crate::engine::steps) enum Seen {
    Ceph(RbdPoolSpace),
    Folder(FolderObservation),
}

pub(in crate::engine::steps) type Answer = Result<Seen, PortError>;
type Asking = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The watch over one destination.
pub(in crate::engine::steps) struct SpaceWatch {
    asking: Option<Asking>,
    /// When to ask next.
    due: Instant,
    unanswered: u32,
    problem: Option<String>,
    warned: bool,
    /// What stays free, as it was said when the copy began: no reload ends a copy.
    reserve: Reserve,
}

impl SpaceWatch {
    /// A watch that asks first at `due`.
    pub(in crate::engine::steps) fn new(due: Instant, reserve: Reserve) -> Self {
        Self { asking: None, due, unanswered: 0, problem: None, warned: false, reserve }
    }

    /// Asks when it is time, and waits for the answer. A question stays open when the wait is given up.
    pub(in crate::engine::steps) async fn next(
        &mut self,
        context: &Context,
        plan: &Plan,
    ) -> Answer {
        if self.asking.is_none() {
            tokio::time::sleep_until(self.due).await;
            self.due = Instant::now() + context.tuning.space_period;
        }
        let asking = self.asking.get_or_insert_with(|| ask(context, &plan.destination));
        let answer = asking.await;
        self.asking = None;
        answer
    }

    /// Judges what was seen.
    ///
    /// Errors: the copy does not fit; it must be ended while it still can be.
    pub(in crate::engine::steps) fn judge(
        &mut self,
        owner: &mut Owner,
        answer: Answer,
    ) -> Result<(), Stop> {
        let pool = owner.plan.destination_pool.clone();
        let reserve = self.reserve;
        let seen = match answer {
            Ok(seen) => seen,
            Err(error) => {
                self.unanswered += 1;
                // Whoever gave no answer for a whole call is silent.
                if error.class == ErrorClass::NoAnswer {
                    self.unanswered = self.unanswered.max(SILENT);
                }
                if self.unanswered >= SILENT {
                    let text = format!("the room in pool {pool} cannot be read: {}", error.message);
                    self.problem = Some(text);
                }
                return Ok(());
            }
        };
        (self.unanswered, self.problem) = (0, None);
        let flattening = owner.view.progress.phase == Phase::Flattening;
        let own = match owner.view.state {
            State::Copying => still_needed(&owner.view.progress, owner.plan.source_allocated),
            _ if flattening => still_needed(&owner.view.progress, owner.plan.source_allocated),
            // In step: only what the guest writes goes there.
            _ => Bytes(0),
        };
        // Who came first copies on: of two that do not fit together the later one ends.
        let turns = &owner.context.turns;
        let others = turns.needed_by_earlier(owner.id(), &owner.plan.destination);
        let needed = Bytes(own.0.saturating_add(others.0));
        match seen {
            Seen::Ceph(space) => match room(&pool, &space, &reserve, needed) {
                Room::Short(text) => {
                    return Err(Stop::Failed(Failure::new(
                        FailureCause::DestinationFull,
                        Side::Destination,
                        text,
                    )));
                }
                Room::Unknown => owner.warn(format!(
                    "the Ceph user of pool {pool} may not ask how much room there is: should the pool become \
                     full, the copy hangs"
                )),
                Room::Enough => {}
            },
            Seen::Folder(folder) => {
                // Once: the numbers change with every look.
                if !self.warned
                    && let Some(text) = little_room(&pool, &folder, &reserve, needed)
                {
                    self.warned = true;
                    owner.warn(text);
                }
            }
        }
        Ok(())
    }

    /// Whether the pool has not answered for a while.
    pub(super) fn silent(&self) -> bool {
        self.unanswered >= SILENT
    }

    /// What is wrong with the watch.
    pub(in crate::engine::steps) fn detail(&self) -> Option<String> {
        self.problem.clone()
    }
}

fn ask(context: &Context, destination: &VolumeLocation) -> Asking {
    match destination.clone() {
        VolumeLocation::Rbd { address, .. } => {
            let images = Arc::clone(&context.ports.images);
            Box::pin(async move { images.space(&address).await.map(Seen::Ceph) })
        }
        VolumeLocation::File { path } => {
            let files = Arc::clone(&context.ports.files);
            let folder = path.parent().unwrap_or(&path).to_owned();
            Box::pin(async move { files.folder(&folder).await.map(Seen::Folder) })
        }
    }
}

/// Why a job cannot be ended: its pool takes no writes, or does not answer. None when that is not so.
pub(in crate::engine::steps) async fn stalled(owner: &Owner) -> Option<String> {
    let pool = &owner.plan.destination_pool;
    let why = match tokio::time::timeout(SOON, ask(&owner.context, &owner.plan.destination)).await {
        Ok(Ok(Seen::Ceph(space))) if is_full(&space) => "is full and takes no writes",
        Ok(Ok(_)) => return None,
        Ok(Err(_)) | Err(_) => "does not answer",
    };
    Some(format!("pool-stalled: pool {pool} {why}; nothing is removed before the copy has ended"))
}

/// Looks whether a copy moves at all.
pub(super) struct StallWatch {
    copied: Bytes,
    since: Instant,
}

impl StallWatch {
    /// A watch over a copy that begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self { copied: Bytes(0), since: now }
    }

    /// Takes one look at the job in.
    pub(super) fn look(&mut self, progress: &Progress) {
        if progress.copied != self.copied || progress.phase != Phase::Copying {
            (self.copied, self.since) = (progress.copied, Instant::now());
        }
    }

    /// Says so when nothing moves and the pool does not answer either.
    pub(super) fn detail(&self, owner: &Owner, space: &SpaceWatch) -> Option<String> {
        let still = self.since.elapsed();
        (still >= STILL && space.silent()).then(|| {
            format!(
                "pool-stalled: nothing was copied for {} and pool {} does not answer; the copy goes on when it does",
                humane(still),
                owner.plan.destination_pool
            )
        })
    }
}
