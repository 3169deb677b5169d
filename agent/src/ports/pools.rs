//! Storage pools of libvirt: found by name or all, never changed, never refreshed.

use async_trait::async_trait;

use super::error::PortError;
use crate::spec::{Pool, PoolName};

/// Storage pools of this host's libvirt.
#[async_trait]
pub trait StoragePools: Send + Sync {
    /// The active pool of that name; none when libvirt has no pool of the name.
    /// Errors: `Unavailable` for a pool that is not active, `Unsupported` for one that is no destination, `NotFound`
    /// when the secret it names by its usage does not exist.
    async fn find(&self, name: &PoolName) -> Result<Option<Pool>, PortError>;

    /// Every active pool that could be a destination, by name.
    async fn active(&self) -> Result<Vec<Pool>, PortError>;
}
