//! A lane for each domain: one connection and one thread, for calls that wait for its QEMU.
//!
//! At most one call of a domain is outstanding, and one that hangs holds up nothing but its own lane. A call that
//! outlives its bound is not cancelled: it is answered with `NoAnswer`, and the lane counts as stuck until it
//! returns. What the calls are is none of this module's business.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use virt::domain::Domain;

use super::lane::{Current, Lane, TurnRefused};
use crate::ports::{ErrorClass, PortError};
use crate::spec::DomainUuid;

/// libvirtd serves all clients with twenty threads, and a call to a hung QEMU keeps one of them. Some must stay free
/// for everybody else on the host.
const OUTSTANDING: usize = 16;

/// One call on a lane.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// What is tried, for messages.
    pub(super) operation: String,
    /// How long to wait for the answer, queueing included.
    pub(super) bound: Duration,
    /// Made even while many other QEMUs hang.
    pub(super) urgent: bool,
}

/// The lanes of all domains, made on demand and dropped when idle.
#[derive(Debug)]
pub(super) struct Lanes {
    uri: Arc<str>,
    idle: Duration,
    lanes: Arc<LaneMap>,
    outstanding: Arc<Semaphore>,
}

/// The lanes that exist.
#[derive(Debug, Default)]
pub(super) struct LaneMap(Mutex<HashMap<DomainUuid, Arc<Lane>>>);

impl LaneMap {
    fn lock(&self) -> MutexGuard<'_, HashMap<DomainUuid, Arc<Lane>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lane away that has ended.
    pub(super) fn remove(&self, domain: &DomainUuid) {
        self.lock().remove(domain);
    }
}

impl Lanes {
    /// No lane yet; one that is not used for `idle` is closed.
    pub(super) fn new(uri: Arc<str>, idle: Duration) -> Self {
        let outstanding = Arc::new(Semaphore::new(OUTSTANDING));
        Self { uri, idle, lanes: Arc::default(), outstanding }
    }

    /// Runs `body` on the lane of `domain`, after every earlier call there.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        domain: &DomainUuid,
        call: Call,
        body: impl FnOnce(&Domain) -> Result<T, PortError> + Send + 'static,
    ) -> Result<T, PortError> {
        let deadline = Instant::now() + call.bound;
        let (lane, turn) = self.turn(domain, &call, deadline).await?;
        let free = self.free_thread(&call, deadline).await?;
        let (sender, answer) = oneshot::channel();
        let operation = call.operation.clone();
        lane.submit(
            Current { operation: call.operation.clone(), started: Instant::now(), deadline },
            turn,
            Box::new(move |link| {
                let result = link.with_domain(&operation, body);
                drop(free);
                // Nobody waits any more when the bound has passed.
                let _ = sender.send(result);
            }),
        )?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(PortError::new(
                ErrorClass::NoAnswer,
                call.operation,
                "the thread that made the call ended early",
            )),
            Err(_) => Err(no_answer(call.operation, domain, call.bound)),
        }
    }

    async fn turn(
        &self,
        domain: &DomainUuid,
        call: &Call,
        deadline: Instant,
    ) -> Result<(Arc<Lane>, OwnedSemaphorePermit), PortError> {
        loop {
            let lane = self.lane(domain)?;
            match lane.turn(deadline).await {
                Ok(turn) => return Ok((lane, turn)),
                Err(TurnRefused::Closed) => {}
                Err(TurnRefused::Occupied { operation, since }) => {
                    let text = format!(
                        "no answer from QEMU of domain {domain} for {} s ({operation})",
                        since.as_secs()
                    );
                    return Err(PortError::new(ErrorClass::NoAnswer, &call.operation, text));
                }
            }
        }
    }

    async fn free_thread(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<Option<OwnedSemaphorePermit>, PortError> {
        if call.urgent {
            return Ok(None);
        }
        let free = timeout_at(deadline, Arc::clone(&self.outstanding).acquire_owned()).await;
        free.ok().and_then(Result::ok).map(Some).ok_or_else(|| {
            let text = format!("{OUTSTANDING} calls to hung QEMUs have not returned");
            PortError::new(ErrorClass::NoAnswer, &call.operation, text)
        })
    }

    fn lane(&self, domain: &DomainUuid) -> Result<Arc<Lane>, PortError> {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get(domain) {
            return Ok(Arc::clone(lane));
        }
        let map = Arc::downgrade(&self.lanes);
        let lane = Lane::start(Arc::clone(&self.uri), domain.clone(), self.idle, map)?;
        lanes.insert(domain.clone(), Arc::clone(&lane));
        Ok(lane)
    }
}

fn no_answer(operation: String, domain: &DomainUuid, bound: Duration) -> PortError {
    let text = format!("no answer from QEMU of domain {domain} for {} s", bound.as_secs());
    PortError::new(ErrorClass::NoAnswer, operation, text)
}
