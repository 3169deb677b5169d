//! The request to move one disk of one domain, or one volume that no domain uses.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Bytes, BytesPerSecond, CheckpointName, DiskReference, DomainReference, EncryptionWish,
    HeaderKind, IoTune, OperationId, Passphrase, Passphrases, PoolName, RequestPool, VolumeFormat,
    VolumeName,
};

/// What is to be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Subject {
    /// A disk of a domain: live while the domain runs, offline while it is stopped.
    Disk {
        /// The domain, by name or uuid.
        domain: DomainReference,
        /// The disk, by target or exact source.
        disk: DiskReference,
    },
    /// A volume that no domain uses.
    Volume {
        /// The pool of the configuration it lies in.
        volume_pool: PoolName,
        /// Its name there.
        volume_name: VolumeName,
        /// Its format: neither a suffix nor the content may tell it.
        volume_format: VolumeFormat,
        /// The encryption header it has, which the content may not tell either; none of a plain one, and of a qcow2
        /// file, where only one is possible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume_encryption: Option<HeaderKind>,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk { domain, disk } => write!(f, "disk {disk} of domain {domain}"),
            Self::Volume { volume_pool, volume_name, .. } => {
                write!(f, "volume {volume_pool}/{volume_name}")
            }
        }
    }
}

/// How the data of a running guest's disk are copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The best one there is for the pair.
    #[default]
    Auto,
    /// QEMU mirrors the disk.
    Mirror,
    /// The guest goes on from the destination while the data follow.
    Handover,
}

/// A validated request to move a disk.
///
/// Two requests with the same operation id are the same operation only when the rest is equal too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrateSpec {
    /// Chosen by the client (a retry then finds the same operation) or made by the agent.
    pub operation: OperationId,
    /// What is to be moved.
    #[serde(flatten)]
    pub subject: Subject,
    /// The destination pool.
    pub to: PoolName,
    /// That pool itself, where the request brings it along.
    #[serde(default)]
    pub pool: Option<RequestPool>,
    /// Another name for the destination than the source's stem.
    pub destination_volume: Option<VolumeName>,
    /// Limit of the copy; none means no limit.
    pub bandwidth: Option<BytesPerSecond>,
    /// Keep the source, under its retired name.
    pub keep_source: bool,
    /// Leave the source as it is, under its very name.
    #[serde(default)]
    pub keep_source_name: bool,
    /// Delete the snapshots of an RBD source after the move, so that it can be removed.
    #[serde(default)]
    pub delete_source_snapshots: bool,
    /// Guest writes wait for both sides.
    pub write_blocking: bool,
    /// Wait for the operator's word before the pivot.
    pub manual_pivot: bool,
    /// Give up and roll back when the pivot has not begun after this time.
    pub deadline: Option<Duration>,
    /// Checkpoints of the domain whose bitmaps may be lost.
    #[serde(default)]
    pub allow_checkpoint_loss: BTreeSet<CheckpointName>,
    /// Only while the guest runs: the disk of a stopped domain is refused instead of copied offline.
    #[serde(default)]
    pub live: bool,
    /// An offline copy is not compared with its source before the source goes.
    #[serde(default)]
    pub no_compare: bool,
    /// What a guest sees must be exactly this, by the records of whoever asks.
    #[serde(default)]
    pub expected_size: Option<Bytes>,
    /// What is wanted of encryption.
    #[serde(default)]
    pub encryption: EncryptionWish,
    /// The passphrases, until the engine takes them out of an accepted request: views and journals have none.
    #[serde(skip)]
    pub passphrases: Passphrases,
    /// How the data are copied.
    #[serde(default)]
    pub method: Method,
    /// Limits of the disk's input and output from the move on.
    #[serde(default)]
    pub iotune: Option<IoTune>,
}

impl MigrateSpec {
    /// The request with these passphrases, and the wish that says which of them came.
    #[must_use]
    pub fn with_passphrases(
        mut self,
        source: Option<Passphrase>,
        destination: Option<Passphrase>,
    ) -> Self {
        self.encryption.source_passphrase = source.is_some();
        self.encryption.destination_passphrase = destination.is_some();
        self.passphrases = Passphrases { source, destination };
        self
    }
}
