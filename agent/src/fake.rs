//! A programmable world, for tests and for `volferryd --fake`: domains, QEMU, block jobs, RBD clusters and folders in memory, in virtual time.
//!
//! It is a program, not a mock: it obeys the rules libvirt and QEMU were seen to obey and fails where a script says.
//! What tests on it may prove: the order of effects and records, that every end is a right one whatever answer or
//! event is lost, that an agent killed anywhere finds back. What they may not prove: that libvirt, QEMU or Ceph
//! really behave like this. Where the contract test sees a difference to the real ones, this world is wrong.
//!
//! Time is tokio's: with a paused clock an hour of copying passes at once, in the same order every time. State is
//! one struct behind a mutex; it outlives every engine, so that "the agent was killed" is dropping one engine and
//! starting the next on the same journal.

#[cfg(feature = "testing")]
pub mod agent;
pub mod audit;
mod clones;
pub mod copy;
pub mod domain;
pub mod faults;
pub mod folder;
pub mod job;
pub mod life;
mod ports;
pub mod rbd;
pub mod scene;
pub mod secret;
#[cfg(feature = "testing")]
pub mod stage;
pub mod state;
pub mod storage_pool;
pub mod trouble;
pub mod world_file;
mod xml;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(feature = "testing")]
pub use agent::Agent;
use faults::{Fault, Method, Script};
use life::Life;
pub use scene::Scene;
#[cfg(feature = "testing")]
pub use stage::Stage;
use state::State;
use tokio::sync::{Notify, broadcast};

use crate::ports::{DomainEvent, ErrorClass, EventKind, PortError, Ports, TimedEvent};

/// After this time every real port gives up on a call.
pub const CALL_BOUND: Duration = Duration::from_secs(30);

/// How many events a receiver may be behind.
const EVENT_BUFFER: usize = 4096;

/// The world; cheap to clone.
#[derive(Clone)]
pub struct World(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    script: Mutex<Script>,
    life: Life,
    events: broadcast::Sender<TimedEvent>,
    changed: Notify,
    released: Notify,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// An empty world whose libvirt is there.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State::new()),
            script: Mutex::new(Script::default()),
            life: Life::default(),
            events: broadcast::channel(EVENT_BUFFER).0,
            changed: Notify::new(),
            released: Notify::new(),
        }))
    }

    /// The ports of an agent in this world.
    pub fn ports(&self) -> Ports {
        ports::of(self)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the world or changes it behind everybody's back; events that follow are sent.
    pub fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let result = self.quietly(work);
        self.0.changed.notify_waiters();
        result
    }

    /// The same without waking the jobs.
    fn quietly<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = work(&mut state);
        let outbox = std::mem::take(&mut state.outbox);
        let connected = state.connected;
        for event in outbox {
            let of_connection =
                matches!(event.kind, EventKind::ConnectionLost | EventKind::ConnectionRestored);
            if connected || of_connection {
                self.send(event);
            }
        }
        result
    }

    fn send(&self, event: DomainEvent) {
        for _ in 0..self.script().copies(&event.kind) {
            let at = tokio::time::Instant::now().into_std();
            // Without receivers nobody listens, which is no fault.
            let _ = self.0.events.send(TimedEvent { at, qemu_time_us: None, event: event.clone() });
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call through a port: kill points, scripted faults, then the effect.
    async fn call<T>(
        &self,
        method: Method,
        what: String,
        effect: impl FnOnce(&mut State) -> Result<T, PortError> + Send,
    ) -> Result<T, PortError> {
        if method.is_effect() {
            self.point(format!("before {method:?}")).await;
        }
        self.live().await;
        self.quietly(State::guests_write);
        let faults = self.script().next(method, &what);
        let mut fault = None;
        for scripted in faults {
            match scripted {
                Fault::Do(action) => action(self),
                other => fault = Some(other),
            }
        }
        if method.needs_libvirt() && !self.quietly(|state| state.connected) {
            return Err(PortError::new(ErrorClass::Unavailable, what, "libvirt is away"));
        }
        let effect = |world: &Self| world.with(effect);
        let answer = match fault {
            Some(Fault::Refuse(class, text)) => return Err(PortError::new(class, what, text)),
            Some(Fault::NoAnswer { effect: happens }) => {
                if happens {
                    // What it answered is what gets lost.
                    drop(effect(self));
                    self.point(format!("after {method:?}")).await;
                }
                tokio::time::sleep(CALL_BOUND).await;
                return Err(PortError::new(ErrorClass::NoAnswer, what, "no answer within 30 s"));
            }
            Some(Fault::Hang) => {
                let released = self.0.released.notified();
                if tokio::time::timeout(CALL_BOUND, released).await.is_err() {
                    let text = "no answer within 30 s";
                    return Err(PortError::new(ErrorClass::NoAnswer, what, text));
                }
                effect(self)
            }
            Some(Fault::Do(_)) | None => effect(self),
        };
        if method.is_effect() && answer.is_ok() {
            self.point(format!("after {method:?}")).await;
        }
        self.live().await;
        answer
    }
}
