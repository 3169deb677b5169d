//! Carries plans out: one owner task per operation, every effect journaled before and after.
//!
//! [`Engine`] is the handle everybody else holds: it admits requests, answers from published views and passes
//! wishes on. Only an operation's owner task changes the operation. Deciding what is right is `plan/`'s and
//! `operation/`'s work; touching the world is the ports'.

mod backoff;
mod begin;
pub mod checks;
mod context;
pub mod doctor;
mod equal;
mod evidence;
mod health;
pub mod history;
pub mod inventory;
mod leftovers;
mod lives;
pub mod observe;
mod owner;
mod probe;
mod pulse;
mod recovery;
mod registry;
mod resolve;
mod settle;
mod steps;
mod turns;
mod users;
mod wishes;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

pub use context::Tuning;
use context::{Context, Parts};
pub use health::Health;
pub use inventory::{DiskListing, HostListing, PoolListing, PoolPlace};
pub use leftovers::{LeftoverError, Retried};
use observe::Located;
use owner::Owner;
pub use pulse::Pulse;
use registry::{Registry, Reservation};
pub use resolve::{Decision, Examined};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::facts::HostFacts;
use crate::journal::{Journal, JournalError, StoredOperation, Wish};
use crate::metrics::{Kept, Recovery};
use crate::operation::{Admission, OperationView, State};
use crate::plan::{Plan, Refusal, RefusalCode, being_made, snapshots};
use crate::ports::Ports;
use crate::report::chain;
use crate::spec::{BytesPerSecond, DomainReference, MigrateSpec, OperationId};

/// How many finished operations are kept at hand; older ones are read from the journal when somebody asks.
const FINISHED_AT_HAND: usize = 32;
/// How many finished operations are listed.
const FINISHED_LISTED: usize = 1000;

/// The engine; cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    context: Arc<Context>,
    registry: Arc<Registry>,
    tasks: TaskTracker,
    stop: CancellationToken,
    health: watch::Sender<Health>,
}

/// Why a command to an operation was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No such operation.
    #[error("there is no operation {0}")]
    UnknownOperation(OperationId),
    /// The state does not allow it.
    #[error("operation {operation}: {reason}")]
    NotAllowed {
        /// The operation.
        operation: OperationId,
        /// Why.
        reason: String,
    },
    /// The journal could not be read or written.
    #[error("the history of operation {operation} could not be read or written")]
    Journal {
        /// The operation.
        operation: OperationId,
        /// Why.
        #[source]
        source: JournalError,
    },
}

/// A published view that changes.
pub type ViewReceiver = watch::Receiver<Arc<OperationView>>;

impl Engine {
    /// Opens the engine over a journal and settles every unfinished operation into an owner task.
    ///
    /// Returns once each of them has an owner; what they find out comes through their views.
    /// Errors: the journal cannot be read.
    pub async fn start(
        ports: Ports,
        journal: Journal,
        host: HostFacts,
        tuning: Tuning,
    ) -> Result<Self, JournalError> {
        let unfinished = journal.unfinished().await?;
        let finished = journal.finished(FINISHED_AT_HAND).await?;
        let registry = Arc::new(Registry::new(finished, FINISHED_AT_HAND));
        let parts = Parts { ports, journal, host, tuning };
        let engine = Self {
            context: Arc::new(Context::new(parts, Arc::clone(&registry))),
            registry,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            health: watch::Sender::new(Health { libvirt_away: true, recovering: true }),
        };
        engine.take_up(unfinished);
        engine.context.turns.open();
        engine.spawn(engine.clone().purge());
        engine.spawn(health::follow_libvirt(Arc::clone(&engine.context), engine.health.clone()));
        Ok(engine)
    }

    /// Gives every unfinished operation an owner.
    fn take_up(&self, unfinished: Vec<StoredOperation>) {
        let mut resumed = Vec::new();
        for stored in unfinished {
            tracing::info!(
                operation = %stored.view.spec.operation,
                state = %stored.view.state,
                "settling an unfinished operation"
            );
            self.context.metrics.recovered(Recovery::Restart);
            let why = "taken up again after a restart of the agent";
            let view = self.own(|context, links| recovery::rebuild(context, stored, links, why));
            // What waits for its turn has nothing to be looked at.
            if view.state != State::Queued {
                resumed.extend(self.registry.follow(&view.spec.operation));
            }
        }
        let (context, health) = (Arc::clone(&self.context), self.health.clone());
        self.spawn(health::follow_recovery(context, resumed, health));
    }

    /// Takes other pools and limits from now on; operations that run are not touched.
    pub fn configure(&self, host: HostFacts) {
        self.context.configure(host);
    }

