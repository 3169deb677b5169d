//! What an encrypted move needs to know: the secret libvirt has, what librbd can do here, and whether the passphrase
//! opens the source.

use super::{Kind, host_trouble, pool_trouble};
use crate::engine::context::Context;
use crate::engine::probe::librbd_copy;
use crate::engine::steps::volumes;
use crate::facts::EncryptionFacts;
use crate::plan::{Refusal, RefusalCode, Route};
use crate::ports::{ErrorClass, PortError};
use crate::spec::{Bytes, EncryptionScheme, MigrateSpec, Passphrase, Passphrases, VolumeLocation};

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
    // A request that is planned again after a restart has lost its passphrase, and never comes this far.
    let passphrase_is_text = passphrases.for_destination().is_none_or(Passphrase::is_text);
    let usage = usage(context, route).await?;
    let found = context.ports.secrets.find(&usage).await;
    let secret = found.map_err(|error| host_trouble(&error))?;
    // Whatever bears this operation's mark is its own, from an earlier try.
    let mark = crate::plan::encryption::mark(&spec.operation);
    let secret = secret.filter(|found| found.description.as_deref() != Some(mark.as_str()));
    let librbd = match (&route.destination.location, route.destination.schemes.first()) {
        (VolumeLocation::Rbd { address, .. }, Some(EncryptionScheme::Luks2Librbd)) => {
            Some(librbd_copy(context, address).await)
        }
        _ => None,
    };
    Ok((Some(EncryptionFacts { usage, secret, passphrase_is_text, librbd }), usable))
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
                "the live XML says how the source {location} of disk {target} is encrypted, and its header says \
                 otherwise: {error}"
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
