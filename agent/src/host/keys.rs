//! Where the keys of Ceph users come from.

use async_trait::async_trait;
use secrecy::SecretString;

use crate::ports::PortError;

/// A store of keys.
#[async_trait]
pub trait KeySource: Send + Sync {
    /// The key in the secret of that uuid, in the text form Ceph takes.
    /// Errors: `NotFound`; `PermissionDenied` for a private secret; `Unavailable`.
    async fn ceph_key(&self, secret_uuid: &str) -> Result<SecretString, PortError>;
}
