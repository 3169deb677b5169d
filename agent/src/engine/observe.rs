//! One look at the world for one request: the only reads that decide anything. Errors of the world become refusals
//! here, each with its code.

mod encryption;
mod offline;

use super::context::Context;
use super::users::other_user;
use crate::facts::{ClusterIds, DestinationFacts, HostFacts, SourceFacts, WorldFacts};
use crate::operation::RetryClass;
use crate::plan::complete::check_state;
use crate::plan::offline::check_stopped;
use crate::plan::route::{self, Request};
use crate::plan::{
    self, Plan, Refusal, RefusalCode, Route, access, being_made, complete, lone_volume, policy,
    request_pool,
};
use crate::ports::{DomainObservation, DomainState, ErrorClass, PortError, Ports};
use crate::spec::{
    Bytes, DiskReference, DiskTarget, DomainReference, DomainUuid, MigrateSpec, Passphrases, Pool,
    PoolName, RbdPoolAddress, Subject, VolumeLocation,
};

/// What a request is about, found.
#[derive(Debug, Clone)]
pub struct Located {
    /// The domain; none of a volume alone.
    pub domain: Option<DomainObservation>,
    /// The disk.
    pub target: DiskTarget,
    /// The volume, where that is known so early.
    pub source: Option<VolumeLocation>,
}

impl Located {
    /// The domain's uuid, or the one that stands for none.
    pub fn uuid(&self) -> DomainUuid {
        self.domain.as_ref().map_or_else(DomainUuid::none, |domain| domain.uuid.clone())
    }

    /// Whether nobody is to use the volume while it is moved.
    pub fn is_offline(&self) -> bool {
        self.domain.as_ref().is_none_or(|domain| domain.state != DomainState::Running)
    }

    /// What is moved, in words.
    pub fn words(&self) -> String {
        match (&self.domain, &self.source) {
            (Some(domain), _) => format!("disk {} of domain {}", self.target, domain.name),
            (None, Some(source)) => format!("volume {source}"),
            (None, None) => "the volume".to_owned(),
        }
    }
}

/// Finds what a request is about. Who works on that disk decides before anything about the disk itself: an operation
/// of ours shows as a block job there.
///
/// Errors: a refusal; nothing was changed.
pub async fn locate(context: &Context, spec: &MigrateSpec) -> Result<Located, Refusal> {
    match &spec.subject {
        Subject::Disk { domain, .. } => locate_disk(context, spec, domain).await,
        Subject::Volume { volume_pool, volume_name, .. } => {
            let source = lone_volume::location(&context.host(), volume_pool, volume_name)?;
            Ok(Located { domain: None, target: DiskTarget::of_volume(), source: Some(source) })
        }
    }
}

/// Finds what an accepted operation is about once more.
///
/// Errors: the domain is not there any more, or not in the state it was accepted in.
pub async fn locate_again(context: &Context, plan: &Plan) -> Result<Located, Refusal> {
    if plan.domain.is_none() {
        return locate(context, &plan.spec).await;
    }
    let reference = plan.domain.clone().into();
    let found = domain(&context.ports, &reference).await?;
    match plan.is_offline() {
        true => check_stopped(&found.name, found.state, found.persistent)?,
        false => check_state(&found.name, found.state)?,
    }
    locate_disk(context, &plan.spec, &reference).await
}

async fn locate_disk(
    context: &Context,
    spec: &MigrateSpec,
    reference: &DomainReference,
) -> Result<Located, Refusal> {
    let Subject::Disk { disk, .. } = &spec.subject else {
        return Err(Refusal::new(RefusalCode::DiskNotFound, "a volume is no disk of a domain"));
    };
    let domain = domain(&context.ports, reference).await?;
    let stopped = domain.state == DomainState::ShutOff && domain.persistent;
    if spec.live || !stopped {
        check_state(&domain.name, domain.state)?;
    }
    let target = route::find_target(&domain.live_xml, disk)?;
    let source = route::find_source(&context.host(), &domain.live_xml, disk);
    Ok(Located { domain: Some(domain), target, source })
}

