//! Connected clusters, one for each user and set of monitors, closed when idle.
//!
//! Quick calls and slow ones have their own places, so that removals never hold up the look before a pivot.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rbdutils::cluster::{Cluster, ConnectOptions, Timeouts};
use rbdutils::images::Pool;
use rbdutils::monitors::MonitorList;
use rbdutils::names::{NamespaceName, PoolName};
use secrecy::SecretString;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::error::Failure;
use super::key_file;
use crate::blocking::{Capped, detached};
use crate::host::keys::KeySource;
use crate::ports::{ErrorClass, PortError};
use crate::spec::RbdPoolAddress;

/// What finding out why a connection failed may take beyond the library's own bound.
const DIAGNOSIS: Duration = Duration::from_secs(2);
const QUICK_CALLS: usize = 16;
const SLOW_CALLS: usize = 4;
const LONG_CALLS: usize = 4;

/// How many requests a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Pace {
    /// A few.
    Quick,
    /// One for each object of an image.
    Slow,
    /// All data of an image.
    Long,
}

/// What makes two addresses share a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Access {
    monitors: String,
    user: Option<String>,
    secret_uuid: Option<String>,
    key_file: Option<PathBuf>,
}

type Map = Arc<Mutex<HashMap<Access, Arc<Slot>>>>;

/// All connections.
#[derive(Debug)]
pub(super) struct Clusters {
    keys: Arc<dyn KeySource>,
    timeouts: Timeouts,
    slots: Map,
    _janitor: AbortOnDropHandle<()>,
}

/// One user's way to a cluster.
#[derive(Debug)]
struct Slot {
    quick: Capped,
    slow: Capped,
    long: Capped,
    used: Mutex<Instant>,
    live: Mutex<Option<Arc<Live>>>,
    /// Held while a connection is made; in it, when the last try failed and how.
    connecting: tokio::sync::Mutex<Option<(Instant, PortError)>>,
}

/// A connection and the pools opened on it.
#[derive(Debug)]
struct Live {
    cluster: Option<Cluster>,
    pools: Mutex<HashMap<(String, Option<String>), Pool>>,
}

impl Drop for Live {
    fn drop(&mut self) {
        // Ending a connection waits for the cluster, which must not stop anybody.
        let (cluster, pools) = (self.cluster.take(), std::mem::take(&mut *lock(&self.pools)));
        drop(detached("ceph-close", move || drop((pools, cluster))));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for dyn KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeySource")
    }
}

impl Clusters {
    pub(super) fn new(keys: Arc<dyn KeySource>, answer: Duration, idle: Duration) -> Self {
        let slots = Map::default();
        let connect = answer - DIAGNOSIS.min(answer / 3);
        let timeouts = Timeouts { connect, monitor: answer, osd: answer };
        let _janitor = AbortOnDropHandle::new(tokio::spawn(close_idle(Arc::clone(&slots), idle)));
        Self { keys, timeouts, slots, _janitor }
    }

    /// Runs `call` on the pool, connecting first where needed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        address: &RbdPoolAddress,
        operation: &str,
        pace: Pace,
        bound: Duration,
        call: impl FnOnce(&Pool) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, PortError> {
        let slot = self.slot(address);
        // Waiting for others who connect is bounded too.
        let live = tokio::time::timeout(self.connect_bound(), self.live(&slot, address, operation))
            .await
            .map_err(|_| {
                let text = format!("no connection to {} within the time", address.monitors);
                PortError::new(ErrorClass::Unavailable, operation, text)
            })??;
        let (words, address, owner) = (operation.to_owned(), address.clone(), Arc::clone(&slot));
        let calls = match pace {
            Pace::Quick => &slot.quick,
            Pace::Slow => &slot.slow,
            Pace::Long => &slot.long,
        };
        calls
            .run(operation, bound, move || {
                let pool = live.pool(&address, &words)?;
                call(&pool).map_err(|failure| {
                    if failure.ends_connection() {
                        owner.forget(&live);
                    }
                    failure.port_error(&words)
                })
            })
            .await
    }

    /// A little more than the library takes at most, whose error says more than ours.
    fn connect_bound(&self) -> Duration {
        self.timeouts.connect + DIAGNOSIS + Duration::from_secs(1)
    }

    fn slot(&self, address: &RbdPoolAddress) -> Arc<Slot> {
        let access = Access {
            monitors: address.monitors.clone(),
            user: address.user.clone(),
            secret_uuid: address.secret_uuid.clone(),
            key_file: address.key_file.clone(),
        };
        let what: Arc<str> = format!("Ceph at {}", address.monitors).into();
        let mut slots = lock(&self.slots);
        let slot = slots.entry(access).or_insert_with(|| Arc::new(Slot::new(what)));
        *lock(&slot.used) = Instant::now();
        Arc::clone(slot)
    }

