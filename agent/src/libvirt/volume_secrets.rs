//! The secrets port over libvirt. A value is handed over and forgotten; it is in no text and in no error.

use async_trait::async_trait;
use virt::connect::Connect;
use virt::error::{Error, ErrorNumber, ErrorNumberEnum};
use virt::secret::Secret;
use virt_sys as sys;
use volferry_xml::{SecretXml, is_representable};

use super::LibvirtPorts;
use super::error::port_error;
use crate::ports::{ErrorClass, NewSecret, PortError, Secrets, VolumeSecret};
use crate::spec::Passphrase;

#[async_trait]
impl Secrets for LibvirtPorts {
    async fn find(&self, usage: &str) -> Result<Option<VolumeSecret>, PortError> {
        let operation = format!("look for the secret of {usage}");
        let usage = usage.to_owned();
        self.with_secrets(operation, move |connection| {
            let kind = i32::try_from(sys::VIR_SECRET_USAGE_TYPE_VOLUME).unwrap_or_default();
            found(connection.lookup_secret_by_usage(kind, &usage))
        })
        .await?
        .transpose()
    }

    async fn look(&self, uuid: &str) -> Result<Option<VolumeSecret>, PortError> {
        let Some(uuid) = parsed(uuid) else { return Ok(None) };
        let operation = format!("look for secret {uuid}");
        self.with_secrets(operation, move |connection| {
            found(connection.lookup_secret_by_uuid(uuid))
        })
        .await?
        .transpose()
    }

    async fn define(&self, secret: &NewSecret, value: &Passphrase) -> Result<(), PortError> {
        let operation = format!("define secret {} for {}", secret.uuid, secret.usage);
        let texts = [&secret.usage, &secret.description];
        if parsed(&secret.uuid).is_none() || texts.iter().any(|text| !is_representable(text)) {
            let text = "its uuid, usage or description cannot be written as XML";
            return Err(PortError::new(ErrorClass::Other, operation, text));
        }
        let xml = SecretXml {
            uuid: secret.uuid.clone(),
            volume: Some(secret.usage.clone()),
            description: Some(secret.description.clone()),
            ephemeral: secret.ephemeral,
            private: true,
        };
        let (xml, value) = (xml.to_text(), value.clone());
        self.with_secrets(operation, move |connection| {
            connection.define_secret_xml(&xml, 0)?.set_value(value.expose(), 0)
        })
        .await
    }

    async fn set(&self, uuid: &str, value: &Passphrase) -> Result<(), PortError> {
        let operation = format!("set the value of secret {uuid}");
        let Some(uuid) = parsed(uuid) else { return Err(no_uuid(operation)) };
        let value = value.clone();
        self.with_secrets(operation, move |connection| {
            connection.lookup_secret_by_uuid(uuid)?.set_value(value.expose(), 0)
        })
        .await
    }

    async fn undefine(&self, uuid: &str) -> Result<(), PortError> {
        let operation = format!("remove secret {uuid}");
        let Some(uuid) = parsed(uuid) else { return Err(no_uuid(operation)) };
        self.with_secrets(operation, move |connection| {
            connection.lookup_secret_by_uuid(uuid)?.undefine()
        })
        .await
    }
}

impl LibvirtPorts {
    async fn with_secrets<T: Send + 'static>(
        &self,
        operation: String,
        call: impl FnOnce(&Connect) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, PortError> {
        let words = operation.clone();
        self.reads
            .run(&operation, self.timeouts.read, move |connection| {
                call(connection).map_err(|error| port_error(&words, &error))
            })
            .await
    }
}

fn parsed(uuid: &str) -> Option<uuid::Uuid> {
    uuid::Uuid::try_parse(uuid).ok()
}

fn no_uuid(operation: String) -> PortError {
    PortError::new(ErrorClass::NotFound, operation, "it is not a uuid")
}

/// What was looked up, if it is there.
type Found = Option<Result<VolumeSecret, PortError>>;

fn found(looked_up: Result<Secret, Error>) -> Result<Found, Error> {
    let secret = match looked_up {
        Ok(secret) => secret,
        Err(error) if error.code() == ErrorNumberEnum::Known(ErrorNumber::NoSecret) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let text = secret.xml_desc(0)?;
    Ok(Some(match SecretXml::parse(&text) {
        Ok(xml) => Ok(VolumeSecret {
            uuid: xml.uuid,
            usage: xml.volume,
            description: xml.description,
            ephemeral: xml.ephemeral,
        }),
        Err(error) => Err(PortError::new(ErrorClass::Other, "read a secret's XML", error)),
    }))
}
