//! libvirt secrets of volumes.

use async_trait::async_trait;

use crate::fake::World;
use crate::fake::faults::Method;
use crate::ports::{NewSecret, PortError, Secrets, VolumeSecret};
use crate::spec::Passphrase;

#[async_trait]
impl Secrets for World {
    async fn find(&self, usage: &str) -> Result<Option<VolumeSecret>, PortError> {
        let what = format!("look for the secret of {usage}");
        self.call(Method::FindSecret, what, |state| Ok(state.secret_for(usage))).await
    }

    async fn look(&self, uuid: &str) -> Result<Option<VolumeSecret>, PortError> {
        let what = format!("look for secret {uuid}");
        self.call(Method::LookSecret, what, |state| Ok(state.volume_secret(uuid))).await
    }

    async fn define(&self, secret: &NewSecret, value: &Passphrase) -> Result<(), PortError> {
        let what = format!("define secret {}", secret.uuid);
        self.call(Method::DefineSecret, what.clone(), |state| {
            state.define_secret(secret, value.expose(), &what)
        })
        .await
    }

    async fn set(&self, uuid: &str, value: &Passphrase) -> Result<(), PortError> {
        let what = format!("set the value of secret {uuid}");
        self.call(Method::DefineSecret, what.clone(), |state| {
            state.set_secret(uuid, value.expose(), &what)
        })
        .await
    }

    async fn undefine(&self, uuid: &str) -> Result<(), PortError> {
        let what = format!("remove secret {uuid}");
        self.call(Method::UndefineSecret, what.clone(), |state| state.undefine_secret(uuid, &what))
            .await
    }
}
