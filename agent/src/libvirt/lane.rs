//! One lane: the thread, its connection, and whose turn it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use virt::connect::Connect;
use virt::domain::Domain;

use super::connection;
use super::error::port_error;
use super::lanes::LaneMap;
use crate::ports::{ErrorClass, PortError};
use crate::spec::DomainUuid;

/// How long a stuck lane is waited for: when QEMU goes on, libvirt's event may be here before the call's answer.
const GRACE: Duration = Duration::from_millis(100);

/// The work of one call, on the lane's thread.
type Work = Box<dyn FnOnce(&mut Link) + Send>;

/// The call that is outstanding.
#[derive(Debug, Clone)]
pub(super) struct Current {
    /// What it is.
    pub(super) operation: String,
    /// Since when.
    pub(super) started: Instant,
    /// When its caller stops waiting; from then on the lane is stuck.
    pub(super) deadline: Instant,
}

/// Why a call got no turn.
#[derive(Debug)]
pub(super) enum TurnRefused {
    /// The lane was idle and ended; another one takes its place.
    Closed,
    /// An earlier call has not returned.
    Occupied {
        /// What it is.
        operation: String,
        /// For how long.
        since: Duration,
    },
}

/// One domain's lane.
#[derive(Debug)]
pub(super) struct Lane {
    work: Sender<(Work, OwnedSemaphorePermit)>,
    turns: Arc<Semaphore>,
    current: watch::Sender<Option<Current>>,
}

impl Lane {
    /// Starts the lane's thread; the connection is opened by the first call.
    pub(super) fn start(
        uri: Arc<str>,
        domain: DomainUuid,
        idle: Duration,
        lanes: Weak<LaneMap>,
    ) -> Result<Arc<Self>, PortError> {
        let (work, queue) = channel();
        let lane = Arc::new(Self {
            work,
            turns: Arc::new(Semaphore::new(1)),
            current: watch::Sender::new(None),
        });
        let worker = Worker {
            turns: Arc::clone(&lane.turns),
            current: lane.current.clone(),
            domain: domain.clone(),
            idle,
            lanes,
        };
        let link = Link { uri, domain: domain.clone(), open: None };
        // Linux shows fifteen characters of a thread's name.
        let name = format!("lane-{}", domain.as_str().get(..8).unwrap_or_default());
        std::thread::Builder::new()
            .name(name)
            .spawn(move || worker.run(&queue, link))
            .map_err(|error| PortError::new(ErrorClass::Other, "start a thread", error))?;
        Ok(lane)
    }

    /// Waits until no call is outstanding, at most until `deadline`; hardly at all on a stuck lane.
    pub(super) async fn turn(
        &self,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, TurnRefused> {
        let mut current = self.current.subscribe();
        let patience = Instant::now() + GRACE;
        let turn = Arc::clone(&self.turns).acquire_owned();
        tokio::pin!(turn);
        loop {
            let occupant = current.borrow_and_update().clone();
            let stuck = occupant.as_ref().map_or(deadline, |call| call.deadline.max(patience));
            tokio::select! {
                biased;
                turn = &mut turn => return turn.map_err(|_| TurnRefused::Closed),
                changed = current.changed() => {
                    if changed.is_err() {
                        return Err(TurnRefused::Closed);
                    }
                }
                () = sleep_until(stuck.min(deadline)) => return Err(occupied(occupant)),
            }
        }
    }

    /// Hands work to the thread. `turn` is given back when it is done.
    pub(super) fn submit(
        &self,
        call: Current,
        turn: OwnedSemaphorePermit,
        work: Work,
    ) -> Result<(), PortError> {
        let operation = call.operation.clone();
        self.current.send_replace(Some(call));
        self.work.send((work, turn)).map_err(|_| {
            PortError::new(ErrorClass::Unavailable, operation, "the lane's thread has ended")
        })
    }
}

fn occupied(occupant: Option<Current>) -> TurnRefused {
    match occupant {
        Some(call) => {
            TurnRefused::Occupied { operation: call.operation, since: call.started.elapsed() }
        }
        None => {
            TurnRefused::Occupied { operation: "queued calls".to_owned(), since: Duration::ZERO }
        }
    }
}

struct Worker {
    turns: Arc<Semaphore>,
    current: watch::Sender<Option<Current>>,
    domain: DomainUuid,
    idle: Duration,
    lanes: Weak<LaneMap>,
}

impl Worker {
    fn run(self, queue: &Receiver<(Work, OwnedSemaphorePermit)>, mut link: Link) {
        loop {
            match queue.recv_timeout(self.idle) {
                Ok((work, turn)) => {
                    if catch_unwind(AssertUnwindSafe(|| work(&mut link))).is_err() {
                        tracing::error!(domain = %self.domain, "a call to libvirt panicked");
                        link.open = None;
                    }
                    self.current.send_replace(None);
                    drop(turn);
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    // Holding the turn proves that nobody is about to hand in work.
                    if let Ok(turn) = self.turns.try_acquire() {
                        if let Some(lanes) = self.lanes.upgrade() {
                            lanes.remove(&self.domain);
                        }
                        self.turns.close();
                        turn.forget();
                        return;
                    }
                }
            }
        }
    }
}

/// The lane's connection and the handle of its domain, opened when needed and again when broken.
pub(super) struct Link {
    uri: Arc<str>,
    domain: DomainUuid,
    open: Option<(Connect, Domain)>,
}

impl Link {
    /// Runs `body` on the domain's handle. A connection that proved broken is dropped.
    pub(super) fn with_domain<T>(
        &mut self,
        operation: &str,
        body: impl FnOnce(&Domain) -> Result<T, PortError>,
    ) -> Result<T, PortError> {
        let result = body(self.handle(operation)?);
        if result.as_ref().is_err_and(PortError::is_unavailable) {
            self.open = None;
        }
        result
    }

    fn handle(&mut self, operation: &str) -> Result<&Domain, PortError> {
        let open = match self.open.take() {
            // Answered by this process, without a round trip.
            Some((connection, domain)) if connection.is_alive().unwrap_or(false) => {
                (connection, domain)
            }
            broken => {
                drop(broken);
                let connection = connection::open(&self.uri)?;
                let domain = connection
                    .lookup_domain_by_uuid_string(self.domain.as_str())
                    .map_err(|error| port_error(operation, &error))?;
                (connection, domain)
            }
        };
        Ok(&self.open.insert(open).1)
    }
}
