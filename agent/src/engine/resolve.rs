//! The exits of an operation that needs an operator: it is decided which volume is the disk's, by a person
//! ([`Engine::resolve`]) or by the world, asked again ([`Engine::settle`]).
//!
//! The decision is written down before its effect (the stored definition is made to name the volume that is kept)
//! and with its end. Nothing is removed unless told; the other volume becomes a leftover record.

use std::sync::Arc;

use super::leftovers::{LeftBehind, Retried, record, record_snapshot};
use super::owner::Memory;
use super::steps::verify_move::redefine;
use super::steps::volumes;
use super::{CommandError, Engine, equal, evidence, recovery};
use crate::journal::{Record, StoredOperation, What};
use crate::operation::{
    Event, Evidence, Kept, Leftover, LeftoverKind, MoveResult, Names, OperationView, PhaseSpan,
    Resolution, SourceFate, State, transition,
};
use crate::plan::{Plan, StepKind};
use crate::ports::Comparison;
use crate::report::chain;
use crate::spec::{Identity, LeftoverId, OperationId};

/// An operation with what is known about its volumes.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The operation as it is now.
    pub view: Arc<OperationView>,
    /// The evidence.
    pub evidence: Evidence,
    /// What became of the other volume, when its removal was asked for.
    pub removal: Option<Retried>,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The volume that is kept as the disk's.
    pub keep: Kept,
    /// Remove the other one too.
    pub remove_other: bool,
    /// Who decides: `uid 0`.
    pub by: String,
}

struct Undecided {
    plan: Plan,
    view: OperationView,
    memory: Memory,
}

impl Undecided {
    /// A destination has its name before it has the data: it can only be kept when its copy was complete at some time,
    /// or somebody uses or names it already.
    ///
    /// Errors: why it may not be kept.
    fn allows(&self, keep: Kept, evidence: &Evidence) -> Result<(), String> {
        let complete = [StepKind::AwaitReady, StepKind::CopyImage];
        let switched = [StepKind::Pivot, StepKind::Switch];
        let held = self.memory.proof.is_some()
            || complete.iter().any(|step| self.memory.done.contains(step))
            || switched.iter().any(|step| self.memory.intended.contains(step));
        let named = [&evidence.qemu, &evidence.stored].contains(&&Names::One(Kept::Destination));
        match keep == Kept::Source || held || named {
            true => Ok(()),
            false => {
                Err("the copy was never seen complete, so the destination does not hold the disk"
                    .to_owned())
            }
        }
    }
}

impl Engine {
    /// Shows the evidence about an operation's volumes and changes nothing.
    ///
    /// Errors: no such operation, or the journal.
    pub async fn examine(&self, id: &OperationId) -> Result<Examined, CommandError> {
        let undecided = self.stored(id).await?;
        let evidence = self.evidence(&undecided).await;
        Ok(Examined { view: self.operation(id).await?, evidence, removal: None })
    }

    /// Decides which volume is the disk's.
    ///
    /// Errors: the operation needs no operator, another one works on the disk, QEMU uses the other volume, the volume
    /// to keep is not there, or libvirt does not answer; nothing was changed.
    pub async fn resolve(
        &self,
        id: &OperationId,
        decision: Decision,
    ) -> Result<Examined, CommandError> {
        let alone = self.context.removals.lock().await;
        let undecided = self.undecided(id).await?;
        let evidence = self.evidence(&undecided).await;
        evidence.allows(decision.keep).map_err(|reason| not_allowed(id, reason))?;
        undecided.allows(decision.keep, &evidence).map_err(|reason| not_allowed(id, reason))?;
        let remove_other = decision.remove_other;
        let (view, other) = self.decide(undecided, decision, &evidence).await?;
        // Removing takes the lock itself.
        drop(alone);
        let removal = match other {
            Some(leftover) if remove_other => self.removed(&leftover).await,
            _ => None,
        };
        Ok(Examined { view, evidence, removal })
    }

    /// Asks the world again, and ends the operation as moved or rolled back when there is proof by now. With QEMU gone
    /// both volumes are compared, however long it takes.
    ///
    /// Errors: as [`Self::resolve`], and when there is still no proof.
    pub async fn settle(&self, id: &OperationId) -> Result<Examined, CommandError> {
        // Before the lock: removals of other operations do not wait for it.
        let equal = self.equal(id).await?;
        let _alone = self.context.removals.lock().await;
        let undecided = self.undecided(id).await?;
        let evidence = Evidence { equal, ..self.evidence(&undecided).await };
        let Some(keep) = evidence.proved() else {
            return Err(not_allowed(
                id,
                format!(
                    "nothing proves yet which volume is the current one: {}; decide with `volferry ops resolve {id} \
                     --keep source|destination`",
                    evidence.lines().join("; ")
                ),
            ));
        };
        evidence.allows(keep).map_err(|reason| not_allowed(id, reason))?;
        undecided.allows(keep, &evidence).map_err(|reason| not_allowed(id, reason))?;
        let decision = Decision { keep, remove_other: false, by: "proof".to_owned() };
        let (view, _) = self.decide(undecided, decision, &evidence).await?;
        Ok(Examined { view, evidence, removal: None })
    }

