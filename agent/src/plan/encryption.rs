//! PURE: what the destination is encrypted with, by the disk and the request; the secret it needs, by its name.

use volferry_xml::{
    DestinationEncryption, Disk, EncryptionEngine, EncryptionFormat, build_encrypted_destination,
};

use super::refusal::{Refusal, RefusalCode};
use super::route::Route;
use super::steps::{PlannedEncryption, SourceCipher, SourceEncryption};
use crate::facts::{EncryptionFacts, LibrbdCopy};
use crate::spec::{Bytes, EncryptionScheme, EncryptionWish, HeaderKind, OperationId};

/// The namespace of the uuids of secrets; never to be changed.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x5e3c0a52_7d0c_5d43_9d3b_0f5a1c9e2b71);

/// The uuid of the secret for a volume, where libvirt has none for it yet.
pub fn secret_uuid(usage: &str) -> String {
    uuid::Uuid::new_v5(&NAMESPACE, usage.as_bytes()).to_string()
}

/// What the description of a secret says that this operation made.
pub fn mark(operation: &OperationId) -> String {
    format!("volferry operation {operation}")
}

/// The header the source must have by its XML; none of a plain one, and where none can be told.
///
/// Errors: an encryption that is not carried over.
pub fn source_header(disk: &Disk) -> Result<Option<HeaderKind>, Refusal> {
    if !disk.is_encrypted() {
        return Ok(None);
    }
    let Some(encryption) = &disk.encryption else { return Err(unknown(disk, "its format")) };
    let engine = encryption.engine.as_deref().unwrap_or("qemu");
    let format = encryption.format.as_deref().unwrap_or_default();
    match (format, engine) {
        ("luks", "qemu") => Ok(Some(HeaderKind::QemuLuks1)),
        ("luks", "librbd") => Ok(Some(HeaderKind::LibrbdLuks1)),
        ("luks2", "librbd") => Ok(Some(HeaderKind::LibrbdLuks2)),
        // Whichever of the two it is; librbd finds out when it opens the image.
        ("luks-any", "librbd") => Ok(None),
        _ => Err(unknown(disk, &format!("{format} by {engine}"))),
    }
}

fn unknown(disk: &Disk, what: &str) -> Refusal {
    Refusal::new(
        RefusalCode::EncryptionUnsupported,
        format!(
            "disk {} is encrypted with {what}, and only LUKS by QEMU or librbd is moved",
            disk.target
        ),
    )
}

/// What the destination may be encrypted with, best first; nothing for a plain one.
///
/// Errors: the disk and the request do not fit together, or the destination's pool has none of what is accepted.
pub fn schemes(
    disk: &Disk,
    wish: &EncryptionWish,
    to_rbd: bool,
) -> Result<Vec<EncryptionScheme>, Refusal> {
    let target = &disk.target;
    let refuse = |why: String| Err(Refusal::new(RefusalCode::EncryptionUnsupported, why));
    let any_passphrase = wish.source_passphrase || wish.destination_passphrase;
    match (disk.is_encrypted(), wish.decrypt) {
        (true, true) => return Ok(Vec::new()),
        (true, false) if !any_passphrase => {
            return refuse(format!(
                "disk {target} is encrypted and the request has no passphrase for the destination: \
                 a copy without encryption would write plain text"
            ));
        }
        (false, true) => {
            return refuse(format!("disk {target} is not encrypted: there is nothing to decrypt"));
        }
        (false, false) if wish.source_passphrase => {
            return refuse(format!(
                "disk {target} is not encrypted: its passphrase would open nothing; to encrypt the destination, \
                 give the passphrase as that of the destination"
            ));
        }
        (false, false) if !wish.destination_passphrase => return Ok(Vec::new()),
        (true | false, false) => {}
    }
    let (possible, by_itself): (&[_], _) = if to_rbd {
        (
            &[EncryptionScheme::Luks2Librbd, EncryptionScheme::Luks1Qemu],
            EncryptionScheme::Luks2Librbd,
        )
    } else {
        (&[EncryptionScheme::Luks1Qemu], EncryptionScheme::Luks1Qemu)
    };
    if wish.accept.is_empty() {
        return Ok(vec![by_itself]);
    }
    let found: Vec<_> =
        possible.iter().copied().filter(|scheme| wish.accept.contains(scheme)).collect();
    if found.is_empty() {
        let possible: Vec<_> = possible.iter().map(|scheme| scheme.as_str()).collect();
        return refuse(format!(
            "the request accepts none of the encryptions the destination of disk {target} can have: {}",
            possible.join(", ")
        ));
    }
    Ok(found)
}