    async fn live(
        &self,
        slot: &Slot,
        address: &RbdPoolAddress,
        operation: &str,
    ) -> Result<Arc<Live>, PortError> {
        if let Some(live) = lock(&slot.live).clone() {
            return Ok(live);
        }
        let asked = Instant::now();
        let mut last = slot.connecting.lock().await;
        if let Some(live) = lock(&slot.live).clone() {
            return Ok(live);
        }
        // Who waited for a try that failed has waited long enough.
        if let Some((failed, error)) = &*last
            && *failed > asked
        {
            return Err(PortError { operation: operation.to_owned(), ..error.clone() });
        }
        let live = self.connect(slot, address, operation).await;
        *last = live.as_ref().err().map(|error| (Instant::now(), error.clone()));
        live
    }

    async fn connect(
        &self,
        slot: &Slot,
        address: &RbdPoolAddress,
        operation: &str,
    ) -> Result<Arc<Live>, PortError> {
        let monitors = MonitorList::parse(&address.monitors, 0)
            .map_err(|error| PortError::new(ErrorClass::Other, operation, error))?;
        let key = self.key(slot, address, operation).await?;
        let options =
            ConnectOptions { monitors, user: address.user.clone(), key, timeouts: self.timeouts };
        let words = operation.to_owned();
        let cluster = slot
            .quick
            .run(operation, self.connect_bound(), move || {
                Cluster::connect(&options).map_err(|error| Failure::from(error).port_error(&words))
            })
            .await?;
        let live = Arc::new(Live { cluster: Some(cluster), pools: Mutex::default() });
        *lock(&slot.live) = Some(Arc::clone(&live));
        Ok(live)
    }

    async fn key(
        &self,
        slot: &Slot,
        address: &RbdPoolAddress,
        operation: &str,
    ) -> Result<Option<SecretString>, PortError> {
        if let Some(path) = address.key_file.clone() {
            let words = format!("{operation}: read key file {}", path.display());
            let read = move || key_file::read(&path).map_err(|error| (words, error).into());
            return slot.quick.run(operation, self.timeouts.connect, read).await.map(Some);
        }
        match &address.secret_uuid {
            Some(uuid) => self.keys.ceph_key(uuid).await.map(Some),
            None => Ok(None),
        }
    }
}

impl Slot {
    fn new(what: Arc<str>) -> Self {
        Self {
            quick: Capped::new(Arc::clone(&what), QUICK_CALLS),
            slow: Capped::new(Arc::clone(&what), SLOW_CALLS),
            long: Capped::new(what, LONG_CALLS),
            used: Mutex::new(Instant::now()),
            live: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// Lets go of a connection that is of no use any more, unless another one has taken its place.
    fn forget(&self, live: &Arc<Live>) {
        let mut current = lock(&self.live);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            *current = None;
        }
    }

    fn in_use(&self) -> bool {
        [&self.quick, &self.slow, &self.long].into_iter().any(Capped::in_use)
    }
}

impl Live {
    /// The pool, opened by the first who asks.
    fn pool(&self, address: &RbdPoolAddress, operation: &str) -> Result<Pool, PortError> {
        let key = (address.pool.clone(), address.namespace.clone());
        if let Some(pool) = lock(&self.pools).get(&key) {
            return Ok(pool.clone());
        }
        let other = |text: String| PortError::new(ErrorClass::Other, operation, text);
        let name = PoolName::new(&address.pool).map_err(|error| other(error.to_string()))?;
        let namespace = address.namespace.as_deref().map(NamespaceName::new).transpose();
        let namespace = namespace.map_err(|error| other(error.to_string()))?;
        let cluster =
            self.cluster.as_ref().ok_or_else(|| other("the connection is closed".to_owned()))?;
        let pool = cluster
            .pool(&name, namespace.as_ref())
            .map_err(|error| Failure::from(error).port_error(operation))?;
        lock(&self.pools).insert(key, pool.clone());
        Ok(pool)
    }
}

/// Closes what nobody has used for `idle`; looks that often.
async fn close_idle(slots: Map, idle: Duration) {
    loop {
        tokio::time::sleep(idle / 2).await;
        lock(&slots).retain(|_, slot| slot.in_use() || lock(&slot.used).elapsed() < idle);
    }
}
