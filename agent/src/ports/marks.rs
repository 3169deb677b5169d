//! Marks: what an operation leaves on its destination from its creation until the move is proved or undone, so that
//! the destination can be told as ours without the journal.

use async_trait::async_trait;

use super::error::PortError;
use crate::spec::{Identity, OperationId, PoolKind, VolumeLocation};

/// Whose a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The host whose agent made it, by its name in the configuration.
    pub host: String,
    /// The operation.
    pub operation: OperationId,
    /// The name it gets.
    pub volume: VolumeLocation,
    /// What makes it itself.
    pub identity: Identity,
}

/// A volume of a pool that carries a mark or an operation's private name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedVolume {
    /// Where it is.
    pub location: VolumeLocation,
    /// What makes it itself.
    pub identity: Identity,
    /// The operation, by the mark, else by the private name.
    pub operation: OperationId,
    /// The host, by the mark; none where only the name tells.
    pub host: Option<String>,
    /// It has the operation's private name.
    pub private: bool,
}

/// How closely a pool is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Only names are looked at.
    Names,
    /// Every mark is read, which may open every image of the pool.
    Marks,
}

/// Marks of volumes in pools of the configuration.
#[async_trait]
pub trait Marks: Send + Sync {
    /// Marks the volume that has the name `at` now. Idempotent.
    async fn set(&self, at: &VolumeLocation, mark: &Mark) -> Result<(), PortError>;

    /// Takes an operation's mark away from the volume of that name, which may be gone. Idempotent.
    async fn clear(&self, at: &VolumeLocation, operation: &OperationId) -> Result<(), PortError>;

    /// Every volume of the pool that carries a mark or a private name. A mark whose volume is gone or another by now
    /// tells of nothing.
    async fn find(&self, pool: &PoolKind, search: Search) -> Result<Vec<MarkedVolume>, PortError>;
}