    /// Whether both volumes hold the same, asked only while no QEMU can tell more.
    async fn equal(&self, id: &OperationId) -> Result<Option<Result<bool, String>>, CommandError> {
        let undecided = self.undecided(id).await?;
        if self.evidence(&undecided).await.qemu != Names::Absent {
            return Ok(None);
        }
        let created = undecided.memory.created.as_ref();
        let compared = equal::compare(&self.context.ports, &undecided.plan, created).await;
        Ok(Some(compared.map(|found| found == Comparison::Identical)))
    }

    async fn stored(&self, id: &OperationId) -> Result<Undecided, CommandError> {
        let stored = self.context.journal.stored(id).await.map_err(|error| journal(id, error))?;
        let Some(StoredOperation { plan, view, records }) = stored else {
            return Err(CommandError::UnknownOperation(id.clone()));
        };
        let mut memory = Memory::default();
        records.iter().for_each(|record| recovery::recall(&mut memory, &record.what));
        Ok(Undecided { plan, view, memory })
    }

    /// The operation, if it needs an operator and nothing else works on its disk.
    async fn undecided(&self, id: &OperationId) -> Result<Undecided, CommandError> {
        let undecided = self.stored(id).await?;
        let state = undecided.view.state;
        if state != State::NeedsOperator {
            return Err(not_allowed(id, format!("it is {state} and needs no operator")));
        }
        let plan = &undecided.plan;
        let busy = self.operations().into_iter().find(|other| {
            // Volumes of no domain share its absence and nothing else.
            let disk = !plan.domain.is_none()
                && other.domain_uuid == plan.domain
                && other.target == plan.target;
            !other.state.is_final() && (disk || other.source == plan.source)
        });
        match busy {
            Some(other) => Err(not_allowed(
                id,
                format!("operation {} works on the disk by now", other.spec.operation),
            )),
            None => Ok(undecided),
        }
    }

    async fn evidence(&self, undecided: &Undecided) -> Evidence {
        let proofs: Vec<_> = undecided.memory.proof.into_iter().collect();
        let created = undecided.memory.created.as_ref();
        evidence::gather(&self.context.ports, &undecided.plan, created, &proofs).await
    }

    async fn decide(
        &self,
        undecided: Undecided,
        decision: Decision,
        evidence: &Evidence,
    ) -> Result<(Arc<OperationView>, Option<LeftoverId>), CommandError> {
        let Undecided { plan, mut view, memory } = undecided;
        let id = &plan.spec.operation;
        let now = self.context.ports.clock.now();
        let Decision { keep, remove_other, by } = decision;
        tracing::warn!(operation = %id, %keep, remove_other, by, evidence = ?evidence.lines(), "deciding");
        let intent = What::Resolving { keep, by: by.clone(), remove_other };
        let records = [Record { at: now, what: intent }];
        let noted = self.context.journal.note_undecided(id, &records).await;
        if !noted.map_err(|error| journal(id, error))? {
            return Err(not_allowed(id, "it was decided meanwhile".to_owned()));
        }
        let mut warnings = self.repair(&plan, keep, evidence).await?;
        let event = match keep {
            Kept::Source => Event::ResolvedToSource,
            Kept::Destination => Event::ResolvedToDestination,
        };
        view.state =
            transition(view.state, event).map_err(|error| not_allowed(id, error.to_string()))?;
        view.detail = None;
        if let Some(phase) = view.phases.last_mut() {
            phase.lasted = now.duration_since(phase.entered).ok();
        }
        view.phases.push(PhaseSpan { state: view.state, entered: now, lasted: None });
        view.warnings.append(&mut warnings);
        let other = other(&plan, &memory, keep, now);
        if keep == Kept::Destination {
            view.failure = None;
            view.result = self.result(&plan, &memory, other.as_ref()).await;
            volumes::unmark(&self.context, &plan.destination, id).await;
        }
        view.resolution = Some(Resolution { kept: keep, by, at: now, found: evidence.lines() });
        let records = [Record { at: now, what: What::Transition { event } }];
        let removable = other.as_ref().map(|leftover| leftover.id.clone());
        let left: Vec<Leftover> =
            other.into_iter().chain(snapshot(&plan, &memory, keep, now)).collect();
        let written = self.context.journal.resolve(id, &records, &left, &view).await;
        if !written.map_err(|error| journal(id, error))? {
            return Err(not_allowed(id, "it was decided meanwhile".to_owned()));
        }
        tracing::warn!(operation = %id, state = %view.state, %keep, "decided");
        let view = Arc::new(view);
        self.registry.replace(Arc::clone(&view));
        Ok((view, removable))
    }

