//! Which operations there are, who owns a disk, and which requests are being planned at this moment.
//!
//! Nothing here waits for the world; every lock is held for a few instructions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::ViewReceiver;
use super::observe::Located;
use super::owner::Handle;
use super::wishes::Wishes;
use crate::operation::{Admission, OperationView, admission, admit};
use crate::plan::source::Named;
use crate::spec::{DiskTarget, DomainUuid, MigrateSpec, OperationId, VolumeLocation};

/// All operations at hand.
#[derive(Debug)]
pub struct Registry {
    inner: Mutex<Inner>,
    planned: Notify,
    most_finished: usize,
}

#[derive(Debug, Default)]
struct Inner {
    running: HashMap<OperationId, Running>,
    finished: HashMap<OperationId, Arc<OperationView>>,
    finished_order: VecDeque<OperationId>,
    planning: HashSet<OperationId>,
    claims: HashMap<OperationId, Claim>,
}

#[derive(Debug)]
struct Running {
    view: ViewReceiver,
    wishes: watch::Sender<Wishes>,
}

#[derive(Debug)]
struct Claim {
    domain: DomainUuid,
    target: DiskTarget,
    source: Option<VolumeLocation>,
    spec: MigrateSpec,
    /// Where its volume goes; none until that is planned.
    destination: Option<VolumeLocation>,
}

/// The answer to the wish to plan a request.
#[derive(Debug)]
pub enum Reservation<'a> {
    /// An operation of that id is at hand.
    Known(Arc<OperationView>),
    /// The id is reserved until the guard is dropped.
    Reserved(PlanningGuard<'a>),
}

/// Holds an id while its request is being planned.
#[derive(Debug)]
pub struct PlanningGuard<'a> {
    registry: &'a Registry,
    id: OperationId,
}

impl Drop for PlanningGuard<'_> {
    fn drop(&mut self) {
        self.registry.lock().planning.remove(&self.id);
        self.registry.planned.notify_waiters();
    }
}

/// Holds a disk until its operation has an owner.
#[derive(Debug)]
pub struct ClaimGuard<'a> {
    registry: &'a Registry,
    id: Option<OperationId>,
}

impl ClaimGuard<'_> {
    /// The operation has an owner now, with whose end the claim ends.
    pub fn keep(mut self) {
        self.id = None;
    }
}

impl ClaimGuard<'_> {
    /// Takes the name of the destination too.
    ///
    /// Errors: the operation that has it.
    pub fn take_destination(&self, destination: &VolumeLocation) -> Result<(), OperationId> {
        let mut inner = self.registry.lock();
        let Some(own) = &self.id else { return Ok(()) };
        if let Some(other) = inner.maker_of(own, destination) {
            return Err(other);
        }
        if let Some(claim) = inner.claims.get_mut(own) {
            claim.destination = Some(destination.clone());
        }
        Ok(())
    }
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.registry.lock().claims.remove(&id);
        }
    }
}

impl Claim {
    fn new(spec: &MigrateSpec, located: &Located) -> Self {
        let (target, source) = (located.target.clone(), located.source.clone());
        let domain = located.uuid();
        Self { domain, target, source, spec: spec.clone(), destination: None }
    }

    fn makes(&self, destination: &VolumeLocation) -> bool {
        let named = |volume| Named::of_volume(volume);
        match (self.destination.as_ref().and_then(named), named(destination)) {
            (Some(one), Some(other)) => one.may_be(&other),
            _ => false,
        }
    }
}

