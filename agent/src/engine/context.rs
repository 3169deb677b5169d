//! What every owner shares: the ports, the journal, the configuration, and how patient to be.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::probe::Known;
use super::registry::Registry;
use super::turns::Turns;
use crate::facts::HostFacts;
use crate::journal::Journal;
#[cfg(feature = "testing")]
use crate::journal::What;
use crate::metrics::Metrics;
use crate::operation::queue::Places;
#[cfg(feature = "testing")]
use crate::plan::StepKind;
use crate::ports::Ports;

/// Everything an owner task works with.
#[derive(Debug)]
pub struct Context {
    /// The world.
    pub ports: Ports,
    /// The durable memory.
    pub journal: Journal,
    /// The configuration; swapped as a whole.
    host: RwLock<Arc<HostFacts>>,
    /// Patience.
    pub tuning: Tuning,
    /// Which operations there are.
    pub registry: Arc<Registry>,
    /// The queue.
    pub turns: Arc<Turns>,
    /// What librbd was seen to do here.
    pub librbd: Known,
    /// What is counted.
    pub metrics: Metrics,
    /// Held while what an earlier operation left is removed: one at a time.
    pub removals: tokio::sync::Mutex<()>,
}

/// What a context is made of, once.
#[derive(Debug)]
pub struct Parts {
    /// The world.
    pub ports: Ports,
    /// The durable memory.
    pub journal: Journal,
    /// The configuration.
    pub host: HostFacts,
    /// Patience.
    pub tuning: Tuning,
}

impl Context {
    /// Of an engine that has done nothing yet.
    pub fn new(parts: Parts, registry: Arc<Registry>) -> Self {
        let Parts { ports, journal, host, tuning } = parts;
        Self {
            ports,
            journal,
            tuning,
            registry,
            turns: Arc::new(Turns::new(Places::new(&host.limits, &host.pools))),
            librbd: Known::default(),
            metrics: Metrics::new(&host.pools),
            removals: tokio::sync::Mutex::default(),
            host: RwLock::new(Arc::new(host)),
        }
    }

    /// The configuration now. Whoever decides by more than one value of it takes it once.
    pub fn host(&self) -> Arc<HostFacts> {
        // Only whole values are written, so that a panic elsewhere leaves none half-written.
        Arc::clone(&self.host.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another configuration from now on. What runs goes on, even where there are fewer places now.
    pub fn configure(&self, host: HostFacts) {
        self.metrics.name_pools(&host.pools);
        let places = Places::new(&host.limits, &host.pools);
        *self.host.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(host);
        self.turns.allow(places);
    }
}

/// Periods and bounds. None of them decides what is true, only how soon it is asked.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Between two looks at a running job, for progress.
    pub progress_period: Duration,
    /// Between two looks at the room in the destination pool.
    pub space_period: Duration,
    /// Between two looks at the live XML, for events that were lost.
    pub state_period: Duration,
    /// How long QEMU's own words about a failed job are waited for.
    pub words_grace: Duration,
    /// The first and the longest wait between two tries of a call that may succeed later.
    pub backoff: (Duration, Duration),
    /// How long a volume in use is tried to be removed; a dead client's watch lasts 30 s.
    pub removal_patience: Duration,
    /// How long two volumes are compared, to prove a pivot, before an operation ends without that proof.
    pub compare_patience: Duration,
    /// Between two looks for what is due in the trash.
    pub purge_period: Duration,
    /// How long starting a job is tried against a domain whose lock is held elsewhere.
    pub busy_patience: Duration,
    /// A step whose intent is not written down: a fault that tests must notice.
    #[cfg(feature = "testing")]
    pub without_intent: Option<StepKind>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            progress_period: Duration::from_secs(1),
            space_period: Duration::from_secs(2),
            state_period: Duration::from_secs(3),
            words_grace: Duration::from_millis(500),
            backoff: (Duration::from_millis(50), Duration::from_secs(5)),
            removal_patience: Duration::from_secs(45),
            compare_patience: Duration::from_secs(60),
            purge_period: Duration::from_secs(600),
            busy_patience: Duration::from_secs(60),
            #[cfg(feature = "testing")]
            without_intent: None,
        }
    }
}

#[cfg(feature = "testing")]
impl Tuning {
    /// Leaves the intent out that is not to be written down.
    pub(super) fn forget_intent(&self, mut what: Vec<What>) -> Vec<What> {
        what.retain(
            |what| !matches!(what, What::Intent { step } if Some(*step) == self.without_intent),
        );
        what
    }
}
