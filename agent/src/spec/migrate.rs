//! The request to move one disk of one domain.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    BytesPerSecond, CheckpointName, DiskReference, DomainReference, OperationId, PoolName,
    VolumeName,
};

/// A validated request to move a disk.
///
/// Two requests with the same operation id are the same operation only when the rest is equal too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrateSpec {
    /// Chosen by the client (a retry then finds the same operation) or made by the agent.
    pub operation: OperationId,
    /// The domain, by name or uuid.
    pub domain: DomainReference,
    /// The disk, by target or exact source.
    pub disk: DiskReference,
    /// The destination pool.
    pub to: PoolName,
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
}