impl Registry {
    /// A registry that knows these finished operations, newest first.
    pub fn new(finished: Vec<OperationView>, most_finished: usize) -> Self {
        let mut inner = Inner::default();
        for view in finished.into_iter().rev() {
            inner.remember(Arc::new(view), most_finished);
        }
        Self { inner: Mutex::new(inner), planned: Notify::new(), most_finished }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every critical section leaves the maps consistent at each statement.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the id of a request for planning, waiting for another request with the same id to be planned.
    pub async fn reserve(&self, spec: &MigrateSpec) -> Reservation<'_> {
        loop {
            let changed = self.planned.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut inner = self.lock();
                if let Some(view) = inner.view(&spec.operation) {
                    return Reservation::Known(view);
                }
                if inner.planning.insert(spec.operation.clone()) {
                    let id = spec.operation.clone();
                    return Reservation::Reserved(PlanningGuard { registry: self, id });
                }
            }
            changed.await;
        }
    }

    /// Whether the request may begin.
    pub fn admit(&self, spec: &MigrateSpec, located: &Located) -> Admission {
        self.lock().admit(spec, located)
    }

    /// Gives the disk to an operation, if the request may begin; it is given back when the guard is dropped.
    ///
    /// Errors: why it may not.
    pub fn claim(
        &self,
        spec: &MigrateSpec,
        located: &Located,
    ) -> Result<ClaimGuard<'_>, Admission> {
        let mut inner = self.lock();
        match inner.admit(spec, located) {
            Admission::Accepted => {}
            other => return Err(other),
        }
        inner.claims.insert(spec.operation.clone(), Claim::new(spec, located));
        Ok(ClaimGuard { registry: self, id: Some(spec.operation.clone()) })
    }

    /// Another operation that has not ended and whose volume is to be, or is, of that name.
    pub fn maker_of(&self, own: &OperationId, destination: &VolumeLocation) -> Option<OperationId> {
        self.lock().maker_of(own, destination)
    }

    /// An operation has an owner.
    pub fn insert(&self, view: Arc<OperationView>, handle: Handle, receiver: ViewReceiver) {
        let running = Running { view: receiver, wishes: handle.wishes };
        let mut inner = self.lock();
        let claim = Claim {
            domain: view.domain_uuid.clone(),
            target: view.target.clone(),
            source: Some(view.source.clone()),
            spec: view.spec.clone(),
            destination: Some(view.destination.clone()),
        };
        inner.claims.insert(view.spec.operation.clone(), claim);
        inner.running.insert(view.spec.operation.clone(), running);
    }

    /// An operation has ended.
    pub fn finish(&self, id: &OperationId, view: Arc<OperationView>) {
        let mut inner = self.lock();
        inner.running.remove(id);
        inner.claims.remove(id);
        inner.remember(view, self.most_finished);
    }

    /// An operation that had ended has another end now.
    pub fn replace(&self, view: Arc<OperationView>) {
        let mut inner = self.lock();
        if let Some(known) = inner.finished.get_mut(&view.spec.operation) {
            *known = view;
        }
    }

    /// The latest view of an operation at hand.
    pub fn view(&self, id: &OperationId) -> Option<Arc<OperationView>> {
        self.lock().view(id)
    }

    /// Every view at hand, newest first.
    pub fn views(&self) -> Vec<Arc<OperationView>> {
        let mut views: Vec<Arc<OperationView>> = {
            let inner = self.lock();
            let running = inner.running.values().map(|running| Arc::clone(&running.view.borrow()));
            running.chain(inner.finished.values().cloned()).collect()
        };
        views.sort_by_key(|view| std::cmp::Reverse(view.accepted()));
        views
    }

    /// A receiver of a running operation's views.
    pub fn follow(&self, id: &OperationId) -> Option<ViewReceiver> {
        self.lock().running.get(id).map(|running| running.view.clone())
    }

    /// Passes a wish on; none when the operation runs no more.
    pub fn wish(
        &self,
        id: &OperationId,
        change: impl FnOnce(&mut Wishes),
    ) -> Option<Arc<OperationView>> {
        let inner = self.lock();
        let running = inner.running.get(id)?;
        running.wishes.send_modify(change);
        Some(Arc::clone(&running.view.borrow()))
    }
}

impl Inner {
    fn admit(&self, spec: &MigrateSpec, located: &Located) -> Admission {
        let known = self.claims.values().map(|claim| admission::Known {
            spec: &claim.spec,
            domain: &claim.domain,
            target: &claim.target,
            source: claim.source.as_ref(),
            // Its owner may have published the end and not yet given the disk back.
            finished: self.view(&claim.spec.operation).is_some_and(|view| view.state.is_final()),
        });
        admit(spec, &located.uuid(), &located.target, located.source.as_ref(), known)
    }

    /// Another operation that has not ended and whose volume is to be, or is, of that name.
    fn maker_of(&self, own: &OperationId, destination: &VolumeLocation) -> Option<OperationId> {
        let ended = |id| self.view(id).is_some_and(|view| view.state.is_final());
        let mut claims = self.claims.iter();
        let found = claims.find(|(id, claim)| *id != own && claim.makes(destination) && !ended(id));
        found.map(|(id, _)| id.clone())
    }

    fn view(&self, id: &OperationId) -> Option<Arc<OperationView>> {
        match self.running.get(id) {
            Some(running) => Some(Arc::clone(&running.view.borrow())),
            None => self.finished.get(id).cloned(),
        }
    }

    fn remember(&mut self, view: Arc<OperationView>, most: usize) {
        let id = view.spec.operation.clone();
        self.finished.insert(id.clone(), view);
        self.finished_order.push_back(id);
        while self.finished_order.len() > most {
            if let Some(oldest) = self.finished_order.pop_front() {
                self.finished.remove(&oldest);
            }
        }
    }
}