/// Looks, decides, and writes the plan.
///
/// Errors: a refusal; nothing was changed.
pub async fn plan(
    context: &Context,
    spec: &MigrateSpec,
    passphrases: &Passphrases,
    located: &Located,
) -> Result<Plan, Refusal> {
    let host = context.host();
    let offline = located.is_offline();
    let (xml, disk) = match (&spec.subject, &located.domain, &located.source) {
        (Subject::Disk { disk, .. }, Some(domain), _) => (domain.live_xml.clone(), disk.clone()),
        (Subject::Volume { volume_format, volume_encryption, .. }, _, Some(source)) => {
            let (said, wish) = (*volume_encryption, &spec.encryption);
            let header = lone_volume::header(source, *volume_format, said, wish)?;
            let disk = DiskReference::from(located.target.clone());
            (lone_volume::xml(source, *volume_format, header)?, disk)
        }
        _ => return Err(Refusal::new(RefusalCode::DiskNotFound, "there is nothing to be moved")),
    };
    let request = Request {
        disk: &disk,
        to: &spec.to,
        destination_volume: spec.destination_volume.as_ref(),
        write_blocking: spec.write_blocking,
        offline,
        encryption: &spec.encryption,
    };
    policy::check_method(spec.method)?;
    let brought = request_pool::of(&host, spec)?;
    let mut others = match &brought {
        Some(pool) => vec![pool.clone()],
        None => Vec::from_iter(pool_of_libvirt(context, &spec.to).await?),
    };
    if route::source_lies_in_no_pool(&host, &xml, request.disk) {
        let active = context.ports.pools.active().await;
        others.extend(active.map_err(|error| host_trouble(&error))?);
    }
    let mut route = route::choose_among(&host, &others, &xml, &request)?;
    route.destination.of_libvirt &= brought.is_none();
    let destination = &route.destination.location;
    if let Some(other) = context.registry.maker_of(&spec.operation, destination) {
        return Err(being_made(destination, &other));
    }
    if offline {
        let named = located.domain.as_ref().map(|domain| (domain.name.as_str(), &domain.uuid));
        let (mut world, mut seen) = offline::look(context, located, &route).await?;
        check_brought(&host, spec, &world.destination)?;
        encryption::look_offline(context, &route, spec, passphrases, &mut world, &mut seen).await?;
        world.promised = context.turns.needed_by_others(&spec.operation, destination);
        return plan::offline::complete(spec, named, &host, &route, &world, &seen);
    }
    let Some(domain) = &located.domain else {
        return Err(Refusal::new(RefusalCode::DomainNotFound, "there is no domain"));
    };
    let mut world = world(&context.ports, domain, &route).await?;
    check_brought(&host, spec, &world.destination)?;
    world.promised = context.turns.needed_by_others(&spec.operation, destination);
    (world.encryption, world.source_usable) =
        encryption::look(context, &route, spec, passphrases).await?;
    complete(spec, &domain.name, &domain.uuid, &route, &world, &host.limits.reserve)
}

/// A folder the request brought along must lie where it may, whatever links lead there.
fn check_brought(
    host: &HostFacts,
    spec: &MigrateSpec,
    seen: &DestinationFacts,
) -> Result<(), Refusal> {
    match seen {
        DestinationFacts::File { access: Some(access), .. } => {
            request_pool::check_place(host, spec, access)
        }
        DestinationFacts::File { access: None, .. } | DestinationFacts::Rbd { .. } => Ok(()),
    }
}

/// The active pool of libvirt a name means where the configuration has none of it.
async fn pool_of_libvirt(context: &Context, name: &PoolName) -> Result<Option<Pool>, Refusal> {
    if context.host().pools.iter().any(|pool| pool.name == *name) {
        return Ok(None);
    }
    context.ports.pools.find(name).await.map_err(|error| {
        let code = match error.class {
            ErrorClass::Unsupported => RefusalCode::HostUnsupported,
            ErrorClass::NotFound => RefusalCode::SecretMissing,
            ErrorClass::PermissionDenied => RefusalCode::NotAllowed,
            _ => RefusalCode::PoolUnavailable,
        };
        Refusal::new(code, format!("pool {name} is not in the configuration: {error}"))
    })
}

