//! libvirt secrets of volumes.

use super::World;
use super::state::State;
use crate::ports::{ErrorClass, NewSecret, PortError, VolumeSecret};

/// One secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// The volume it is for.
    pub usage: String,
    /// Who made it.
    pub description: Option<String>,
    /// It is gone when libvirtd ends.
    pub ephemeral: bool,
    /// Its value, once it has one.
    pub value: Option<Vec<u8>>,
}

impl State {
    pub(super) fn volume_secret(&self, uuid: &str) -> Option<VolumeSecret> {
        self.volume_secrets.get(uuid).map(|secret| VolumeSecret {
            uuid: uuid.to_owned(),
            usage: Some(secret.usage.clone()),
            description: secret.description.clone(),
            ephemeral: secret.ephemeral,
        })
    }

    pub(super) fn secret_for(&self, usage: &str) -> Option<VolumeSecret> {
        let found = self.volume_secrets.iter().find(|(_, secret)| secret.usage == usage);
        found.and_then(|(uuid, _)| self.volume_secret(uuid))
    }

    pub(super) fn define_secret(
        &mut self,
        new: &NewSecret,
        value: &[u8],
        what: &str,
    ) -> Result<(), PortError> {
        let exists = |uuid: &str, usage: &str| {
            let text = format!("a secret with UUID {uuid} is already defined for use with {usage}");
            Err(PortError::new(ErrorClass::Exists, what, text))
        };
        if let Some(other) = self.volume_secrets.get(&new.uuid)
            && other.usage != new.usage
        {
            return exists(&new.uuid, &other.usage);
        }
        if let Some(other) = self.secret_for(&new.usage)
            && other.uuid != new.uuid
        {
            return exists(&other.uuid, &new.usage);
        }
        let secret = Secret {
            usage: new.usage.clone(),
            description: Some(new.description.clone()),
            ephemeral: new.ephemeral,
            value: Some(value.to_vec()),
        };
        self.volume_secrets.insert(new.uuid.clone(), secret);
        Ok(())
    }

    pub(super) fn set_secret(
        &mut self,
        uuid: &str,
        value: &[u8],
        what: &str,
    ) -> Result<(), PortError> {
        match self.volume_secrets.get_mut(uuid) {
            Some(secret) => {
                secret.value = Some(value.to_vec());
                Ok(())
            }
            None => Err(missing(uuid, what)),
        }
    }

    pub(super) fn undefine_secret(&mut self, uuid: &str, what: &str) -> Result<(), PortError> {
        self.volume_secrets.remove(uuid).map(drop).ok_or_else(|| missing(uuid, what))
    }
}

fn missing(uuid: &str, what: &str) -> PortError {
    let text = format!("Secret not found: no secret with matching uuid '{uuid}'");
    PortError::new(ErrorClass::NotFound, what, text)
}

impl World {
    /// libvirtd is killed and comes back: its ephemeral secrets are gone, jobs run on.
    pub fn libvirt_restarts(&self) {
        self.libvirt_away();
        self.with(|state| state.volume_secrets.retain(|_, secret| !secret.ephemeral));
        self.libvirt_back();
    }
}
