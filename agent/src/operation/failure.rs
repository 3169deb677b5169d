//! Why an operation failed: the closed list of causes, whose side it was, and what a client may do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The closed, stable list of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCause {
    /// No space left at the destination.
    DestinationFull,
    /// The destination could not be made or written.
    DestinationWriteError,
    /// The source could not be read.
    SourceReadError,
    /// Source and destination differ in size.
    SizeMismatch,
    /// The destination was deleted, renamed or replaced meanwhile.
    DestinationReplaced,
    /// The block job vanished without a word.
    JobLost,
    /// Somebody else ended or took over the block job.
    JobStolen,
    /// QEMU could not switch to the copy.
    PivotFailed,
    /// The guest stopped or QEMU died.
    GuestGone,
    /// The deadline passed before the pivot.
    Deadline,
    /// libvirt could not be reached for too long.
    LibvirtGone,
    /// The pool takes no writes and gives no error.
    PoolStalled,
    /// Somebody else uses the volume.
    VolumeInUse,
    /// The passphrase is needed again.
    SecretNeeded,
    /// Source and destination differ in content.
    VerifyMismatch,
    /// A fault of the agent itself.
    Internal,
}

/// Where the fault lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The source volume or its pool.
    Source,
    /// The destination volume or its pool.
    Destination,
    /// The guest or QEMU.
    Guest,
    /// This host: libvirt, the agent.
    Host,
}

/// What a client may do with the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetryClass {
    /// Send it again at once.
    Now,
    /// Send it again after a while.
    Later,
    /// The same request will fail again.
    Never,
    /// Somebody must look first.
    Operator,
}

/// A failed operation's cause, told to people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The cause.
    pub cause: FailureCause,
    /// Where the fault lies.
    pub side: Side,
    /// QEMU's or the system's own text.
    pub text: String,
}

impl FailureCause {
    /// Every cause.
    pub const ALL: [Self; 16] = [
        Self::DestinationFull,
        Self::DestinationWriteError,
        Self::SourceReadError,
        Self::SizeMismatch,
        Self::DestinationReplaced,
        Self::JobLost,
        Self::JobStolen,
        Self::PivotFailed,
        Self::GuestGone,
        Self::Deadline,
        Self::LibvirtGone,
        Self::PoolStalled,
        Self::VolumeInUse,
        Self::SecretNeeded,
        Self::VerifyMismatch,
        Self::Internal,
    ];

    /// The stable code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DestinationFull => "destination-full",
            Self::DestinationWriteError => "destination-write-error",
            Self::SourceReadError => "source-read-error",
            Self::SizeMismatch => "size-mismatch",
            Self::DestinationReplaced => "destination-replaced",
            Self::JobLost => "job-lost",
            Self::JobStolen => "job-stolen",
            Self::PivotFailed => "pivot-failed",
            Self::GuestGone => "guest-gone",
            Self::Deadline => "deadline",
            Self::LibvirtGone => "libvirt-gone",
            Self::PoolStalled => "pool-stalled",
            Self::VolumeInUse => "volume-in-use",
            Self::SecretNeeded => "secret-needed",
            Self::VerifyMismatch => "verify-mismatch",
            Self::Internal => "internal",
        }
    }

    /// What a client may do with the same request.
    pub const fn retry(self) -> RetryClass {
        match self {
            Self::JobLost | Self::PivotFailed => RetryClass::Now,
            Self::DestinationFull
            | Self::DestinationWriteError
            | Self::GuestGone
            | Self::Deadline
            | Self::LibvirtGone
            | Self::PoolStalled
            | Self::VolumeInUse
            | Self::SecretNeeded => RetryClass::Later,
            Self::SizeMismatch => RetryClass::Never,
            Self::SourceReadError
            | Self::DestinationReplaced
            | Self::JobStolen
            | Self::VerifyMismatch
            | Self::Internal => RetryClass::Operator,
        }
    }

    /// What the operator does next, one sentence.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::DestinationFull => "free space in the destination pool or choose another one",
            Self::DestinationWriteError => {
                "check the destination pool: its health, its permissions and the system log"
            }
            Self::SourceReadError => {
                "the source volume has unreadable blocks: check its storage first"
            }
            Self::SizeMismatch => "the destination must have exactly the size of the running disk",
            Self::DestinationReplaced => {
                "somebody deleted, renamed or replaced the destination: find out who before trying again"
            }
            Self::JobLost => "the block job vanished; the guest runs on its source: try again",
            Self::JobStolen => {
                "another tool ended the block job: find out which before trying again"
            }
            Self::PivotFailed => "the guest runs on its source: try again",
            Self::GuestGone => "start the guest and try again, or move the volume offline",
            Self::Deadline => {
                "allow more time or bandwidth, or use --write-blocking for a busy guest"
            }
            Self::LibvirtGone => "bring libvirt back and try again",
            Self::PoolStalled => {
                "the destination pool takes no writes: check quota, full flags and health"
            }
            Self::VolumeInUse => "stop whatever uses the volume and try again",
            Self::SecretNeeded => "send the request again with its passphrase",
            Self::VerifyMismatch => {
                "source and destination differ: keep both and check the storage"
            }
            Self::Internal => "this is a fault of the agent: its log has the whole chain",
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Side {
    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Guest => "guest",
            Self::Host => "host",
        }
    }
}

impl RetryClass {
    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Later => "later",
            Self::Never => "never",
            Self::Operator => "operator",
        }
    }
}

impl Failure {
    /// A failure of `cause` on `side`, in the system's own words.
    pub fn new(cause: FailureCause, side: Side, text: impl Into<String>) -> Self {
        Self { cause, side, text: text.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} side): {}", self.cause, self.side.as_str(), self.text)
    }
}
