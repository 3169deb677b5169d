//! The task that owns one operation: its state, its memory, and the way forward through its plan.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{broadcast, watch};

use super::backoff::Backoff;
use super::context::Context;
use super::turns::Place;
use super::wishes::Wishes;
use super::{ViewReceiver, begin, settle, steps, turns};
use crate::journal::{JournalError, Proof, Record, StepOutcome, What};
use crate::operation::{
    Event, Failure, FailureCause, Leftover, OperationView, PhaseSpan, Progress, Side, State,
    transition,
};
use crate::plan::{Plan, StepKind};
use crate::ports::TimedEvent;
use crate::report::chain;
use crate::spec::{Bytes, BytesPerSecond, Identity, OperationId, Passphrases};

/// Why the way forward ended before the pivot.
#[derive(Debug)]
pub enum Stop {
    /// It failed: undo, then `failed`.
    Failed(Failure),
    /// It was cancelled: undo, then `cancelled`.
    Cancelled,
    /// What is true cannot be proved: touch nothing, `needs-operator`.
    Undecided(Failure),
}

/// What the registry keeps of an owner.
#[derive(Debug)]
pub struct Handle {
    /// Where wishes go.
    pub wishes: watch::Sender<Wishes>,
}

/// What an owner is born with.
#[derive(Debug)]
pub struct Links {
    wishes: watch::Receiver<Wishes>,
    events: broadcast::Receiver<TimedEvent>,
    /// Those who follow the operation already, when another owner of it was lost.
    publisher: Option<watch::Sender<Arc<OperationView>>>,
}

/// Makes both ends. Events are subscribed before the first effect, so that none is missed.
pub fn link(events: broadcast::Receiver<TimedEvent>) -> (Links, Handle) {
    let (sender, receiver) = watch::channel(Wishes::default());
    (Links { wishes: receiver, events, publisher: None }, Handle { wishes: sender })
}

/// What the owner that takes the place of a lost one is born with: the same wishes, the same followers.
pub fn link_again(
    wishes: watch::Receiver<Wishes>,
    events: broadcast::Receiver<TimedEvent>,
    publisher: watch::Sender<Arc<OperationView>>,
) -> Links {
    Links { wishes, events, publisher: Some(publisher) }
}

/// What the owner remembers besides the published view; rebuilt from the journal after a crash.
#[derive(Debug, Default)]
pub struct Memory {
    /// Rebuilt from the journal: events may have been missed.
    pub resumed: bool,
    /// Steps whose effect was intended, in order.
    pub intended: Vec<StepKind>,
    /// Steps that had their effect.
    pub done: Vec<StepKind>,
    /// The destination's identity.
    pub created: Option<Identity>,
    /// Evidence of the pivot.
    pub proof: Option<Proof>,
    /// The limit last given to libvirt in this life.
    pub bandwidth: Option<Option<BytesPerSecond>>,
    /// The limit last asked for in an earlier life, which may not have come to it.
    pub bandwidth_wished: Option<Option<BytesPerSecond>>,
    /// A cancel was asked for in an earlier life.
    pub cancel_wished: bool,
    /// The operator gave the word to pivot.
    pub pivot_wished: bool,
    /// QEMU's words about a failed job: its error, and which side it named.
    pub words: steps::words::Words,
    /// When the READY callback was entered.
    pub ready_at: Option<Instant>,
    /// From there to the pivot call, microseconds.
    pub ready_to_pivot_us: Option<u64>,
    /// When the destination was last known to hold what the source held, in this life: copied, cloned or compared.
    pub equal_at: Option<tokio::time::Instant>,
    /// The stored definition was about to name the destination, in this life.
    pub redefining: bool,
    /// Why the source must not be removed.
    pub keep_reason: Option<String>,
    /// The passphrases of the request, until the destination is made, or an offline copy is switched to; none after a
    /// restart.
    pub passphrases: Passphrases,
}

/// The owner of one operation.
#[derive(Debug)]
pub struct Owner {
    pub(super) context: Arc<Context>,
    pub(super) plan: Plan,
    pub(super) view: OperationView,
    pub(super) memory: Memory,
    pub(super) wishes: watch::Receiver<Wishes>,
    pub(super) events: broadcast::Receiver<TimedEvent>,
    pub(super) place: Place,
    publisher: watch::Sender<Arc<OperationView>>,
    /// Records the journal did not take; they go before the next ones, so that no edge is ever missing in it.
    unwritten: Vec<Record>,
    /// What stays behind, to be written down with the end.
    pub(super) leftovers: Vec<Leftover>,
    /// How much of the copy the metrics have.
    counted: Option<Bytes>,
    /// When the present state was entered; none where that was in an earlier life.
    entered: Option<tokio::time::Instant>,
}

