//! What the service asks of the engine. A trait, so that the edge can be served and tested without one.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::engine::checks::Check;
use crate::engine::doctor::{Orphan, OrphanError, Orphans};
use crate::engine::history::History;
use crate::engine::{
    CommandError, Decision, DiskListing, Engine, Examined, Health, HostListing, LeftoverError,
    PoolListing, Retried, ViewReceiver,
};
use crate::facts::HostFacts;
use crate::journal::JournalError;
use crate::operation::{Leftover, OperationView};
use crate::plan::{Plan, Refusal};
use crate::spec::{BytesPerSecond, DomainReference, LeftoverId, MigrateSpec, OperationId};

/// The calls behind the service. None of them blocks the runtime, each is bounded in time.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Accepts a request, finds the same operation again, or refuses.
    async fn migrate(&self, spec: MigrateSpec) -> Result<Arc<OperationView>, Refusal>;

    /// The plan of a request, without running it.
    async fn plan(&self, spec: MigrateSpec) -> Result<Plan, Refusal>;

    /// One operation.
    async fn operation(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError>;

    /// The whole history of one operation.
    async fn history(&self, id: &OperationId) -> Result<History, CommandError>;

    /// Everything a move needs, looked at.
    async fn checks(&self) -> Vec<Check>;

    /// All operations, newest first.
    async fn operations(&self) -> Result<Vec<Arc<OperationView>>, JournalError>;

    /// Follows one operation.
    async fn watch(&self, id: &OperationId) -> Result<ViewReceiver, CommandError>;

    /// Asks to cancel; the end comes through the view.
    async fn cancel(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError>;

    /// The operator's word to pivot.
    async fn complete(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError>;

    /// Changes the limit of a running copy; none lifts it.
    async fn set_bandwidth(
        &self,
        id: &OperationId,
        limit: Option<BytesPerSecond>,
    ) -> Result<Arc<OperationView>, CommandError>;

    /// The evidence about an operation's two volumes; nothing is changed.
    async fn examine(&self, id: &OperationId) -> Result<Examined, CommandError>;

    /// Decides which volume is the disk's, of an operation that needs an operator.
    async fn resolve(&self, id: &OperationId, decision: Decision)
    -> Result<Examined, CommandError>;

    /// Asks the world again about an operation that needs an operator.
    async fn settle(&self, id: &OperationId) -> Result<Examined, CommandError>;

    /// What finished operations could not remove, oldest first.
    async fn leftovers(&self) -> Result<Vec<Leftover>, LeftoverError>;

    /// Tries once more to remove what is left.
    async fn retry_leftover(&self, id: &LeftoverId) -> Result<Retried, LeftoverError>;

    /// Drops the record of what is left and touches nothing.
    async fn forget_leftover(&self, id: &LeftoverId) -> Result<Leftover, LeftoverError>;

    /// Destinations that no operation knows.
    async fn orphans(&self) -> Result<Orphans, OrphanError>;

    /// Removes those of an operation.
    async fn remove_orphan(&self, id: &OperationId) -> Result<Vec<Orphan>, OrphanError>;

    /// Disks of a domain.
    async fn disks(&self, domain: &DomainReference) -> Result<Vec<DiskListing>, Refusal>;

    /// Pools of the configuration.
    async fn pools(&self) -> Vec<PoolListing>;

    /// The host.
    async fn host(&self) -> HostListing;

    /// Takes other pools and limits from now on; operations that run are not touched.
    fn configure(&self, host: HostFacts);

    /// Whether the agent can do its work, and every change of that.
    fn health(&self) -> watch::Receiver<Health>;

    /// The page of a scrape by Prometheus.
    async fn metrics(&self) -> String;
}

#[async_trait]
impl Agent for Engine {
    async fn migrate(&self, spec: MigrateSpec) -> Result<Arc<OperationView>, Refusal> {
        Engine::migrate(self, spec).await
    }

    async fn plan(&self, spec: MigrateSpec) -> Result<Plan, Refusal> {
        Engine::plan(self, spec).await
    }

    async fn operation(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        Engine::operation(self, id).await
    }

    async fn history(&self, id: &OperationId) -> Result<History, CommandError> {
        self.history_of(id).await
    }

    async fn checks(&self) -> Vec<Check> {
        Engine::checks(self).await
    }

    async fn operations(&self) -> Result<Vec<Arc<OperationView>>, JournalError> {
        Engine::history(self).await
    }

    async fn watch(&self, id: &OperationId) -> Result<ViewReceiver, CommandError> {
        Engine::watch(self, id).await
    }

    async fn cancel(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        Engine::cancel(self, id).await
    }

    async fn complete(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        Engine::complete(self, id).await
    }

    async fn set_bandwidth(
        &self,
        id: &OperationId,
        limit: Option<BytesPerSecond>,
    ) -> Result<Arc<OperationView>, CommandError> {
        Engine::set_bandwidth(self, id, limit).await
    }

    async fn examine(&self, id: &OperationId) -> Result<Examined, CommandError> {
        Engine::examine(self, id).await
    }

    async fn resolve(
        &self,
        id: &OperationId,
        decision: Decision,
    ) -> Result<Examined, CommandError> {
        Engine::resolve(self, id, decision).await
    }

    async fn settle(&self, id: &OperationId) -> Result<Examined, CommandError> {
        Engine::settle(self, id).await
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, LeftoverError> {
        Engine::leftovers(self).await
    }

    async fn retry_leftover(&self, id: &LeftoverId) -> Result<Retried, LeftoverError> {
        Engine::retry_leftover(self, id).await
    }

    async fn forget_leftover(&self, id: &LeftoverId) -> Result<Leftover, LeftoverError> {
        Engine::forget_leftover(self, id).await
    }

    async fn orphans(&self) -> Result<Orphans, OrphanError> {
        Engine::orphans(self).await
    }

    async fn remove_orphan(&self, id: &OperationId) -> Result<Vec<Orphan>, OrphanError> {
        Engine::remove_orphan(self, id).await
    }

    async fn disks(&self, domain: &DomainReference) -> Result<Vec<DiskListing>, Refusal> {
        Engine::disks(self, domain).await
    }

    async fn pools(&self) -> Vec<PoolListing> {
        Engine::pools(self).await
    }

    async fn host(&self) -> HostListing {
        Engine::host(self).await
    }

    fn configure(&self, host: HostFacts) {
        Engine::configure(self, host);
    }

    fn health(&self) -> watch::Receiver<Health> {
        Engine::health(self)
    }

    async fn metrics(&self) -> String {
        Engine::metrics(self).await
    }
}
