//! libvirt secrets with the passphrases of volumes (`<usage type='volume'>`): set, looked at, removed. Values are
//! written and never read back: a private one cannot be.

use async_trait::async_trait;

use super::error::PortError;
use crate::spec::Passphrase;

/// A secret libvirt has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSecret {
    /// Its uuid.
    pub uuid: String,
    /// The volume it is for; none of a secret for something else.
    pub usage: Option<String>,
    /// Who made it, in words.
    pub description: Option<String>,
    /// It is gone when libvirtd ends.
    pub ephemeral: bool,
}

/// A secret to be made. Its value can never be read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSecret {
    /// Its uuid.
    pub uuid: String,
    /// The volume it is for.
    pub usage: String,
    /// Who makes it.
    pub description: String,
    /// It is to be gone when libvirtd ends.
    pub ephemeral: bool,
}

/// Secrets of this host's libvirt.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// The secret for this volume; none when there is none. libvirt has at most one for each.
    async fn find(&self, usage: &str) -> Result<Option<VolumeSecret>, PortError>;

    /// The secret of this uuid; none when there is none.
    async fn look(&self, uuid: &str) -> Result<Option<VolumeSecret>, PortError>;

    /// Defines a secret and sets its value. Idempotent: one of that uuid for that volume is defined anew.
    /// `Exists` when the uuid is another volume's, or the volume has a secret of another uuid. After any error the
    /// secret may be there without a value.
    async fn define(&self, secret: &NewSecret, value: &Passphrase) -> Result<(), PortError>;

    /// Sets the value of a secret that is there. `NotFound` when it is not.
    async fn set(&self, uuid: &str, value: &Passphrase) -> Result<(), PortError>;

    /// Removes a secret and its value. `NotFound` when there is none of that uuid.
    async fn undefine(&self, uuid: &str) -> Result<(), PortError>;
}