/// The view of an operation just accepted.
pub fn first_view(plan: &Plan, now: SystemTime) -> OperationView {
    OperationView {
        spec: plan.spec.clone(),
        offline: plan.is_offline(),
        domain_name: plan.domain_name.clone(),
        domain_uuid: plan.domain.clone(),
        target: plan.target.clone(),
        source_pool: plan.source_pool.clone(),
        source: plan.source.clone(),
        destination: plan.destination.clone(),
        state: State::Queued,
        detail: None,
        phases: vec![PhaseSpan { state: State::Queued, entered: now, lasted: None }],
        progress: Progress::default(),
        bandwidth: plan.spec.bandwidth,
        waits_for_pivot: false,
        warnings: plan.warnings.clone(),
        failure: None,
        result: None,
        resolution: None,
    }
}

impl Owner {
    /// The owner of a fresh operation.
    pub fn new(
        context: Arc<Context>,
        plan: Plan,
        view: OperationView,
        passphrases: Passphrases,
        links: Links,
    ) -> Self {
        let memory = Memory { passphrases, ..Memory::default() };
        let owner = Self::with_memory(context, plan, view, memory, links);
        Self { entered: Some(tokio::time::Instant::now()), ..owner }
    }

    /// An owner that takes up where the journal left off.
    pub fn with_memory(
        context: Arc<Context>,
        plan: Plan,
        view: OperationView,
        memory: Memory,
        links: Links,
    ) -> Self {
        let place = context.turns.enter(&plan, view.state);
        let mut view = view;
        view.detail = turns::detail(place.turn().as_ref(), &view);
        let publisher = match links.publisher {
            Some(publisher) => {
                publisher.send_replace(Arc::new(view.clone()));
                publisher
            }
            None => watch::channel(Arc::new(view.clone())).0,
        };
        Self {
            context,
            plan,
            view,
            memory,
            wishes: links.wishes,
            events: links.events,
            place,
            publisher,
            unwritten: Vec::new(),
            leftovers: Vec::new(),
            counted: None,
            entered: None,
        }
    }

    /// The operation's id.
    pub fn id(&self) -> &OperationId {
        &self.plan.spec.operation
    }

    /// The view as last published.
    pub fn published(&self) -> Arc<OperationView> {
        Arc::clone(&self.publisher.borrow())
    }

    /// A receiver of the views.
    pub fn follow(&self) -> ViewReceiver {
        self.publisher.subscribe()
    }

    /// Where the views go, and where the wishes come from: both outlive the owner.
    pub fn lines(&self) -> (watch::Sender<Arc<OperationView>>, watch::Receiver<Wishes>) {
        (self.publisher.clone(), self.wishes.clone())
    }

    /// Ends an operation that no owner can carry on: what has moved has moved; anything else is undone, unless its
    /// pivot was intended or `nothing_more` can be tried: then it needs an operator.
    pub async fn give_up(mut self, text: String, nothing_more: bool) -> Arc<OperationView> {
        if self.view.state.is_moved() {
            self.warn(format!("the source was not dealt with: {text}"));
            steps::finish(&mut self).await;
        } else {
            let failure = Failure::new(FailureCause::Internal, Side::Host, text);
            let undecided = nothing_more || self.view.state == State::Pivoting;
            let stop = if undecided { Stop::Undecided(failure) } else { Stop::Failed(failure) };
            settle::settle(&mut self, stop).await;
        }
        self.end().await
    }

    /// Runs the operation to its end and returns the last view.
    pub async fn run(mut self) -> Arc<OperationView> {
        if let Err(stop) = self.forward().await {
            settle::settle(&mut self, stop).await;
        }
        self.end().await
    }

    async fn end(mut self) -> Arc<OperationView> {
        self.publish();
        self.place.leave();
        self.write_end_down().await;
        self.published()
    }

    /// What the journal did not take is offered to it until it does: an end that only the memory knows would be sought
    /// again by the next life.
    async fn write_end_down(&mut self) {
        let mut backoff = Backoff::unbounded(&self.context.tuning);
        while !self.is_on_record() {
            backoff.wait().await;
            if let Err(error) = self.note(vec![]).await {
                tracing::error!(operation = %self.id(), error = %chain(&error), "its end is not on record");
            }
        }
    }

