//! The closed, stable list of refusals. The same refusal has the same code everywhere.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::operation::RetryClass;
use crate::spec::{OperationId, VolumeLocation};

/// Why a request was refused before anything was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// The stable code.
    pub code: RefusalCode,
    /// Names the thing, the rule and, where there is one, the way out.
    pub message: String,
}

impl Refusal {
    /// A refusal of `code`, in words an operator can act on.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The refusal of a second volume under a name that an operation is giving to another one.
pub fn being_made(destination: &VolumeLocation, by: &OperationId) -> Refusal {
    Refusal::new(
        RefusalCode::Busy,
        format!(
            "{destination} is the destination of operation {by}: wait for its end, or choose another name with \
             --destination-volume"
        ),
    )
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $retry:ident;)*) => {
        /// The closed list of refusal codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum RefusalCode {
            $($(#[$doc])* $variant,)*
        }

        impl RefusalCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable code.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// What a client may do with the same request.
            pub const fn retry(self) -> RetryClass {
                match self { $(Self::$variant => RetryClass::$retry,)* }
            }
        }
    };
}

codes! {
    /// No such domain on this host.
    DomainNotFound = "domain-not-found", Never;
    /// The domain has no such disk.
    DiskNotFound = "disk-not-found", Never;
    /// A live move was asked for and the guest does not run: stopped, paused, crashed, starting.
    NotRunning = "not-running", Later;
    /// A CD-ROM, floppy, LUN or config drive.
    NotADisk = "not-a-disk", Never;
    /// Other guests or other disks write to the image too.
    Shareable = "shareable", Never;
    /// The guest sees the disk read-only.
    ReadOnly = "read-only", Never;
    /// libvirt throws the disk's content away at shutdown.
    TransientDisk = "transient-disk", Never;
    /// Another block job works on the disk.
    BlockJobActive = "block-job-active", Later;
    /// A live move between two file pools.
    FileToFile = "file-to-file", Never;
    /// Source and destination are the same volume, or the destination is another disk of the guest.
    SameVolume = "same-volume", Never;
    /// Something has the destination's name already.
    DestinationExists = "destination-exists", Operator;
    /// The local pool belongs to another host.
    OtherHostsLocalPool = "other-hosts-local-pool", Never;
    /// No such pool in the configuration.
    PoolUnknown = "pool-unknown", Never;
    /// The pool cannot be reached.
    PoolUnavailable = "pool-unavailable", Later;
    /// The cluster does not accept the pool's user or key.
    PoolAuthFailed = "pool-auth-failed", Operator;
    /// The pool's path must be a mount point and is none.
    NotMounted = "not-mounted", Operator;
    /// The agent or QEMU's user may not use the destination.
    PermissionDenied = "permission-denied", Operator;
    /// Not enough space at the destination.
    NoSpace = "no-space", Later;
    /// A kind of source the agent does not move.
    UnsupportedSource = "unsupported-source", Never;
    /// libvirt or internal snapshots that a copy would lose.
    HasSnapshots = "has-snapshots", Operator;
    /// Somebody else uses the volume.
    VolumeInUse = "volume-in-use", Later;
    /// A libvirt secret that is needed does not exist.
    SecretMissing = "secret-missing", Operator;
    /// The passphrase does not open the volume.
    WrongPassphrase = "wrong-passphrase", Never;
    /// The destination cannot have exactly the size of the running disk.
    SizeMismatch = "size-mismatch", Never;
    /// QEMU uses another image than libvirt's XML says.
    StateMismatch = "state-mismatch", Operator;
    /// The encryption asked for is not possible here.
    EncryptionUnsupported = "encryption-unsupported", Never;
    /// The method asked for cannot be used for this move.
    MethodUnavailable = "method-unavailable", Never;
    /// This libvirt or QEMU cannot do it.
    HostUnsupported = "host-unsupported", Never;
    /// A name that breaks a rule.
    InvalidName = "invalid-name", Never;
    /// The domain's XML is malformed.
    MalformedXml = "malformed-xml", Never;
    /// Another operation works on the disk, or the host does not answer in time.
    Busy = "busy", Later;
    /// The configuration or the caller's role does not allow it.
    NotAllowed = "not-allowed", Never;
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_equal_to_their_serialised_form() {
        let mut seen = std::collections::BTreeSet::new();
        for code in RefusalCode::ALL {
            assert!(seen.insert(code.as_str()), "{code} twice");
            let json = serde_json::to_string(code).expect("a unit variant serialises");
            assert_eq!(json, format!("\"{code}\""));
        }
        assert_eq!(seen.len(), 32);
    }
}
