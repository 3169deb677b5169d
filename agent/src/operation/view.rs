//! An operation as everybody outside its owner sees it: one immutable value, published after every change.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::evidence::Resolution;
use super::failure::{Failure, RetryClass};
use super::progress::Progress;
use super::result::MoveResult;
use super::state::State;
use crate::spec::{BytesPerSecond, DiskTarget, DomainUuid, MigrateSpec, PoolName, VolumeLocation};

/// How long a state lasted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// The state.
    pub state: State,
    /// When it was entered.
    pub entered: SystemTime,
    /// How long it lasted; none for the present one.
    pub lasted: Option<Duration>,
}

/// One operation, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationView {
    /// What was asked.
    pub spec: MigrateSpec,
    /// The volume is moved while nobody uses it.
    #[serde(default)]
    pub offline: bool,
    /// The domain's name.
    pub domain_name: String,
    /// The domain's uuid.
    pub domain_uuid: DomainUuid,
    /// The disk.
    pub target: DiskTarget,
    /// The pool of the configuration the volume was in; none for an RBD pool that is not configured.
    pub source_pool: Option<PoolName>,
    /// Where the volume was.
    pub source: VolumeLocation,
    /// Where it goes.
    pub destination: VolumeLocation,
    /// Where the operation is.
    pub state: State,
    /// One line about what is going on or being waited for, beyond the state.
    pub detail: Option<String>,
    /// States so far, in order.
    pub phases: Vec<PhaseSpan>,
    /// The running copy.
    pub progress: Progress,
    /// The limit in force.
    pub bandwidth: Option<BytesPerSecond>,
    /// True while it waits for the operator's word to pivot.
    pub waits_for_pivot: bool,
    /// What the client should know although nothing failed.
    pub warnings: Vec<String>,
    /// The cause, of a failed, cancelled or undecided operation.
    pub failure: Option<Failure>,
    /// The result, of a succeeded one.
    pub result: Option<MoveResult>,
    /// How it was decided after all, of one that needed an operator.
    #[serde(default)]
    pub resolution: Option<Resolution>,
}

impl OperationView {
    /// Where the volume is, as far as it is known: the whole point of asking.
    pub fn volume_is_at(&self) -> Option<&VolumeLocation> {
        match self.state {
            State::NeedsOperator if self.is_disputed() => Some(&self.destination),
            State::Pivoting | State::NeedsOperator => None,
            state if state.is_moved() => Some(&self.destination),
            _ => Some(&self.source),
        }
    }

    /// True of a proved move that libvirt's live XML, or QEMU by then, contradicts.
    pub fn is_disputed(&self) -> bool {
        let moved = self.phases.iter().any(|phase| phase.state == State::Moved);
        self.state == State::NeedsOperator && moved
    }

    /// What a client may do with the same request now that it has failed.
    pub fn retry(&self) -> Option<RetryClass> {
        let failure = self.failure.as_ref()?;
        Some(match self.state {
            State::NeedsOperator => RetryClass::Operator,
            _ => failure.cause.retry(),
        })
    }

    /// What the operator does next, one sentence.
    pub fn hint(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(match self.state {
            State::NeedsOperator if self.is_disputed() => {
                let id = &self.spec.operation;
                format!(
                    "both volumes are kept: stop and start the guest (a reboot from inside is not enough), then \
                     `volferry ops settle {id}`; `volferry ops resolve {id}` shows the evidence"
                )
            }
            State::NeedsOperator => {
                let id = &self.spec.operation;
                format!(
                    "both volumes are kept: find out which one the guest wrote to last before starting or removing \
                     anything; `volferry ops resolve {id}` shows the evidence, `--keep source` or `--keep destination` \
                     decides, and `volferry ops settle {id}` asks QEMU again"
                )
            }
            _ => failure.cause.hint().to_owned(),
        })
    }

    /// When it was accepted.
    pub fn accepted(&self) -> Option<SystemTime> {
        self.phases.first().map(|phase| phase.entered)
    }
}