/// Finds the domain.
pub async fn domain(
    ports: &Ports,
    reference: &DomainReference,
) -> Result<DomainObservation, Refusal> {
    let found = ports.domains.observe(reference).await.map_err(|error| match error.class {
        ErrorClass::NotFound => Refusal::new(
            RefusalCode::DomainNotFound,
            format!("there is no domain {reference} on this host"),
        ),
        _ => host_trouble(&error),
    })?;
    if reference.as_uuid().is_some() {
        check_unambiguous(ports, reference, &found).await?;
    }
    Ok(found)
}

/// libvirt lets a domain be called by another one's uuid; guessing which is meant would move the wrong disk.
async fn check_unambiguous(
    ports: &Ports,
    reference: &DomainReference,
    found: &DomainObservation,
) -> Result<(), Refusal> {
    let all = ports.domains.list().await.map_err(|error| host_trouble(&error))?;
    let namesake =
        all.iter().find(|other| other.name == reference.as_str() && other.uuid != found.uuid);
    let Some(other) = namesake else { return Ok(()) };
    Err(Refusal::new(
        RefusalCode::DomainNotFound,
        format!(
            "domain {reference} is ambiguous: it is the uuid of {} and the name of the domain with uuid {}",
            found.name, other.uuid
        ),
    ))
}

/// libvirt or QEMU did not answer as it should.
pub(super) fn host_trouble(error: &PortError) -> Refusal {
    match error.class {
        ErrorClass::Unsupported => Refusal::new(RefusalCode::HostUnsupported, error.to_string()),
        ErrorClass::PermissionDenied => Refusal::new(RefusalCode::NotAllowed, error.to_string()),
        _ => Refusal::new(
            RefusalCode::Busy,
            format!("the host does not answer as it should; try again later: {error}"),
        ),
    }
}

async fn world(
    ports: &Ports,
    domain: &DomainObservation,
    route: &Route,
) -> Result<WorldFacts, Refusal> {
    let (qemu, source, destination, other_user) = tokio::join!(
        // One after the other: two calls are never outstanding for one domain.
        async {
            let block = ports.domains.block_info(&domain.uuid, &route.target).await?;
            let devices = ports.domains.qemu_devices(&domain.uuid).await?;
            let run = ports.domains.run_of(&domain.uuid).await?;
            Ok::<_, PortError>((block, devices, run))
        },
        source(ports, route),
        destination(ports, route),
        other_user(ports, Some(&domain.uuid), |image| image.may_be(&route.source.named)),
    );
    let (block, qemu, run) = qemu.map_err(|error| host_trouble(&error))?;
    Ok(WorldFacts {
        state: domain.state,
        run,
        persistent: domain.persistent,
        inactive_xml: domain.inactive_xml.clone(),
        snapshots: domain.snapshots.clone(),
        block,
        qemu,
        source: source?,
        destination: destination?,
        clusters: clusters(ports, route).await?,
        promised: Bytes(0),
        other_user: other_user.map_err(|error| host_trouble(&error))?,
        encryption: None,
        source_usable: None,
    })
}

/// The clusters of a move between images. Asked last: connections are made by then.
async fn clusters(ports: &Ports, route: &Route) -> Result<Option<ClusterIds>, Refusal> {
    let (
        VolumeLocation::Rbd { address: source, .. },
        VolumeLocation::Rbd { address: destination, .. },
    ) = (&route.source.location, &route.destination.location)
    else {
        return Ok(None);
    };
    let from = |error| pool_trouble("the source's pool", &error, Kind::Rbd);
    let to = |error| pool_trouble(&format!("pool {}", route.destination.pool), &error, Kind::Rbd);
    Ok(Some(ClusterIds {
        source: ports.images.fsid(source).await.map_err(from)?,
        destination: ports.images.fsid(destination).await.map_err(to)?,
    }))
}

async fn source(ports: &Ports, route: &Route) -> Result<Option<SourceFacts>, Refusal> {
    match &route.source.location {
        VolumeLocation::Rbd { address, image } => {
            match ports.images.observe(address, image).await {
                Ok(image) => Ok(image.map(SourceFacts::Image)),
                Err(error) => Err(source_trouble(ports, address, &error).await),
            }
        }
        VolumeLocation::File { path } => {
            match ports.files.observe(path, route.source.format).await {
                Ok(file) => Ok(file.map(SourceFacts::File)),
                // A folder, a pipe: no trouble of the pool's or of the host's.
                Err(error) if error.class == ErrorClass::Unsupported => Err(Refusal::new(
                    RefusalCode::UnsupportedSource,
                    format!("the source {} is no volume: {}", path.display(), error.message),
                )),
                Err(error) => Err(pool_trouble("the source's pool", &error, Kind::File)),
            }
        }
    }
}