/// The encryption of the destination and the secret for it.
///
/// Errors: none of what is accepted works here, or the passphrase is none for it.
pub fn choose(
    route: &Route,
    facts: Option<&EncryptionFacts>,
    wish: &EncryptionWish,
) -> Result<Option<PlannedEncryption>, Refusal> {
    let Some(facts) = facts else { return Ok(None) };
    let scheme = possible(route, facts)?;
    if scheme == EncryptionScheme::Luks1Qemu && !facts.passphrase_is_text {
        return Err(Refusal::new(
            RefusalCode::EncryptionUnsupported,
            "QEMU encrypts with passphrases that are UTF-8 text without NUL, and this one is none",
        ));
    }
    let of_source = route.disk.encryption.as_ref().and_then(|known| known.secret_uuid.as_deref());
    let uuid = match &facts.secret {
        Some(found) if Some(found.uuid.as_str()) == of_source => {
            return Err(Refusal::new(
                RefusalCode::DestinationExists,
                format!(
                    "libvirt has the secret {} of the source for the volume {} too: it would get the passphrase of \
                     the destination",
                    found.uuid, facts.usage
                ),
            ));
        }
        Some(found) => {
            check_secret_user(facts, &found.uuid)?;
            found.uuid.clone()
        }
        None => secret_uuid(&facts.usage),
    };
    let rekeyed = wish.destination_passphrase;
    Ok(Some(PlannedEncryption {
        scheme,
        secret_uuid: uuid,
        secret_usage: facts.usage.clone(),
        secret_reused: facts.secret.is_some(),
        rekeyed,
    }))
}

/// The secret that is there for the destination gets the new passphrase and keeps it, for its old one cannot be read
/// back. Whoever names it would find another than his volume opens with.
fn check_secret_user(facts: &EncryptionFacts, uuid: &str) -> Result<(), Refusal> {
    match &facts.secret_user {
        None => Ok(()),
        Some(user) => Err(Refusal::new(
            RefusalCode::VolumeInUse,
            format!(
                "domain {user} names the secret {uuid} that libvirt has for the volume {}: it would get another \
                 passphrase",
                facts.usage
            ),
        )),
    }
}

fn possible(route: &Route, facts: &EncryptionFacts) -> Result<EncryptionScheme, Refusal> {
    let mut why = None;
    for scheme in &route.destination.schemes {
        match (scheme, &facts.librbd) {
            (EncryptionScheme::Luks1Qemu, _) => return Ok(*scheme),
            (EncryptionScheme::Luks2Librbd, _) if facts.offline => return Ok(*scheme),
            (EncryptionScheme::Luks2Librbd, Some(LibrbdCopy::Works)) => return Ok(*scheme),
            (EncryptionScheme::Luks2Librbd, Some(LibrbdCopy::Fails(text))) => {
                why = Some(text.as_str());
            }
            (EncryptionScheme::Luks2Librbd, None) => {}
        }
    }
    Err(Refusal::new(
        RefusalCode::EncryptionUnsupported,
        format!(
            "pool {}: a running guest's disk cannot be copied into an image that librbd encrypts (LUKS2) on this host \
             ({}); where a start from an image that QEMU encrypts (LUKS1) is right too, accept it by name: luks1-qemu",
            route.destination.pool,
            why.unwrap_or("this was not tried")
        ),
    ))
}