    /// A task that ends with the engine.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(task).await });
    }

    /// Whether the agent can do its work, and every change of that.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// The page of a scrape by Prometheus.
    pub async fn metrics(&self) -> String {
        let journal = &self.context.journal;
        let kept = async {
            Ok(Kept { states: journal.states().await?, leftovers: journal.leftovers().await? })
        };
        let kept: Result<Kept, JournalError> = kept.await;
        if let Err(error) = &kept {
            tracing::warn!(error = %chain(error), "the journal cannot be read for the metrics");
        }
        self.context.metrics.page(self.context.ports.events.connected(), kept).await
    }

    /// Stops every owner task without touching the world: copies go on in QEMU and are taken up again at the next
    /// start.
    pub async fn stop(&self) {
        self.context.turns.close();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn own(&self, build: impl FnOnce(Arc<Context>, owner::Links) -> Owner) -> Arc<OperationView> {
        let (links, handle) = owner::link(self.context.ports.events.subscribe());
        let owner = build(Arc::clone(&self.context), links);
        let view = owner.published();
        self.registry.insert(Arc::clone(&view), handle, owner.follow());
        let (engine, stop) = (self.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let id = owner.id().clone();
            // Dropping an owner at any await is a crash like any other: the journal knows what was intended.
            let end = stop.run_until_cancelled(lives::run(&engine.context, owner)).await;
            if let Some(Some(view)) = end {
                engine.context.metrics.ended(&view);
                engine.registry.finish(&id, view);
            }
        });
        view
    }

    /// Accepts a request, finds the same operation again, or refuses.
    ///
    /// Errors: a refusal; nothing was changed.
    pub async fn migrate(&self, spec: MigrateSpec) -> Result<Arc<OperationView>, Refusal> {
        let accepted = self.accept(spec).await;
        if let Err(refusal) = &accepted {
            self.context.metrics.refused(refusal.code);
        }
        accepted
    }

    async fn accept(&self, mut spec: MigrateSpec) -> Result<Arc<OperationView>, Refusal> {
        // Out of what is compared, published and written down.
        let passphrases = std::mem::take(&mut spec.passphrases);
        let _reservation = match self.registry.reserve(&spec).await {
            Reservation::Known(view) => return same(&spec, view),
            Reservation::Reserved(guard) => guard,
        };
        if let Ok(Some(view)) = self.context.journal.view(&spec.operation).await {
            return same(&spec, Arc::new(view));
        }
        let located = observe::locate(&self.context, &spec).await?;
        // Claimed before the long look at the world, so that of two requests at once only one goes on.
        let claim = match self.registry.claim(&spec, &located) {
            Ok(claim) => claim,
            Err(admission) => return Err(not_admitted(&spec, &admission, &located)),
        };
        let plan = observe::plan(&self.context, &spec, &passphrases, &located).await?;
        check_checkpoints(&spec, &located)?;
        let destination = &plan.destination;
        claim.take_destination(destination).map_err(|other| being_made(destination, &other))?;
        let view = owner::first_view(&plan, self.context.ports.clock.now());
        if let Err(error) = self.context.journal.create(&plan, &view).await {
            tracing::error!(error = %chain(&error), "the journal took no new operation");
            self.context.metrics.journal_refused();
            return Err(Refusal::new(
                RefusalCode::Busy,
                format!("the agent cannot write its journal: {}", chain(&error)),
            ));
        }
        let view = self.own(|context, links| Owner::new(context, plan, view, passphrases, links));
        claim.keep();
        Ok(view)
    }

    /// The plan of a request, without running it.
    ///
    /// Errors: a refusal.
    pub async fn plan(&self, mut spec: MigrateSpec) -> Result<Plan, Refusal> {
        let passphrases = std::mem::take(&mut spec.passphrases);
        let located = observe::locate(&self.context, &spec).await?;
        if let busy @ Admission::Busy(_) = self.registry.admit(&spec, &located) {
            return Err(not_admitted(&spec, &busy, &located));
        }
        let plan = observe::plan(&self.context, &spec, &passphrases, &located).await?;
        check_checkpoints(&spec, &located)?;
        Ok(plan)
    }

    /// One operation, at hand or from the journal.
    pub async fn operation(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        if let Some(view) = self.registry.view(id) {
            return Ok(view);
        }
        match self.context.journal.view(id).await {
            Ok(Some(view)) => Ok(Arc::new(view)),
            Ok(None) => Err(CommandError::UnknownOperation(id.clone())),
            Err(source) => Err(CommandError::Journal { operation: id.clone(), source }),
        }
    }

    /// The operations at hand: all unfinished ones and the very newest finished ones, newest first.
    pub fn operations(&self) -> Vec<Arc<OperationView>> {
        self.registry.views()
    }

    /// All unfinished operations and the newest thousand finished ones, newest first. What is at hand is newer than
    /// what the journal says of it.
    ///
    /// Errors: the journal cannot be read.
    pub async fn history(&self) -> Result<Vec<Arc<OperationView>>, JournalError> {
        let finished = self.context.journal.finished(FINISHED_LISTED).await?;
        let mut views = self.registry.views();
        let known: HashSet<OperationId> =
            views.iter().map(|view| view.spec.operation.clone()).collect();
        let older = finished.into_iter().filter(|view| !known.contains(&view.spec.operation));
        views.extend(older.map(Arc::new));
        views.sort_by_key(|view| std::cmp::Reverse(view.accepted()));
        Ok(views)
    }

    /// Follows one operation; of one that has ended, the receiver holds its last view and is closed.
    pub async fn watch(&self, id: &OperationId) -> Result<ViewReceiver, CommandError> {
        if let Some(receiver) = self.registry.follow(id) {
            return Ok(receiver);
        }
        let view = self.operation(id).await?;
        Ok(watch::channel(view).1)
    }

    /// Asks to cancel. Returns at once; the end comes through the view.
    ///
    /// Errors: the pivot has been intended, or the operation has ended.
    pub async fn cancel(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        let view = self.operation(id).await?;
        if !view.state.can_cancel() {
            return Err(CommandError::NotAllowed {
                operation: id.clone(),
                reason: format!("it is {} and can no longer be cancelled", view.state),
            });
        }
        let cancel = |wishes: &mut wishes::Wishes| wishes.cancel = true;
        match self.wish(id, Wish::Cancel, cancel).await {
            // A journal that takes nothing keeps no operator from ending a copy; what is killed before it is ended fails
            // for want of its job.
            Err(CommandError::Journal { operation, source }) => {
                tracing::error!(%operation, error = %chain(&source), "a cancel is not on record");
                let passed_on = self.registry.wish(id, cancel);
                passed_on.ok_or(CommandError::Journal { operation, source })
            }
            answered => answered,
        }
    }

    /// The operator's word to pivot as soon as the copy is ready.
    pub async fn complete(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        let view = self.operation(id).await?;
        if !view.spec.manual_pivot || !view.state.can_cancel() {
            return Err(CommandError::NotAllowed {
                operation: id.clone(),
                reason: format!("it is {} and waits for no word to pivot", view.state),
            });
        }
        self.wish(id, Wish::Pivot, |wishes| wishes.pivot = true).await
    }

    /// Changes the limit of a copy, running or to come; none lifts it.
    pub async fn set_bandwidth(
        &self,
        id: &OperationId,
        limit: Option<BytesPerSecond>,
    ) -> Result<Arc<OperationView>, CommandError> {
        let view = self.operation(id).await?;
        if !view.state.can_cancel() {
            return Err(CommandError::NotAllowed {
                operation: id.clone(),
                reason: format!("it is {} and copies no more", view.state),
            });
        }
        if view.offline {
            return Err(CommandError::NotAllowed {
                operation: id.clone(),
                reason: "the limit of an offline copy holds from its beginning to its end"
                    .to_owned(),
            });
        }
        self.wish(id, Wish::Bandwidth { limit }, |wishes| wishes.bandwidth = Some(limit)).await
    }

    /// Written down first: what was answered survives a kill of the agent.
    async fn wish(
        &self,
        id: &OperationId,
        wish: Wish,
        change: impl FnOnce(&mut wishes::Wishes),
    ) -> Result<Arc<OperationView>, CommandError> {
        let now = self.context.ports.clock.now();
        let written = self.context.journal.wish(id, now, wish).await;
        let unfinished =
            written.map_err(|source| CommandError::Journal { operation: id.clone(), source })?;
        if unfinished && let Some(view) = self.registry.wish(id, change) {
            return Ok(view);
        }
        Err(CommandError::NotAllowed {
            operation: id.clone(),
            reason: format!("it is {}", self.operation(id).await?.state),
        })
    }

    /// The disks of a domain and whether they can be moved live.
    pub async fn disks(&self, domain: &DomainReference) -> Result<Vec<DiskListing>, Refusal> {
        inventory::disks(&self.context, domain).await
    }

    /// The pools of the configuration.
    pub async fn pools(&self) -> Vec<PoolListing> {
        inventory::pools(&self.context).await
    }

    /// The host.
    pub async fn host(&self) -> HostListing {
        inventory::host(&self.context).await
    }
}

/// A checkpoint whose loss is allowed must be one the domain has.
fn check_checkpoints(spec: &MigrateSpec, located: &Located) -> Result<(), Refusal> {
    match &located.domain {
        Some(domain) => snapshots::check_names(spec, &domain.name, &domain.snapshots),
        None => Ok(()),
    }
}

fn same(spec: &MigrateSpec, view: Arc<OperationView>) -> Result<Arc<OperationView>, Refusal> {
    if view.spec == *spec { Ok(view) } else { Err(id_taken(spec)) }
}

fn not_admitted(spec: &MigrateSpec, admission: &Admission, located: &Located) -> Refusal {
    match admission {
        Admission::Busy(other) => Refusal::new(
            RefusalCode::Busy,
            format!("{} is being moved by operation {other}", located.words()),
        ),
        Admission::Accepted | Admission::Same(_) | Admission::IdTaken => id_taken(spec),
    }
}

fn id_taken(spec: &MigrateSpec) -> Refusal {
    Refusal::new(
        // Waiting does not help: the id never becomes free.
        RefusalCode::InvalidName,
        format!(
            "the operation id {} belongs to another request: choose another id",
            spec.operation
        ),
    )
}
