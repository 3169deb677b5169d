//! The states of an operation and the one function that moves between them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Accepted, waiting for its turn.
    Queued,
    /// The plan is journaled; nothing has been changed.
    Planned,
    /// The destination is being made.
    Preparing,
    /// QEMU copies; the guest writes to the source.
    Copying,
    /// The copy is in step with the source (READY was seen).
    Ready,
    /// The pivot was intended; until its outcome is known the answer is open.
    Pivoting,
    /// The pivot took effect: the volume lives at the destination.
    Moved,
    /// The source is being retired and removed.
    Cleaning,
    /// Ended: moved.
    Succeeded,
    /// Everything made so far is being undone.
    RollingBack,
    /// Ended: not moved, the volume is where it was.
    Failed,
    /// Ended: not moved, on request.
    Cancelled,
    /// Ended: what is true could not be proved, or libvirt's live XML contradicts it; both volumes are kept.
    NeedsOperator,
}

/// What moves an operation from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The plan was written down.
    PlanRecorded,
    /// The first effect is intended.
    PreparationBegan,
    /// The block copy was started.
    CopyStarted,
    /// READY was seen.
    CopyReady,
    /// A pivot is intended.
    PivotIntended,
    /// The pivot certainly did not happen and the job still mirrors.
    PivotNotDone,
    /// There is proof that the pivot took effect.
    PivotProved,
    /// Retiring the source is intended.
    CleaningBegan,
    /// All that could be done was done.
    Finished,
    /// A failure before the pivot.
    FailureSeen,
    /// A request to cancel before the pivot.
    CancelRequested,
    /// Undone after a failure.
    RolledBackFailed,
    /// Undone after a cancel.
    RolledBackCancelled,
    /// No proof either way.
    ProofMissing,
    /// The move is proved, and QEMU or libvirt's live XML says otherwise.
    MoveDisputed,
    /// An undecided operation was decided after all: the destination is the disk's volume.
    ResolvedToDestination,
    /// The same: the source is.
    ResolvedToSource,
}

