//! The series by name, with their labels, units and help. Nothing is counted here.

use std::fmt;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// An operation takes seconds for an empty disk and a day for a large one.
const DURATIONS: [f64; 12] =
    [1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 43_200.0, 86_400.0];
/// From READY to the pivot call it should take a few milliseconds.
const PIVOTS: [f64; 9] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByState {
    pub(super) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByOutcome {
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByCode {
    pub(super) code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByCause {
    pub(super) cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByKind {
    pub(super) kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByReason {
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByPools {
    pub(super) source_pool: String,
    pub(super) destination_pool: String,
}

/// Every series.
pub(super) struct Series {
    registry: Registry,
    pub(super) operations: Family<ByState, Gauge>,
    pub(super) durations: Family<ByOutcome, Histogram, fn() -> Histogram>,
    pub(super) ready_to_pivot: Histogram,
    pub(super) copied: Family<ByPools, Counter>,
    pub(super) refusals: Family<ByCode, Counter>,
    pub(super) failures: Family<ByCause, Counter>,
    pub(super) recoveries: Family<ByReason, Counter>,
    pub(super) leftovers: Family<ByKind, Gauge>,
    pub(super) retries: Family<ByOutcome, Counter>,
    pub(super) libvirt_up: Gauge,
    pub(super) reconnects: Counter,
    pub(super) journal_readable: Gauge,
    pub(super) journal_failures: Counter,
}

impl Series {
    pub(super) fn new() -> Self {
        let mut series = Self {
            registry: Registry::with_prefix("volferry"),
            operations: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            ready_to_pivot: Histogram::new(PIVOTS),
            copied: Family::default(),
            refusals: Family::default(),
            failures: Family::default(),
            recoveries: Family::default(),
            leftovers: Family::default(),
            retries: Family::default(),
            libvirt_up: Gauge::default(),
            reconnects: Counter::default(),
            journal_readable: Gauge::default(),
            journal_failures: Counter::default(),
        };
        series.register_operations();
        series.register_host();
        series
    }

    fn register_operations(&mut self) {
        let registry = &mut self.registry;
        let text = "Operations in the journal by state";
        registry.register("operations", text, self.operations.clone());
        let text =
            "From the request to the end, of operations that ended in this life of the agent";
        let durations = self.durations.clone();
        registry.register_with_unit("operation_duration", text, Unit::Seconds, durations);
        let text = "From QEMU's READY to the pivot call";
        let pivots = self.ready_to_pivot.clone();
        registry.register_with_unit("ready_to_pivot", text, Unit::Seconds, pivots);
        let text = "Bytes copied between two pools of the configuration, rewrites included where they were seen";
        registry.register_with_unit("copied", text, Unit::Bytes, self.copied.clone());
        let text = "Requests refused by code";
        registry.register("refusals", text, self.refusals.clone());
        let text = "Operations that failed, were rolled back or need an operator, by cause";
        registry.register("failures", text, self.failures.clone());
        let text = "Operations taken up again, after a restart or a fault of the agent";
        registry.register("recoveries", text, self.recoveries.clone());
        let text = "Leftover records by kind";
        registry.register("leftovers", text, self.leftovers.clone());
        let text = "Removals of leftovers that were tried again, by outcome";
        registry.register("leftover_retries", text, self.retries.clone());
    }

    fn register_host(&mut self) {
        let registry = &mut self.registry;
        let text = "Whether libvirt can be reached";
        registry.register("libvirt_up", text, self.libvirt_up.clone());
        let text = "Connections to libvirt that came back after a loss";
        registry.register("libvirt_reconnects", text, self.reconnects.clone());
        let text = "Whether the journal could be read for this scrape";
        registry.register("journal_readable", text, self.journal_readable.clone());
        let text = "Writes the journal did not take";
        registry.register("journal_write_failures", text, self.journal_failures.clone());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The agent's version", build);
    }

    /// All of them, as they are now.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail; an encoder that failed all the same must not pass for a page.
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(fmt::Error) => {
                tracing::error!("the metrics could not be encoded");
                String::new()
            }
        }
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Series").finish_non_exhaustive()
    }
}
