//! libvirt secrets of volumes, and the headers of volumes that open with their values.

use volferry_xml::Disk;

use super::World;
use super::state::{State, Volume};
use crate::ports::{ErrorClass, NewSecret, PortError, VolumeSecret};
use crate::spec::{Bytes, HeaderKind, VolumeLocation};

/// The encryption header of a volume. Sizes of volumes are what is usable behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Who wrote it.
    pub kind: HeaderKind,
    /// What opens it.
    pub passphrase: Vec<u8>,
}

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

impl State {
    /// Gives the volume of that name a header, or takes it away.
    ///
    /// # Panics
    /// When there is no such volume.
    pub fn set_header(&mut self, place: &VolumeLocation, header: Option<Header>) {
        match place {
            VolumeLocation::Rbd { address, image } => {
                let images = &mut self.pool_mut(address).expect("a pool of the scene").images;
                images.get_mut(image).expect("an image").header = header;
            }
            VolumeLocation::File { path } => {
                self.files.get_mut(path).expect("a file").encryption = header;
            }
        }
    }

    /// Opens a header as QEMU and librbd do.
    pub(super) fn open_header(
        &self,
        place: &VolumeLocation,
        kind: HeaderKind,
        passphrase: &[u8],
        what: &str,
    ) -> Result<Bytes, PortError> {
        let error = |class, text: &str| Err(PortError::new(class, what, text));
        let Some(volume) = self.volume(place) else {
            return error(ErrorClass::NotFound, "No such file or directory");
        };
        match &volume.header {
            Some(header) if header.kind != kind => {
                error(ErrorClass::NoHeader, "Volume is not in LUKS format")
            }
            None => error(ErrorClass::NoHeader, "Volume is not in LUKS format"),
            Some(header) if header.passphrase != passphrase => {
                error(ErrorClass::WrongPassphrase, "Invalid password, cannot unlock any keyslot")
            }
            Some(_) => Ok(Bytes(volume.size)),
        }
    }

    /// Whether QEMU gets at the content of a volume by what a disk says of it. A plain disk on a volume with a header
    /// sees the header too: another size.
    pub(super) fn opens(&self, disk: &Disk, volume: &Volume, what: &str) -> Result<u64, PortError> {
        let error = |class, text: String| Err(PortError::new(class, what, text));
        let Some(encryption) = &disk.encryption else {
            return Ok(volume.size + if volume.header.is_some() { HEADER } else { 0 });
        };
        let librbd = encryption.engine.as_deref() == Some("librbd");
        if librbd && !self.librbd_copies {
            let text = "No secret with id 'libvirt-2-format-encryption-secret0'".to_owned();
            return error(ErrorClass::Other, text);
        }
        let uuid = encryption.secret_uuid.as_deref().unwrap_or_default();
        let value = self.volume_secrets.get(uuid).and_then(|secret| secret.value.as_ref());
        let Some(value) = value else {
            let text = format!("Secret not found: no secret with matching uuid '{uuid}'");
            return error(ErrorClass::NotFound, text);
        };
        let by = |kind: HeaderKind| librbd == (kind != HeaderKind::QemuLuks1);
        match &volume.header {
            Some(header) if by(header.kind) && header.passphrase == *value => Ok(volume.size),
            Some(header) if by(header.kind) => {
                let text = "Invalid password, cannot unlock any keyslot".to_owned();
                error(ErrorClass::WrongPassphrase, text)
            }
            _ => error(ErrorClass::Other, "Volume is not in LUKS format".to_owned()),
        }
    }
}

/// What a header occupies of a raw image.
pub(super) const HEADER: u64 = 2 << 20;

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