/// An event that a state has no edge for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event {event} is not allowed in state {state}")]
pub struct IllegalEvent {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 13] = [
        Self::Queued,
        Self::Planned,
        Self::Preparing,
        Self::Copying,
        Self::Ready,
        Self::Pivoting,
        Self::Moved,
        Self::Cleaning,
        Self::Succeeded,
        Self::RollingBack,
        Self::Failed,
        Self::Cancelled,
        Self::NeedsOperator,
    ];

    /// True when the operation has ended. The state never changes again, but for the one exit of `needs-operator`:
    /// it is decided afterwards which volume is the disk's.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::NeedsOperator)
    }

    /// True while a cancel is honoured: every state before the pivot is intended.
    pub const fn can_cancel(self) -> bool {
        matches!(self, Self::Queued | Self::Planned | Self::Preparing | Self::Copying | Self::Ready)
    }

    /// True once the volume certainly lives at the destination.
    pub const fn is_moved(self) -> bool {
        matches!(self, Self::Moved | Self::Cleaning | Self::Succeeded)
    }

    /// The state's name in texts and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Planned => "planned",
            Self::Preparing => "preparing",
            Self::Copying => "copying",
            Self::Ready => "ready",
            Self::Pivoting => "pivoting",
            Self::Moved => "moved",
            Self::Cleaning => "cleaning",
            Self::Succeeded => "succeeded",
            Self::RollingBack => "rolling-back",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::NeedsOperator => "needs-operator",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 17] = [
        Self::PlanRecorded,
        Self::PreparationBegan,
        Self::CopyStarted,
        Self::CopyReady,
        Self::PivotIntended,
        Self::PivotNotDone,
        Self::PivotProved,
        Self::CleaningBegan,
        Self::Finished,
        Self::FailureSeen,
        Self::CancelRequested,
        Self::RolledBackFailed,
        Self::RolledBackCancelled,
        Self::ProofMissing,
        Self::MoveDisputed,
        Self::ResolvedToDestination,
        Self::ResolvedToSource,
    ];
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The only way from one state to another.
///
/// Errors: the state has no edge for the event; nothing may then be done.
pub fn transition(state: State, event: Event) -> Result<State, IllegalEvent> {
    use Event as E;
    use State as S;
    let next = match (state, event) {
        (S::Queued, E::PlanRecorded) => S::Planned,
        (S::Planned, E::PreparationBegan) => S::Preparing,
        (S::Preparing, E::CopyStarted) => S::Copying,
        // The guest's writes can take a copy out of step only while it copies; READY is reported once.
        (S::Copying, E::CopyReady) => S::Ready,
        (S::Ready, E::PivotIntended) => S::Pivoting,
        (S::Pivoting, E::PivotNotDone) => S::Ready,
        (S::Pivoting, E::PivotProved) => S::Moved,
        (S::Pivoting, E::FailureSeen) => S::RollingBack,
        (S::Pivoting | S::RollingBack, E::ProofMissing) => S::NeedsOperator,
        // Success is only said when QEMU, libvirt and the journal agree.
        (S::Moved, E::MoveDisputed) => S::NeedsOperator,
        (S::Moved, E::CleaningBegan) => S::Cleaning,
        (S::Cleaning, E::Finished) => S::Succeeded,
        (
            S::Queued | S::Planned | S::Preparing | S::Copying | S::Ready,
            E::FailureSeen | E::CancelRequested,
        ) => S::RollingBack,
        (S::RollingBack, E::RolledBackFailed) => S::Failed,
        (S::RollingBack, E::RolledBackCancelled) => S::Cancelled,
        (S::NeedsOperator, E::ResolvedToDestination) => S::Succeeded,
        (S::NeedsOperator, E::ResolvedToSource) => S::Failed,
        (state, event) => return Err(IllegalEvent { state, event }),
    };
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_state_and_event_is_an_edge_of_the_diagram_or_an_error() {
        let mut edges = Vec::new();
        for state in State::ALL {
            for event in Event::ALL {
                match transition(state, event) {
                    Ok(next) => edges.push((state, event, next)),
                    Err(error) => assert_eq!(error, IllegalEvent { state, event }),
                }
            }
        }
        // Eight straight edges, back from pivoting, failure in pivoting, proof missing twice, a disputed move, five
        // states times failure and cancel, two ends of a rollback, two exits of what was undecided.
        assert_eq!(edges.len(), 8 + 1 + 1 + 2 + 1 + 5 * 2 + 2 + 2);
        for (state, event, next) in edges {
            let exit = matches!(event, Event::ResolvedToDestination | Event::ResolvedToSource);
            assert_eq!(exit, state == State::NeedsOperator);
            assert!(!state.is_final() || (exit && next.is_final()), "{state} --{event}--> {next}");
        }
    }

    #[test]
    fn nothing_leads_back_from_moved() {
        for state in [State::Moved, State::Cleaning] {
            for event in Event::ALL {
                if let Ok(next) = transition(state, event) {
                    let disputed = next == State::NeedsOperator && event == Event::MoveDisputed;
                    assert!(next.is_moved() || disputed, "{state} --{event}--> {next}");
                }
            }
        }
    }

    #[test]
    fn a_cancel_is_honoured_exactly_before_the_pivot() {
        for state in State::ALL {
            let edge = transition(state, Event::CancelRequested).is_ok();
            assert_eq!(edge, state.can_cancel(), "{state}");
        }
    }

    #[test]
    fn every_state_is_reached_and_every_unfinished_one_can_end() {
        let mut reached = vec![State::Queued];
        let mut next = 0;
        while next < reached.len() {
            for event in Event::ALL {
                if let Ok(state) = transition(reached[next], event)
                    && !reached.contains(&state)
                {
                    reached.push(state);
                }
            }
            next += 1;
        }
        assert_eq!(reached.len(), State::ALL.len());
        for state in State::ALL {
            let leaves = Event::ALL.iter().any(|event| transition(state, *event).is_ok());
            assert_eq!(leaves, !state.is_final() || state == State::NeedsOperator, "{state}");
        }
    }
}