    /// Whether the journal holds all there is to know.
    pub(super) fn is_on_record(&self) -> bool {
        self.unwritten.is_empty() && self.leftovers.is_empty()
    }

    async fn forward(&mut self) -> Result<(), Stop> {
        if self.view.state == State::RollingBack {
            return Err(match self.view.failure.clone() {
                Some(failure) => Stop::Failed(failure),
                None => Stop::Cancelled,
            });
        }
        if self.view.state == State::Queued {
            begin::run(self).await?;
        }
        for step in self.plan.steps.clone() {
            if !self.memory.done.contains(&step.kind()) {
                steps::run(self, &step).await?;
            }
        }
        steps::finish(self).await;
        Ok(())
    }

    /// Publishes the view without writing it down: progress and details.
    pub(super) fn publish(&self) {
        self.publisher.send_replace(Arc::new(self.view.clone()));
    }

    /// Says what is going on, if it changed.
    pub(super) fn say(&mut self, detail: Option<String>) {
        if self.view.detail != detail {
            self.view.detail = detail;
            self.publish();
        }
    }

    /// Writes records down with the present view.
    pub(super) async fn note(&mut self, what: Vec<What>) -> Result<(), JournalError> {
        let at = self.context.ports.clock.now();
        #[cfg(feature = "testing")]
        let what = self.context.tuning.forget_intent(what);
        self.unwritten.extend(what.into_iter().map(|what| Record { at, what }));
        let id = self.plan.spec.operation.clone();
        let (records, leftovers) = (&self.unwritten, &self.leftovers);
        let written = self.context.journal.append(&id, records, leftovers, &self.view).await;
        self.on_record(written)?;
        self.unwritten.clear();
        self.leftovers.clear();
        self.publish();
        Ok(())
    }

    /// Writes an edge down that was taken, with the plan that is followed from there.
    pub(super) async fn note_plan(&mut self, event: Event) -> Result<(), JournalError> {
        let at = self.context.ports.clock.now();
        self.unwritten.push(Record { at, what: What::Transition { event } });
        let plan = &self.plan;
        let written = self.context.journal.replan(plan, &self.unwritten, &self.view).await;
        self.on_record(written)?;
        self.unwritten.clear();
        self.publish();
        Ok(())
    }

    fn on_record(&self, written: Result<(), JournalError>) -> Result<(), JournalError> {
        if written.is_err() {
            self.context.metrics.journal_refused();
        }
        written
    }

    /// Takes a look at the running copy into the view, and counts what was copied since the last one.
    pub(super) fn look(&mut self, progress: Progress) {
        let copied = progress.copied;
        // What an earlier life copied was counted in it. Numbers may run backwards.
        let before = self.counted.unwrap_or(if self.memory.resumed { copied } else { Bytes(0) });
        if copied > before {
            self.context.metrics.copied(&self.view, Bytes(copied.0 - before.0));
        }
        self.counted = Some(before.max(copied));
        self.view.progress = progress;
    }

    /// Counts what no look at the copy saw: at least what the destination occupies was copied. Of a copy that was begun in
    /// an earlier life and never seen in this one, nothing is.
    pub(super) fn copied_at_least(&mut self, occupied: Bytes) {
        let before = match self.counted {
            None if self.memory.resumed => return,
            seen => seen.unwrap_or(Bytes(0)),
        };
        if occupied > before {
            self.context.metrics.copied(&self.view, Bytes(occupied.0 - before.0));
            self.counted = Some(occupied);
        }
    }

    /// When a time that counts from the request is over.
    pub(super) fn expires(&self, after: Duration) -> tokio::time::Instant {
        let now = self.context.ports.clock.now();
        let age = self.view.accepted().and_then(|accepted| now.duration_since(accepted).ok());
        tokio::time::Instant::now() + after.saturating_sub(age.unwrap_or_default())
    }

    /// Takes an edge of the state machine and writes it down, with `more` in the same transaction.
    ///
    /// Errors: the journal takes nothing, or the edge does not exist; the effect that was to follow must not begin.
    pub(super) async fn advance(&mut self, event: Event, more: Vec<What>) -> Result<(), Stop> {
        self.enter(event).map_err(Stop::Failed)?;
        let mut what = vec![What::Transition { event }];
        what.extend(more);
        self.note(what).await.map_err(|error| Stop::Failed(internal(&error)))
    }

