//! Makes the destination under a name only this operation can have, and records its identity.
//!
//! Begun before: whatever has the private name is ours by that name, and is made anew.

use super::{UndoError, begin_preparing, secret_needed, volumes};
use crate::engine::backoff::Backoff;
use crate::engine::leftovers::LeftBehind;
use crate::engine::owner::{Owner, Stop};
use crate::journal::StepOutcome;
use crate::operation::{Failure, FailureCause, LeftoverKind, Side};
use crate::plan::complete::not_mounted;
use crate::plan::{Step, StepKind, access};
use crate::ports::{ErrorClass, FileOwner, Mark, PortError, Ports};
use crate::spec::{
    Bytes, EncryptionScheme, Identity, Passphrase, Passphrases, VolumeFormat, VolumeLocation,
};

const STEP: StepKind = StepKind::CreateDestination;

/// The volume to make.
#[derive(Debug)]
pub struct NewVolume<'a> {
    /// Where, under the private name.
    pub volume: &'a VolumeLocation,
    /// The format.
    pub format: VolumeFormat,
    /// What the guest sees.
    pub size: Bytes,
    /// Owner and mode of a file.
    pub owner: Option<FileOwner>,
    /// Its folder must lie on a mount.
    pub must_be_mounted: bool,
    /// The header it is to have.
    pub encryption: Option<EncryptionScheme>,
}

impl NewVolume<'_> {
    async fn create(
        &self,
        ports: &Ports,
        header: Option<&(EncryptionScheme, Passphrase)>,
    ) -> Result<Identity, PortError> {
        match header {
            None => volumes::create(ports, self.volume, self.format, self.size, self.owner).await,
            Some((scheme, passphrase)) => {
                let (size, owner) = (self.size, self.owner);
                volumes::create_encrypted(ports, self.volume, size, owner, *scheme, passphrase)
                    .await
            }
        }
    }
}

/// Creates the volume.
pub async fn run(owner: &mut Owner, new: &NewVolume<'_>) -> Result<(), Stop> {
    let header = match new.encryption {
        None => None,
        Some(scheme) => {
            let passphrase = owner.memory.passphrases.for_destination().cloned();
            Some((scheme, passphrase.ok_or_else(secret_needed)?))
        }
    };
    begin_preparing(owner, STEP).await?;
    let ports = owner.context.ports.clone();
    prepare(&ports, new).await?;
    let mut created = new.create(&ports, header.as_ref()).await;
    if matches!(&created, Err(error) if error.class == ErrorClass::Exists) {
        // Only an earlier life of this very operation can have made it.
        remove_our_own(owner, new.volume).await?;
        created = new.create(&ports, header.as_ref()).await;
    }
    let identity = created.map_err(|error| failed(&error))?;
    check_owner(&ports, new).await?;
    if let Some((scheme, passphrase)) = &header {
        check_header(&ports, new, *scheme, passphrase).await?;
    }
    mark(owner, new.volume, &identity).await;
    owner.done(STEP, StepOutcome::Created { identity }).await?;
    if !owner.plan.is_offline() {
        // Nothing needs them any more; QEMU gets the destination's from libvirt.
        owner.memory.passphrases = Passphrases::default();
    }
    Ok(())
}

/// The header that was just made must open with the passphrase and be around exactly what the guest sees, before any
/// data is copied.
async fn check_header(
    ports: &Ports,
    new: &NewVolume<'_>,
    scheme: EncryptionScheme,
    passphrase: &Passphrase,
) -> Result<(), Stop> {
    let opened =
        volumes::open_encrypted(ports, new.volume, new.format, scheme.header(), passphrase);
    let usable = match opened.await {
        Ok(usable) => usable,
        Err(error) if error.class == ErrorClass::WrongPassphrase => {
            return Err(Stop::Failed(Failure::new(
                FailureCause::SecretNeeded,
                Side::Destination,
                format!("the new destination does not open with its own passphrase: {error}"),
            )));
        }
        Err(error) => return Err(failed(&error)),
    };
    if usable == new.size {
        return Ok(());
    }
    Err(Stop::Failed(Failure::new(
        FailureCause::SizeMismatch,
        Side::Destination,
        format!(
            "the new destination {} holds {} bytes behind its header, and the disk has {}",
            new.volume, usable.0, new.size.0
        ),
    )))
}

/// Makes the destination of this plan once more, empty, in place of what an earlier life wrote into it.
pub async fn again(owner: &mut Owner) -> Result<(), Stop> {
    let step = owner.plan.steps.iter().find(|step| step.kind() == STEP).cloned();
    let Some(Step::CreateDestination {
        volume,
        format,
        size,
        owner: user,
        must_be_mounted,
        encryption,
    }) = step
    else {
        return Ok(());
    };
    let new = NewVolume { volume: &volume, format, size, owner: user, must_be_mounted, encryption };
    // Whoever wrote there is ended, and may take a moment to be gone.
    remove_patiently(owner, &volume, None).await.map_err(|error| failed(&error))?;
    run(owner, &new).await
}

/// Leaves a mark that tells whose the volume is, should the journal be lost. The move does not depend on it.
pub(super) async fn mark(owner: &mut Owner, at: &VolumeLocation, identity: &Identity) {
    let mark = Mark {
        host: owner.context.host().host_name.clone(),
        operation: owner.id().clone(),
        volume: owner.plan.destination.clone(),
        identity: identity.clone(),
    };
    if let Err(error) = owner.context.ports.marks.set(at, &mark).await {
        tracing::warn!(operation = %owner.id(), %error, "the destination carries no mark");
    }
}

