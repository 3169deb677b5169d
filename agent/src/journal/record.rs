//! What is written down about an operation. Only additions are allowed here: old journals are read by new agents.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::operation::{Event, Failure, Kept};
use crate::plan::StepKind;
use crate::spec::{BytesPerSecond, Identity};

/// One line of an operation's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When it was written.
    pub at: SystemTime,
    /// What happened.
    pub what: What,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum What {
    /// The state machine took an edge.
    Transition {
        /// The event.
        event: Event,
    },
    /// A step is about to have its effect.
    Intent {
        /// The step.
        step: StepKind,
    },
    /// A step had its effect.
    Done {
        /// The step.
        step: StepKind,
        /// What later steps need of it.
        outcome: StepOutcome,
    },
    /// A step failed.
    Failed {
        /// The step.
        step: StepKind,
        /// Why.
        failure: Failure,
    },
    /// A step is about to be undone.
    UndoIntent {
        /// The step.
        step: StepKind,
    },
    /// A step was undone, or there was nothing to undo.
    UndoDone {
        /// The step.
        step: StepKind,
    },
    /// A step could not be undone.
    UndoFailed {
        /// The step.
        step: StepKind,
        /// Why.
        text: String,
    },
    /// Evidence that the pivot took effect.
    Proved {
        /// The evidence.
        proof: Proof,
    },
    /// A wish of the operator.
    Wished {
        /// The wish.
        wish: Wish,
    },
    /// Of an undecided operation one volume is about to be made the disk's.
    Resolving {
        /// The volume.
        keep: Kept,
        /// Who said so.
        by: String,
        /// The other one is to be removed afterwards.
        remove_other: bool,
    },
    /// Something the client should know.
    Warning {
        /// The text.
        text: String,
    },
}

/// What a step leaves for later steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum StepOutcome {
    /// Nothing.
    Nothing,
    /// A volume of this identity was created.
    Created {
        /// The identity.
        identity: Identity,
    },
}

/// Evidence that the pivot took effect, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// The pivot call returned success.
    CallReturned,
    /// QEMU or libvirt reported the job as completed after the pivot was intended.
    JobCompleted,
    /// QEMU, asked, uses the destination.
    QemuUsesDestination,
    /// QEMU was gone, and both volumes hold the same.
    VolumesEqual,
    /// The stored definition of a domain that is shut off names the destination.
    DefinitionNamesDestination,
    /// The copy of a volume that belongs to no domain has its final name.
    DestinationNamed,
}

/// A wish that must survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "wish", rename_all = "kebab-case")]
pub enum Wish {
    /// Cancel.
    Cancel,
    /// Pivot when ready.
    Pivot,
    /// Another limit; none lifts it.
    Bandwidth {
        /// The limit.
        limit: Option<BytesPerSecond>,
    },
}

impl Proof {
    /// The evidence in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CallReturned => "the pivot call returned success",
            Self::JobCompleted => "the block job was reported as completed",
            Self::QemuUsesDestination => "QEMU, asked, uses the destination",
            Self::VolumesEqual => "QEMU was gone, and both volumes hold the same",
            Self::DefinitionNamesDestination => "the stored definition names the destination",
            Self::DestinationNamed => "the destination has its final name",
        }
    }
}

/// A write in a few words: its kind and what its records say, such as `append intent pivot`.
pub(super) fn summary(kind: &str, records: &[Record]) -> String {
    let mut words = vec![kind.to_owned()];
    for record in records {
        // Every variant is an object with a tag; a field another variant lacks is no word.
        let value = serde_json::to_value(&record.what).unwrap_or_default();
        let said =
            ["record", "step", "event", "proof"].map(|key| value[key].as_str().map(str::to_owned));
        words.extend(said.into_iter().flatten());
    }
    words.join(" ")
}