/// How the definition of a running domain opens the source.
pub fn cipher_of(route: &Route) -> SourceCipher {
    if !route.disk.is_encrypted() {
        return SourceCipher::Plain;
    }
    let secret = route.disk.encryption.as_ref().and_then(|known| known.secret_uuid.clone());
    match (route.source.header, secret) {
        (Some(kind), Some(secret_uuid)) => SourceCipher::Header { kind, secret_uuid },
        // One of two headers, or a secret that is named by what it is for.
        _ => SourceCipher::Unknown,
    }
}

/// The destination `<disk>` with its encryption.
pub fn destination_xml(route: &Route, planned: &PlannedEncryption) -> String {
    let destination = &route.destination;
    build_encrypted_destination(
        &route.domain,
        &route.disk,
        &destination.source,
        destination.xml_format,
        &xml_encryption(planned),
    )
}

/// The same as an element of its own.
pub fn xml_encryption(planned: &PlannedEncryption) -> DestinationEncryption {
    xml_of(planned.scheme.header(), &planned.secret_uuid)
}

/// How the definition is to open a volume with this header.
pub fn xml_of(header: HeaderKind, secret_uuid: &str) -> DestinationEncryption {
    let (format, engine) = match header {
        HeaderKind::QemuLuks1 => (EncryptionFormat::Luks, EncryptionEngine::Qemu),
        HeaderKind::LibrbdLuks1 => (EncryptionFormat::Luks, EncryptionEngine::Librbd),
        HeaderKind::LibrbdLuks2 => (EncryptionFormat::Luks2, EncryptionEngine::Librbd),
    };
    DestinationEncryption { format, engine, secret_uuid: secret_uuid.to_owned() }
}

/// How the source of an offline copy is encrypted; none of a plain one.
///
/// Errors: it is encrypted and nothing opened it, or its definition could not be written again.
pub fn of_source(
    route: &Route,
    opened: Option<HeaderKind>,
    definition: bool,
) -> Result<Option<SourceEncryption>, Refusal> {
    let (source, target) = (&route.source.location, &route.target);
    if !route.disk.is_encrypted() {
        return Ok(None);
    }
    let Some(header) = opened else {
        return Err(Refusal::new(
            RefusalCode::SecretMissing,
            format!(
                "the source {source} is encrypted, and the request has no passphrase for it: while nobody uses it, \
                 it is read with its own one (--passphrase-file)"
            ),
        ));
    };
    if !definition {
        return Ok(Some(SourceEncryption { header, secret_uuid: None }));
    }
    let known = route.disk.encryption.as_ref().and_then(|known| known.secret_uuid.clone());
    match known {
        Some(uuid) => Ok(Some(SourceEncryption { header, secret_uuid: Some(uuid) })),
        None => Err(Refusal::new(
            RefusalCode::EncryptionUnsupported,
            format!(
                "the stored definition names no uuid of the secret of disk {target}, without which it could not be \
                 pointed back at {source}: name the secret by its uuid there"
            ),
        )),
    }
}

/// The header of the source, opened with the passphrase of the request, must be around exactly what the guest sees.
pub fn check_source(route: &Route, facts: Option<Bytes>, capacity: Bytes) -> Result<(), Refusal> {
    match facts {
        Some(usable) if usable != capacity => Err(Refusal::new(
            RefusalCode::SizeMismatch,
            format!(
                "disk {} has {} bytes, and the source {} holds {} behind its encryption header",
                route.target, capacity.0, route.source.location, usable.0
            ),
        )),
        _ => Ok(()),
    }
}

/// What to know beforehand of an encrypted destination; `to_rbd`: QEMU writes all of it.
pub fn warning(planned: &PlannedEncryption, to_rbd: bool, size: Bytes) -> Option<String> {
    to_rbd.then(|| {
        format!(
            "the destination is encrypted ({}) on RBD and will occupy all of its {size}, whatever the source occupies",
            planned.scheme
        )
    })
}
