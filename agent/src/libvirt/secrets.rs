//! Keys out of libvirt's secrets, in the form Ceph takes, never on paper.

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

use super::error::port_error;
use super::{LibvirtPorts, ffi};
use crate::host::keys::KeySource;
use crate::ports::{ErrorClass, PortError};

#[async_trait]
impl KeySource for LibvirtPorts {
    async fn ceph_key(&self, secret_uuid: &str) -> Result<SecretString, PortError> {
        let operation = format!("read secret {secret_uuid}");
        let Ok(uuid) = uuid::Uuid::try_parse(secret_uuid) else {
            return Err(PortError::new(ErrorClass::NotFound, operation, "it is not a uuid"));
        };
        let words = operation.clone();
        self.reads
            .run(&operation, self.timeouts.read, move |connection| {
                let value = connection
                    .lookup_secret_by_uuid(uuid)
                    .and_then(|secret| ffi::secret_value(&secret))
                    .map_err(|error| port_error(&words, &error))?;
                Ok(base64(value.expose_secret()))
            })
            .await
    }
}

/// The value as base64, built in one allocation that the secret takes over.
fn base64(bytes: &[u8]) -> SecretString {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (position, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = DIGITS[(bits >> shift & 63) as usize];
            text.push(if position > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    SecretString::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_to_groups_of_four() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("fooba", "Zm9vYmE=")]
        {
            assert_eq!(base64(plain.as_bytes()).expose_secret(), text);
        }
        assert_eq!(base64(&[0xfb, 0xff]).expose_secret(), "+/8=");
    }
}
