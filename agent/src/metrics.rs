//! What Prometheus is told: counters and histograms of this life of the agent, and gauges that are read anew for every
//! scrape from where the truth is, the journal and libvirt's connection. No label names a guest, a volume or an operation.
//!
//! Nothing is decided by what is counted here.

pub mod listener;
mod series;
mod text;

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use series::{ByCause, ByCode, ByKind, ByOutcome, ByPools, ByReason, ByState, Series};
use tokio::sync::Mutex;

use crate::engine::Retried;
use crate::journal::JournalError;
use crate::operation::{FailureCause, Leftover, LeftoverKind, OperationView, State};
use crate::plan::RefusalCode;
use crate::spec::{Bytes, Pool, PoolName};

/// What stands for a pool that is not in the configuration: requests and libvirt may name any number of them.
const OTHER_POOL: &str = "other";

/// Why an operation has another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The agent was started again.
    Restart,
    /// The owner before was lost.
    Fault,
}

/// What the journal holds at the moment of a scrape.
#[derive(Debug)]
pub struct Kept {
    /// How many operations are in each state that occurs.
    pub states: Vec<(State, u64)>,
    /// Every leftover record.
    pub leftovers: Vec<Leftover>,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    series: Series,
    pools: RwLock<HashSet<PoolName>>,
    /// One scrape at a time: its gauges are set and printed as one.
    scrape: Mutex<()>,
}

impl Metrics {
    /// Nothing counted yet. Whatever can be counted is there with zero, so that the first one is an increase.
    pub fn new(pools: &[Pool]) -> Self {
        let series = Series::new();
        // What is created stays; the guard of its map is given back at once.
        for code in RefusalCode::ALL {
            let _ = series.refusals.get_or_create(&ByCode { code: code.as_str() });
        }
        for cause in FailureCause::ALL {
            let _ = series.failures.get_or_create(&ByCause { cause: cause.as_str() });
        }
        for state in State::ALL.iter().filter(|state| state.is_final()) {
            let _ = series.durations.get_or_create(&ByOutcome { outcome: state.as_str() });
        }
        for outcome in ["removed", "already-gone", "stays"] {
            let _ = series.retries.get_or_create(&ByOutcome { outcome });
        }
        for recovery in [Recovery::Restart, Recovery::Fault] {
            let _ = series.recoveries.get_or_create(&ByReason { reason: recovery.as_str() });
        }
        Self { series, pools: RwLock::new(names(pools)), scrape: Mutex::default() }
    }

    /// The pools that labels may name from now on.
    pub fn name_pools(&self, pools: &[Pool]) {
        *self.pools.write().unwrap_or_else(PoisonError::into_inner) = names(pools);
    }

    /// A request was refused.
    pub fn refused(&self, code: RefusalCode) {
        self.series.refusals.get_or_create(&ByCode { code: code.as_str() }).inc();
    }

    /// An operation has ended.
    pub fn ended(&self, view: &OperationView) {
        let outcome = ByOutcome { outcome: view.state.as_str() };
        let lasted: Duration = view.phases.iter().filter_map(|phase| phase.lasted).sum();
        self.series.durations.get_or_create(&outcome).observe(lasted.as_secs_f64());
        if let Some(failure) = &view.failure {
            self.series.failures.get_or_create(&ByCause { cause: failure.cause.as_str() }).inc();
        }
        if let Some(micros) = view.result.as_ref().and_then(|result| result.ready_to_pivot_us) {
            self.series.ready_to_pivot.observe(Duration::from_micros(micros).as_secs_f64());
        }
    }

    /// More of an operation's volume was copied.
    pub fn copied(&self, view: &OperationView, more: Bytes) {
        let pools = ByPools {
            source_pool: self.pool(view.source_pool.as_ref()),
            destination_pool: self.pool(Some(&view.spec.to)),
        };
        self.series.copied.get_or_create(&pools).inc_by(more.0);
    }

    /// An operation was taken up again.
    pub fn recovered(&self, why: Recovery) {
        self.series.recoveries.get_or_create(&ByReason { reason: why.as_str() }).inc();
    }

    /// The connection to libvirt came back after a loss.
    pub fn reconnected(&self) {
        self.series.reconnects.inc();
    }

    /// The removal of a leftover was tried again.
    pub fn retried(&self, retried: &Retried) {
        let outcome = match retried {
            Retried::Removed(_) => "removed",
            Retried::AlreadyGone(_) => "already-gone",
            Retried::Stays(_) => "stays",
        };
        self.series.retries.get_or_create(&ByOutcome { outcome }).inc();
    }

    /// The journal did not take a write.
    pub fn journal_refused(&self) {
        self.series.journal_failures.inc();
    }

    /// The page of a scrape, in the OpenMetrics text format. What the journal cannot say is left out, and that it
    /// cannot is told.
    pub async fn page(&self, libvirt_up: bool, kept: Result<Kept, JournalError>) -> String {
        let _alone = self.scrape.lock().await;
        let series = &self.series;
        series.libvirt_up.set(i64::from(libvirt_up));
        series.journal_readable.set(i64::from(kept.is_ok()));
        series.operations.clear();
        series.leftovers.clear();
        if let Ok(kept) = kept {
            for state in State::ALL {
                let found = kept.states.iter().find(|(known, _)| *known == state);
                let count = found.map_or(0, |(_, count)| *count);
                let gauge = series.operations.get_or_create(&ByState { state: state.as_str() });
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            for kind in LeftoverKind::ALL {
                let count = kept.leftovers.iter().filter(|left| left.kind == kind).count();
                let gauge = series.leftovers.get_or_create(&ByKind { kind: kind.as_str() });
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        series.text()
    }

    fn pool(&self, name: Option<&PoolName>) -> String {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        match name.filter(|name| pools.contains(name)) {
            Some(name) => name.to_string(),
            None => OTHER_POOL.to_owned(),
        }
    }
}

fn names(pools: &[Pool]) -> HashSet<PoolName> {
    pools.iter().map(|pool| pool.name.clone()).collect()
}

impl Recovery {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Fault => "fault",
        }
    }
}
