//! What an encrypted move needs to know: the secret libvirt has, what librbd can do here, and whether the passphrase
//! opens the source.

use super::{Kind, host_trouble, pool_trouble};
use crate::engine::context::Context;
use crate::engine::probe::librbd_copy;
use crate::engine::steps::volumes;
use crate::engine::users;
use crate::facts::{EncryptionFacts, OfflineFacts, SourceFacts, WorldFacts};
use crate::plan::{Refusal, RefusalCode, Route};
use crate::ports::{ErrorClass, PortError};
use crate::spec::{
    Bytes, EncryptionScheme, HeaderKind, MigrateSpec, Passphrase, Passphrases, Subject,
    VolumeLocation,
};

/// Looks at the destination's side, where it is to be encrypted, and at the source's, where a passphrase came for it.
///
/// Errors: the passphrase does not open the source, its header contradicts the XML, or the host does not answer.
pub(super) async fn look(
    context: &Context,
    route: &Route,
    spec: &MigrateSpec,
    passphrases: &Passphrases,
) -> Result<(Option<EncryptionFacts>, Option<Bytes>), Refusal> {
    let usable = match &passphrases.source {
        Some(passphrase) => open_source(context, route, passphrase).await?,
        None => None,
    };
    if route.destination.schemes.is_empty() {
        return Ok((None, usable));
    }
    let librbd = match (&route.destination.location, route.destination.schemes.first()) {
        (VolumeLocation::Rbd { address, .. }, Some(EncryptionScheme::Luks2Librbd)) => {
            Some(librbd_copy(context, address).await)
        }
        _ => None,
    };
    let facts = EncryptionFacts { librbd, ..facts(context, route, spec, passphrases).await? };
    Ok((Some(facts), usable))
}

/// The same for a volume that nobody uses: its source is read with its passphrase, whatever the destination is to be.
///
/// Errors: the same.
pub(super) async fn look_offline(
    context: &Context,
    route: &Route,
    spec: &MigrateSpec,
    passphrases: &Passphrases,
    world: &mut WorldFacts,
    seen: &mut OfflineFacts,
) -> Result<(), Refusal> {
    // What is not there, or names a file of another pool, is refused without being opened.
    let readable = match &world.source {
        Some(SourceFacts::File(file)) => {
            file.header.as_ref().is_none_or(|header| !header.has_data_file)
        }
        Some(SourceFacts::Image(_)) => true,
        None => false,
    };
    if let (true, Some(passphrase)) = (readable && route.disk.is_encrypted(), &passphrases.source) {
        let (header, usable) = open_any(context, route, passphrase).await?;
        seen.source_header = Some(header);
        world.source_usable = Some(usable);
        world.block.capacity = usable;
    }
    if !route.destination.schemes.is_empty() {
        let facts = facts(context, route, spec, passphrases).await?;
        let secret = facts.secret.filter(|_| located_in_libvirt(spec));
        world.encryption = Some(EncryptionFacts { offline: true, secret, ..facts });
    }
    Ok(())
}

/// Whether a definition names the volume, and with it a secret of libvirt's.
fn located_in_libvirt(spec: &MigrateSpec) -> bool {
    matches!(spec.subject, Subject::Disk { .. })
}

/// What is to be known of an encrypted destination, the block copy apart.
async fn facts(
    context: &Context,
    route: &Route,
    spec: &MigrateSpec,
    passphrases: &Passphrases,
) -> Result<EncryptionFacts, Refusal> {
    // A request that is planned again after a restart has lost its passphrase, and never comes this far.
    let passphrase_is_text = passphrases.for_destination().is_none_or(Passphrase::is_text);
    let usage = usage(context, route).await?;
    let found = context.ports.secrets.find(&usage).await;
    let secret = found.map_err(|error| host_trouble(&error))?;
    // Whatever bears this operation's mark is its own, from an earlier try.
    let mark = crate::plan::encryption::mark(&spec.operation);
    let secret = secret.filter(|found| found.description.as_deref() != Some(mark.as_str()));
    let secret_user = match &secret {
        Some(found) => {
            let user = users::naming_secret(&context.ports, &found.uuid).await;
            user.map_err(|error| host_trouble(&error))?
        }
        None => None,
    };
    Ok(EncryptionFacts {
        usage,
        secret,
        secret_user,
        passphrase_is_text,
        offline: false,
        librbd: None,
    })
}

/// The volume as its secret names it: the path, or the image with the id of its cluster.
async fn usage(context: &Context, route: &Route) -> Result<String, Refusal> {
    match &route.destination.location {
        VolumeLocation::File { path } => Ok(path.display().to_string()),
        VolumeLocation::Rbd { address, image } => {
            let fsid = context.ports.images.fsid(address).await.map_err(|error| {
                pool_trouble(&format!("pool {}", route.destination.pool), &error, Kind::Rbd)
            })?;
            Ok(format!("{fsid}/{}", address.image_path(image)))
        }
    }
}

/// What the source holds behind its header; none where the XML does not say which header it has.
async fn open_source(
    context: &Context,
    route: &Route,
    passphrase: &Passphrase,
) -> Result<Option<Bytes>, Refusal> {
    let source = &route.source;
    let Some(header) = source.header else { return Ok(None) };
    let opened = volumes::open_encrypted(
        &context.ports,
        &source.location,
        source.format,
        header,
        passphrase,
    );
    match opened.await {
        Ok(usable) => Ok(Some(usable)),
        Err(error) => Err(refusal(route, &error)),
    }
}

/// Opens the source by the header it is said to have, or by whichever of librbd's it has where only that is said.
async fn open_any(
    context: &Context,
    route: &Route,
    passphrase: &Passphrase,
) -> Result<(HeaderKind, Bytes), Refusal> {
    let source = &route.source;
    let librbds = [HeaderKind::LibrbdLuks2, HeaderKind::LibrbdLuks1];
    let mut candidates = source.header.as_ref().map_or(&librbds[..], std::slice::from_ref).iter();
    loop {
        let Some(header) = candidates.next() else {
            let text = format!("the source {} has no encryption header", source.location);
            return Err(Refusal::new(RefusalCode::StateMismatch, text));
        };
        let (location, format) = (&source.location, source.format);
        let opened =
            volumes::open_encrypted(&context.ports, location, format, *header, passphrase).await;
        match opened {
            Ok(usable) => return Ok((*header, usable)),
            Err(error) if error.class == ErrorClass::NoHeader && candidates.len() > 0 => {}
            Err(error) => return Err(refusal(route, &error)),
        }
    }
}

fn refusal(route: &Route, error: &PortError) -> Refusal {
    let (target, location) = (&route.target, &route.source.location);
    match error.class {
        ErrorClass::WrongPassphrase => Refusal::new(
            RefusalCode::WrongPassphrase,
            format!("the passphrase does not open the source {location} of disk {target}"),
        ),
        ErrorClass::NoHeader => Refusal::new(
            RefusalCode::StateMismatch,
            format!(
                "it is said how the source {location} of disk {target} is encrypted, and its header says otherwise: \
                 {error}"
            ),
        ),
        _ => {
            let kind = match location {
                VolumeLocation::Rbd { .. } => Kind::Rbd,
                VolumeLocation::File { .. } => Kind::File,
            };
            pool_trouble("the source's pool", error, kind)
        }
    }
}