    /// Makes the stored definition name what is kept; says what it did.
    ///
    /// Errors: libvirt does not take it; the decision can be repeated.
    async fn repair(
        &self,
        plan: &Plan,
        keep: Kept,
        evidence: &Evidence,
    ) -> Result<Vec<String>, CommandError> {
        let id = &plan.spec.operation;
        let place = evidence.location(keep);
        let mut said = Vec::new();
        let in_use = evidence.qemu == Names::One(keep);
        match &evidence.stored {
            Names::One(named) if *named == keep => {}
            Names::Absent => {}
            Names::Unknown(why) => return Err(not_allowed(id, format!("libvirt: {why}"))),
            Names::Neither if !in_use => said.push(format!(
                "the stored definition names neither volume for disk {} and was left as it is; {place} is kept",
                plan.target
            )),
            Names::One(_) | Names::Neither => {
                let redefined = redefine(&self.context.ports, plan, keep).await;
                redefined
                    .map_err(|error| error.to_string())
                    .and_then(|inner| inner)
                    .map_err(|text| {
                        not_allowed(id, format!("the stored definition could not be set right: {text}"))
                    })?;
                said.push(format!(
                    "the stored definition named another source for disk {}; it now names {place}",
                    plan.target
                ));
            }
        }
        if matches!(&evidence.live, Names::One(named) if *named != keep) {
            said.push(format!(
                "libvirt's live XML does not name {place}: stop and start the guest to set it right"
            ));
        }
        Ok(said)
    }

    async fn result(
        &self,
        plan: &Plan,
        memory: &Memory,
        other: Option<&Leftover>,
    ) -> Option<MoveResult> {
        let location = plan.source.clone();
        let source = match other {
            Some(leftover) => SourceFate::LeftBehind { location, reason: leftover.reason.clone() },
            None => SourceFate::Kept { location },
        };
        let allocated = volumes::allocated(&self.context.ports, &plan.destination).await;
        Some(MoveResult {
            pool: plan.destination_pool.clone(),
            volume: plan.destination.name(),
            location: plan.destination.clone(),
            // Only what is recorded may be kept.
            identity: memory.created.clone()?,
            format: plan.destination_format,
            encryption: plan.destination_encryption.as_ref().map(|known| known.scheme),
            virtual_size: plan.size,
            // Unread, it is told as unknown; nothing depends on it.
            allocated: allocated.ok().flatten(),
            source,
            depends_on: plan.parent_snapshot(),
            ready_to_pivot_us: None,
        })
    }

    async fn removed(&self, leftover: &LeftoverId) -> Option<Retried> {
        match self.retry_leftover(leftover).await {
            Ok(retried) => Some(retried),
            Err(error) => {
                tracing::warn!(%leftover, error = %chain(&error), "the other volume was not removed");
                None
            }
        }
    }
}

/// The record of the volume that is not kept; none of a source the request wants kept.
fn other(plan: &Plan, memory: &Memory, keep: Kept, now: std::time::SystemTime) -> Option<Leftover> {
    let reason = format!("an undecided operation was decided for the {keep}; nothing was removed");
    let left = match keep {
        Kept::Destination if plan.spec.keep_source || plan.spec.keep_source_name => return None,
        Kept::Destination => {
            LeftBehind { kind: LeftoverKind::Source, location: plan.source.clone(), reason }
        }
        Kept::Source => {
            // Without an identity nothing could ever be removed by the record.
            let _: &Identity = memory.created.as_ref()?;
            let location = plan.destination.clone();
            LeftBehind { kind: LeftoverKind::Destination, location, reason }
        }
    };
    Some(record(plan, memory.created.clone(), left, now))
}

/// The record of the snapshot that was made of the source; of a destination that is kept, with its flattening.
fn snapshot(
    plan: &Plan,
    memory: &Memory,
    keep: Kept,
    now: std::time::SystemTime,
) -> Option<Leftover> {
    let parent = plan.parent_snapshot()?;
    let reason =
        format!("an undecided operation was decided for the {keep}; {parent} was made for it");
    let left = LeftBehind { kind: LeftoverKind::Snapshot, location: plan.source.clone(), reason };
    let dependent = memory.created.clone().filter(|_| keep == Kept::Destination);
    Some(record_snapshot(plan, dependent, left, now))
}

fn not_allowed(id: &OperationId, reason: String) -> CommandError {
    CommandError::NotAllowed { operation: id.clone(), reason }
}

fn journal(id: &OperationId, source: crate::journal::JournalError) -> CommandError {
    CommandError::Journal { operation: id.clone(), source }
}