/// Connects, or looks once more whether the folder is still the pool's and not the empty one below its mount.
async fn prepare(ports: &Ports, new: &NewVolume<'_>) -> Result<(), Stop> {
    match new.volume {
        VolumeLocation::Rbd { address, .. } => {
            ports.images.prepare(address).await.map_err(|error| failed(&error))
        }
        VolumeLocation::File { path } if new.must_be_mounted => {
            let folder = path.parent().unwrap_or(path);
            let seen = ports.files.folder(folder).await.map_err(|error| failed(&error))?;
            if seen.mounted { Ok(()) } else { Err(write_error(not_mounted(new.volume))) }
        }
        VolumeLocation::File { .. } => Ok(()),
    }
}

/// Some file systems ignore what they are told of owners and modes without an error.
async fn check_owner(ports: &Ports, new: &NewVolume<'_>) -> Result<(), Stop> {
    let (VolumeLocation::File { path }, Some(user)) = (new.volume, new.owner) else {
        return Ok(());
    };
    let seen =
        ports.files.observe(path, VolumeFormat::Raw).await.map_err(|error| failed(&error))?;
    match seen.map(|file| file.owner) {
        Some(found) if !access::can_use(found, user) => Err(write_error(format!(
            "QEMU runs as {}:{} and cannot read and write the new file {}: its owner is {}:{} and its mode {:04o}, \
             whatever was asked for",
            user.uid, user.gid, new.volume, found.uid, found.gid, found.mode
        ))),
        // What is gone is noticed when it gets its name.
        Some(_) | None => Ok(()),
    }
}

fn write_error(text: String) -> Stop {
    Stop::Failed(Failure::new(FailureCause::DestinationWriteError, Side::Destination, text))
}

pub(super) fn failed(error: &PortError) -> Stop {
    let cause = match error.class {
        ErrorClass::NoSpace => FailureCause::DestinationFull,
        _ => FailureCause::DestinationWriteError,
    };
    Stop::Failed(Failure::new(cause, Side::Destination, error.to_string()))
}

/// Removes what an earlier life made under the private name. That life's own watch may keep it for half a minute.
pub(super) async fn remove_our_own(owner: &mut Owner, volume: &VolumeLocation) -> Result<(), Stop> {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        owner.check_cancel()?;
        let Err(error) = remove_once(owner, volume, None).await else { return Ok(()) };
        owner.say(Some(format!("waiting to make {volume} anew: {}", error.message)));
        if !backoff.wait().await {
            return Err(failed(&error));
        }
    }
}

/// Removes the destination under the private name, and under the final one if it is the volume that was recorded.
pub async fn undo(owner: &mut Owner, private: &VolumeLocation) -> Result<(), UndoError> {
    let public = owner.plan.destination.clone();
    let mut left = Vec::new();
    warn_of_lost_name(owner, &public);
    if let Some(identity) = owner.memory.created.clone()
        && let Err(error) = remove_patiently(owner, &public, Some(&identity)).await
    {
        let (kind, reason) = (LeftoverKind::Destination, error.to_string());
        left.push(LeftBehind { kind, location: public, reason });
    }
    if let Err(error) = remove_patiently(owner, private, None).await {
        let (kind, reason) = (LeftoverKind::Private, error.to_string());
        left.push(LeftBehind { kind, location: private.clone(), reason });
    }
    if left.is_empty() {
        volumes::unmark(&owner.context, private, &owner.plan.spec.operation).await;
        Ok(())
    } else {
        Err(UndoError::LeftBehind(left))
    }
}

/// Whoever took the name of what was made here may have put it where no name leads to.
fn warn_of_lost_name(owner: &mut Owner, public: &VolumeLocation) {
    let replaced = owner.view.failure.as_ref().map(|failure| failure.cause);
    let Some(identity) = owner.memory.created.clone() else { return };
    if replaced == Some(FailureCause::DestinationReplaced) {
        owner.warn(format!(
            "what was made as {public} ({identity}) has lost its name to somebody else: if it is in the trash of its \
             pool, it is to be removed there"
        ));
    }
}

/// Removes `volume` if it has `identity` (or whatever has a private name), waiting for users to go.
///
/// Errors: why it stays behind.
async fn remove_patiently(
    owner: &mut Owner,
    volume: &VolumeLocation,
    identity: Option<&Identity>,
) -> Result<(), PortError> {
    let tuning = owner.context.tuning;
    let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
    loop {
        let Err(error) = remove_once(owner, volume, identity).await else { return Ok(()) };
        owner.say(Some(format!("waiting to remove {volume}: {}", error.message)));
        if !backoff.wait().await {
            return Err(error);
        }
    }
}

/// One try; nothing is to be done where the volume is gone, or another one has its name.
async fn remove_once(
    owner: &Owner,
    volume: &VolumeLocation,
    identity: Option<&Identity>,
) -> Result<(), PortError> {
    let ports = &owner.context.ports;
    match volumes::identity(ports, volume).await? {
        None => Ok(()),
        // Somebody else's volume has the name by now; ours is gone or elsewhere.
        Some(found) if identity.is_some_and(|identity| *identity != found) => Ok(()),
        Some(found) => match volumes::remove(ports, volume, &found).await {
            Err(error) if error.class == ErrorClass::NotFound => Ok(()),
            removed => removed,
        },
    }
}
