//! Who runs and who waits, over all owners; whose turn it is decides `operation::queue`.
//!
//! An owner enters when it is born and leaves when it is dropped, however it ended. Nothing here waits for the
//! world; the lock is held for one decision.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::operation::queue::{Places, Queued, Turn, decide};
use crate::operation::space::same_room;
use crate::operation::{OperationView, State};
use crate::plan::Plan;
use crate::spec::{Bytes, OperationId, PoolName, VolumeLocation};

/// Every operation that has not ended, in the order in which they were accepted.
#[derive(Debug)]
pub struct Turns {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    places: Places,
    open: bool,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: OperationId,
    pools: Vec<PoolName>,
    /// Where its volume goes.
    destination: VolumeLocation,
    /// What it will certainly still write there.
    needs: Bytes,
    /// None: not decided yet.
    turn: watch::Sender<Option<Turn>>,
}

/// An operation's place; given back when dropped.
#[derive(Debug)]
pub struct Place {
    turns: Arc<Turns>,
    id: OperationId,
    turn: watch::Receiver<Option<Turn>>,
}

impl Turns {
    /// Nobody's turn comes before [`Self::open`]: who runs already must be known first.
    pub fn new(places: Places) -> Self {
        Self { inner: Mutex::new(Inner { places, open: false, entries: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A decision that panicked left the turns as they were.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every operation of an earlier life has entered.
    pub fn open(&self) {
        let mut inner = self.lock();
        inner.open = true;
        inner.decide();
    }

    /// Nobody's turn comes any more: places given back while everybody is dropped are for the next life.
    pub fn close(&self) {
        self.lock().open = false;
    }

    /// So many places from now on: who runs goes on, who waits may begin.
    pub fn allow(&self, places: Places) {
        let mut inner = self.lock();
        inner.places = places;
        inner.decide();
    }

    /// Takes the last place in the queue; an operation that left it in an earlier life runs at once.
    pub fn enter(self: &Arc<Self>, plan: &Plan, state: State) -> Place {
        let mut pools = vec![plan.destination_pool.clone()];
        pools.extend(plan.source_pool.clone().filter(|pool| *pool != plan.destination_pool));
        let turn = (state != State::Queued).then_some(Turn::Runs);
        let (sender, receiver) = watch::channel(turn);
        let id = plan.spec.operation.clone();
        let mut inner = self.lock();
        inner.entries.push(Entry {
            id: id.clone(),
            pools,
            destination: plan.destination.clone(),
            needs: plan.source_allocated.unwrap_or_default(),
            turn: sender,
        });
        inner.decide();
        Place { turns: Arc::clone(self), id, turn: receiver }
    }

    /// What all others that run will still write where `destination` is.
    pub fn needed_by_others(&self, id: &OperationId, destination: &VolumeLocation) -> Bytes {
        let inner = self.lock();
        needed(inner.entries.iter().filter(|entry| entry.id != *id), destination)
    }

    /// The same of those that were accepted before it.
    pub fn needed_by_earlier(&self, id: &OperationId, destination: &VolumeLocation) -> Bytes {
        let inner = self.lock();
        needed(inner.entries.iter().take_while(|entry| entry.id != *id), destination)
    }
}

fn needed<'a>(entries: impl Iterator<Item = &'a Entry>, destination: &VolumeLocation) -> Bytes {
    let there = entries.filter(|entry| entry.runs() && same_room(&entry.destination, destination));
    Bytes(there.fold(0, |sum, entry| sum.saturating_add(entry.needs.0)))
}

impl Entry {
    fn runs(&self) -> bool {
        *self.turn.borrow() == Some(Turn::Runs)
    }
}

impl Inner {
    fn decide(&mut self) {
        if !self.open {
            return;
        }
        fn queued(entry: &Entry) -> Queued<'_> {
            Queued { pools: &entry.pools, runs: entry.runs() }
        }
        let turns = decide(&self.places, &self.entries.iter().map(queued).collect::<Vec<_>>());
        for (entry, turn) in self.entries.iter().zip(turns) {
            entry.turn.send_if_modified(|old| {
                let new = Some(turn);
                let changed = *old != new;
                *old = new;
                changed
            });
        }
    }
}

impl Place {
    /// Whose turn it is now; none while that is not decided.
    pub fn turn(&self) -> Option<Turn> {
        self.turn.borrow().clone()
    }

    /// Waits for another decision about this operation.
    pub async fn changed(&mut self) {
        if self.turn.changed().await.is_err() {
            // The queue outlives its places.
            std::future::pending::<()>().await;
        }
    }

    /// Says what the operation will certainly still write to its destination.
    pub fn needs(&self, bytes: Bytes) {
        let mut inner = self.turns.lock();
        if let Some(entry) = inner.entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.needs = bytes;
        }
    }

    /// Gives the place back; once is enough.
    pub fn leave(&self) {
        let mut inner = self.turns.lock();
        inner.entries.retain(|entry| entry.id != self.id);
        inner.decide();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What a view says while its operation waits.
pub fn detail(turn: Option<&Turn>, view: &OperationView) -> Option<String> {
    match turn {
        Some(Turn::Waits(wait)) => Some(wait.to_string()),
        Some(Turn::Runs) | None => view.detail.clone(),
    }
}