async fn destination(ports: &Ports, route: &Route) -> Result<DestinationFacts, Refusal> {
    let pool = format!("pool {}", route.destination.pool);
    match &route.destination.location {
        VolumeLocation::Rbd { address, image } => {
            let trouble = |error| pool_trouble(&pool, &error, Kind::Rbd);
            let secret_exists = match &address.secret_uuid {
                Some(uuid) => {
                    ports.domains.secret_exists(uuid).await.map_err(|error| host_trouble(&error))?
                }
                None => address.user.is_none(),
            };
            if !secret_exists {
                return Err(Refusal::new(
                    RefusalCode::SecretMissing,
                    format!(
                        "{pool}: QEMU needs a libvirt secret with the key of its Ceph user, and there is none \
                         of the uuid in the configuration"
                    ),
                ));
            }
            ports.images.prepare(address).await.map_err(trouble)?;
            let existing = ports.images.image_id(address, image).await.map_err(trouble)?;
            let space = ports.images.space(address).await.map_err(trouble)?;
            Ok(DestinationFacts::Rbd { existing, space, secret_exists })
        }
        VolumeLocation::File { path } => {
            let trouble = |error| pool_trouble(&pool, &error, Kind::File);
            let (place, must_be_mounted) = match &route.destination.folder {
                Some(folder) => (folder.path.as_path(), folder.must_be_mounted),
                None => (path.as_path(), false),
            };
            let folder = ports.files.folder(place).await.map_err(trouble)?;
            let access = if folder.mounted || !must_be_mounted {
                let user = access::qemu_user(&route.domain);
                let seen = ports.files.access(place, user).await;
                Some(seen.map_err(|error| folder_trouble(&pool, &error))?)
            } else {
                None
            };
            let existing = ports.files.identity(path).await.map_err(trouble)?;
            Ok(DestinationFacts::File { existing, folder, access })
        }
    }
}

/// The agent itself may not make files there as QEMU needs them.
fn folder_trouble(pool: &str, error: &PortError) -> Refusal {
    let refusal = pool_trouble(pool, error, Kind::File);
    if refusal.code != RefusalCode::PermissionDenied {
        return refusal;
    }
    let hint = "the agent must be able to create files there and to give them to QEMU's user: \
                export it with no_root_squash, and look for a read-only mount";
    Refusal::new(refusal.code, format!("{}; {hint}", refusal.message))
}

/// The agent's own way to the source: a secret that is missing is told from a pool that is.
async fn source_trouble(ports: &Ports, address: &RbdPoolAddress, error: &PortError) -> Refusal {
    if error.class == ErrorClass::NotFound
        && let Some(uuid) = address.secret_uuid.as_deref().filter(|_| address.key_file.is_none())
        && matches!(ports.domains.secret_exists(uuid).await, Ok(false))
    {
        return Refusal::new(
            RefusalCode::SecretMissing,
            format!(
                "the source's pool: libvirt has no secret {uuid} with the key of its Ceph user ({error})"
            ),
        );
    }
    pool_trouble("the source's pool", error, Kind::Rbd)
}

enum Kind {
    Rbd,
    File,
}

fn pool_trouble(pool: &str, error: &PortError, kind: Kind) -> Refusal {
    let code = match (error.class, kind) {
        (ErrorClass::PermissionDenied, Kind::Rbd) => RefusalCode::PoolAuthFailed,
        (ErrorClass::PermissionDenied, Kind::File) => RefusalCode::PermissionDenied,
        (ErrorClass::NoSpace, _) => RefusalCode::NoSpace,
        (ErrorClass::Unsupported, _) => RefusalCode::HostUnsupported,
        _ => RefusalCode::PoolUnavailable,
    };
    let hint = match code.retry() {
        RetryClass::Later => " (try again when it is back)",
        _ => "",
    };
    Refusal::new(code, format!("{pool}: {error}{hint}"))
}