    /// The same once nothing may fail any more: what cannot be written down is only said.
    pub(super) async fn advance_anyway(&mut self, event: Event, more: Vec<What>) {
        if let Err(failure) = self.enter(event) {
            tracing::error!(operation = %self.id(), %failure, "an edge is missing");
        }
        let mut what = vec![What::Transition { event }];
        what.extend(more);
        self.note_anyway(what).await;
    }

    /// Writes records down; what cannot be written down is only said.
    pub(super) async fn note_anyway(&mut self, what: Vec<What>) {
        if let Err(error) = self.note(what).await {
            tracing::error!(operation = %self.id(), error = %chain(&error), "journal write failed");
            self.warn(format!("the agent's journal could not be written: {}", chain(&error)));
        }
    }

    pub(super) fn enter(&mut self, event: Event) -> Result<(), Failure> {
        let next = transition(self.view.state, event).map_err(|error| internal(&error))?;
        let now = self.context.ports.clock.now();
        let entered = tokio::time::Instant::now();
        if let Some(phase) = self.view.phases.last_mut() {
            // A clock that is set meanwhile matters to what began in an earlier life only.
            phase.lasted = match self.entered {
                Some(before) => Some(entered - before),
                None => now.duration_since(phase.entered).ok(),
            };
        }
        self.entered = Some(entered);
        self.view.phases.push(PhaseSpan { state: next, entered: now, lasted: None });
        self.view.state = next;
        if !matches!(next, State::Queued | State::Planned | State::Preparing | State::Copying) {
            // In step, or on the way back: what is written from here on nobody can foresee.
            self.place.needs(Bytes(0));
        }
        self.view.detail = None;
        self.view.waits_for_pivot &= next == State::Ready;
        tracing::info!(
            operation = %self.id(),
            domain = %self.plan.domain_name,
            disk = %self.plan.target,
            subject = %self.plan.subject(),
            state = %next,
            "state"
        );
        Ok(())
    }

    /// Remembers something the client should know.
    pub(super) fn warn(&mut self, text: String) {
        tracing::warn!(operation = %self.id(), "{text}");
        if !self.view.warnings.contains(&text) {
            self.view.warnings.push(text);
        }
        self.publish();
    }

    /// Writes an intent down. After this the effect may begin.
    pub(super) async fn intend(&mut self, step: StepKind) -> Result<(), Stop> {
        self.remember_intent(step);
        self.note(vec![What::Intent { step }]).await.map_err(|error| Stop::Failed(internal(&error)))
    }

    /// Remembers an intent that is written down with something else.
    pub(super) fn remember_intent(&mut self, step: StepKind) {
        if !self.memory.intended.contains(&step) {
            self.memory.intended.push(step);
        }
    }

    /// Writes a result down.
    pub(super) async fn done(&mut self, step: StepKind, outcome: StepOutcome) -> Result<(), Stop> {
        self.remember_done(step, &outcome);
        self.note(vec![What::Done { step, outcome }])
            .await
            .map_err(|error| Stop::Failed(internal(&error)))
    }

    /// Remembers a result that is written down with something else.
    pub(super) fn remember_done(&mut self, step: StepKind, outcome: &StepOutcome) {
        if let StepOutcome::Created { identity } = outcome {
            self.memory.created = Some(identity.clone());
        }
        if matches!(step, StepKind::CloneSource | StepKind::CopyImage | StepKind::CompareImages) {
            self.memory.equal_at = Some(tokio::time::Instant::now());
        }
        if !self.memory.done.contains(&step) {
            self.memory.done.push(step);
        }
    }

    /// True when the step was begun before, by this owner or one before it.
    pub(super) fn was_intended(&self, step: StepKind) -> bool {
        self.memory.intended.contains(&step)
    }

    /// Hears everything reported so far.
    pub(super) fn hear_all(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(event) => {
                    self.memory.words.hear(&event, &self.plan.domain, &self.plan.target);
                }
                Err(TryRecvError::Lagged(_)) => self.memory.words.miss(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// Ends the way forward when a cancel is wished for.
    pub(super) fn check_cancel(&self) -> Result<(), Stop> {
        let wished = self.wishes.borrow().cancel || self.memory.cancel_wished;
        if wished { Err(Stop::Cancelled) } else { Ok(()) }
    }
}

/// A fault of the agent itself.
pub(super) fn internal(error: &dyn std::error::Error) -> Failure {
    Failure::new(FailureCause::Internal, Side::Host, chain(error))
}
