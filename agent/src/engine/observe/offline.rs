//! One look at the world for a volume that nobody is to use while it is moved.

use std::path::{Path, PathBuf};

use super::{Located, clusters, destination, host_trouble, pool_trouble, source};
use crate::engine::context::Context;
use crate::engine::observe::Kind;
use crate::engine::users::{self, open_by};
use crate::facts::{Layer, OfflineFacts, SourceFacts, WorldFacts};
use crate::plan::source::Named;
use crate::plan::{Refusal, Route};
use crate::ports::{
    BlockInfo, DomainState, ErrorClass, FileObservation, ImageHeader, PortError, Ports, Snapshots,
};
use crate::spec::{Bytes, DomainUuid, VolumeFormat, VolumeLocation};

/// Longer chains are not built by anybody; the bound ends a circle.
const LONGEST_CHAIN: usize = 64;

/// Looks.
pub(super) async fn look(
    context: &Context,
    located: &Located,
    route: &Route,
) -> Result<(WorldFacts, OfflineFacts), Refusal> {
    let ports = &context.ports;
    let domain = located.domain.as_ref();
    let own = domain.map(|domain| &domain.uuid);
    let place = &route.source.location;
    let (seen, destination, other_user, users) = tokio::join!(
        source(ports, route),
        destination(ports, route),
        other_user(ports, own, route),
        open_by(ports, place, 0),
    );
    let source = seen?;
    let users = match users {
        Ok(users) => users,
        // It was told by the look at the source that nothing is there.
        Err(error) if error.class == ErrorClass::NotFound => vec![],
        Err(error) => return Err(pool_trouble("the source's pool", &error, kind(place))),
    };
    let layers = match (&source, place) {
        (Some(SourceFacts::File(file)), VolumeLocation::File { path }) => {
            let layers = layers(ports, path, file.header.as_ref()).await;
            layers.map_err(|error| pool_trouble("the source's pool", &error, Kind::File))?
        }
        _ => vec![],
    };
    let block = sizes(ports, route, source.as_ref()).await;
    let block = block.map_err(|error| pool_trouble("the source's pool", &error, kind(place)))?;
    let world = WorldFacts {
        state: DomainState::ShutOff,
        run: String::new(),
        persistent: domain.is_some_and(|domain| domain.persistent),
        inactive_xml: domain.and_then(|domain| domain.inactive_xml.clone()),
        snapshots: domain.map_or_else(Snapshots::default, |domain| domain.snapshots.clone()),
        block,
        qemu: vec![],
        source,
        destination: destination?,
        clusters: clusters(ports, route).await?,
        other_user: other_user.map_err(|error| host_trouble(&error))?,
        promised: Bytes(0),
        encryption: None,
        source_usable: None,
    };
    let managed_save = domain.is_some_and(|domain| domain.managed_save);
    Ok((world, OfflineFacts { users, managed_save, layers, source_header: None }))
}

/// Another domain with the source as a disk or below one. Only a file is looked for in the headers of files.
async fn other_user(
    ports: &Ports,
    own: Option<&DomainUuid>,
    route: &Route,
) -> Result<Option<String>, PortError> {
    let is_it = |image: &Named| image.may_be(&route.source.named);
    match &route.source.location {
        VolumeLocation::Rbd { .. } => users::other_user(ports, own, is_it).await,
        VolumeLocation::File { .. } => users::other_user_by_headers(ports, own, is_it).await,
    }
}

fn kind(volume: &VolumeLocation) -> Kind {
    match volume {
        VolumeLocation::Rbd { .. } => Kind::Rbd,
        VolumeLocation::File { .. } => Kind::File,
    }
}

/// What a guest would see, and what it occupies; nothing of a volume that is not there.
async fn sizes(
    ports: &Ports,
    route: &Route,
    source: Option<&SourceFacts>,
) -> Result<BlockInfo, PortError> {
    let (capacity, allocation) = match (source, &route.source.location) {
        (Some(SourceFacts::Image(image)), VolumeLocation::Rbd { address, image: name }) => {
            (image.size, ports.images.allocated(address, name).await?)
        }
        (Some(SourceFacts::File(file)), _) => (capacity(file, route.source.format), file.allocated),
        _ => (Bytes(0), Bytes(0)),
    };
    Ok(BlockInfo { capacity, allocation, physical: allocation })
}

fn capacity(file: &FileObservation, format: VolumeFormat) -> Bytes {
    match (format, &file.header) {
        (VolumeFormat::Qcow2, Some(header)) => header.virtual_size,
        _ => file.length,
    }
}

/// The chain of backing files as their headers name them.
async fn layers(
    ports: &Ports,
    top: &Path,
    header: Option<&ImageHeader>,
) -> Result<Vec<Layer>, PortError> {
    let mut layers: Vec<Layer> = Vec::new();
    let mut above = top.to_owned();
    let mut backing = header.and_then(|header| header.backing.clone());
    while let Some(name) = backing.take() {
        let path = backing_path(&above, &name.name);
        let format = if name.format.as_deref() == Some("qcow2") {
            VolumeFormat::Qcow2
        } else {
            VolumeFormat::Raw
        };
        let header = match &path {
            Some(path) => ports.files.observe(path, format).await?.and_then(|file| file.header),
            None => None,
        };
        backing = header.as_ref().and_then(|header| header.backing.clone());
        above = path.clone().unwrap_or(above);
        layers.push(Layer { path, name: name.name, format: name.format, header });
        if layers.len() >= LONGEST_CHAIN {
            break;
        }
    }
    Ok(layers)
}

fn backing_path(above: &Path, name: &str) -> Option<PathBuf> {
    match users::named(above, name) {
        Some(Named::File(path)) => Some(path),
        _ => None,
    }
}
