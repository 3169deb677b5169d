//! Destinations without an operation: the journal was lost while copies ran, or a call whose answer was lost made a
//! volume after its operation had ended. Found by private names and marks; what is somebody's is never removed.

use super::steps::start_copy::is_volume;
use super::steps::volumes;
use super::{Engine, users};
use crate::journal::JournalError;
use crate::operation::{LeftoverKind, State};
use crate::plan::source::Named;
use crate::ports::{DomainObservation, DomainState, MarkedVolume, PortError, Search};
use crate::report::chain;
use crate::spec::{
    DiskTarget, DomainUuid, FilePool, OperationId, Pool, PoolKind, PoolName, VolumeLocation,
};

/// A volume that was some operation's destination, and no operation knows it.
#[derive(Debug, Clone)]
pub struct Orphan {
    /// The pool it was found in.
    pub pool: PoolName,
    /// The volume.
    pub volume: MarkedVolume,
    /// The copy that still runs into it.
    pub job: Option<OrphanJob>,
    /// Why it is not removed as things are; none: it would be.
    pub kept: Option<String>,
}

/// A block copy without an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanJob {
    /// The domain.
    pub domain: DomainUuid,
    /// Its name.
    pub domain_name: String,
    /// The disk.
    pub target: DiskTarget,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Orphans {
    /// The orphans.
    pub found: Vec<Orphan>,
    /// Pools that could not be searched, and why.
    pub unread: Vec<(PoolName, String)>,
}

/// Why an orphan was not removed.
#[derive(Debug, thiserror::Error)]
pub enum OrphanError {
    /// Nothing of that operation was found.
    #[error("no pool has an orphan of operation {0}")]
    Unknown(OperationId),
    /// It stays.
    #[error("{volume} stays: {reason}")]
    Kept {
        /// Where it is.
        volume: VolumeLocation,
        /// Why.
        reason: String,
    },
    /// The journal could not be read.
    #[error("the operations could not be read")]
    Journal(#[from] JournalError),
}

impl Engine {
    /// Searches every pool of the configuration.
    ///
    /// Errors: the journal cannot be read, so that nothing is known to be an orphan.
    pub async fn orphans(&self) -> Result<Orphans, OrphanError> {
        let mut orphans = Orphans::default();
        let domains = self.described().await;
        for pool in &self.context.host().pools {
            let marked = match self.marked(pool, Search::Marks).await {
                Ok(marked) => marked,
                Err(why) => {
                    orphans.unread.push((pool.name.clone(), why));
                    continue;
                }
            };
            for volume in marked {
                if self.is_known(&volume.operation).await?
                    || self.has_moved_to(&volume.operation, &volume.location).await?
                {
                    continue;
                }
                let job = domains.as_deref().ok().and_then(|all| job_into(all, &volume.location));
                let kept = match &domains {
                    Ok(_) => self.kept(&volume, job.as_ref()).await,
                    Err(why) => Some(format!("whether it is in use cannot be told: {why}")),
                };
                orphans.found.push(Orphan { pool: pool.name.clone(), volume, job, kept });
            }
        }
        Ok(orphans)
    }

    /// Removes the orphans of an operation, after ending the copy that runs into them.
    ///
    /// Errors: nothing of the operation was found, or it is somebody's, or cannot be removed.
    pub async fn remove_orphan(&self, id: &OperationId) -> Result<Vec<Orphan>, OrphanError> {
        let _alone = self.context.removals.lock().await;
        let mut found = self.orphans().await?.found;
        found.retain(|orphan| orphan.volume.operation == *id);
        if found.is_empty() {
            return Err(OrphanError::Unknown(id.clone()));
        }
        for orphan in &found {
            tracing::warn!(operation = %id, volume = %orphan.volume.location, "removing an orphan");
            let removed = self.remove_found(orphan).await;
            removed.map_err(|reason| OrphanError::Kept {
                volume: orphan.volume.location.clone(),
                reason,
            })?;
        }
        Ok(found)
    }

    async fn remove_found(&self, orphan: &Orphan) -> Result<(), String> {
        let ports = &self.context.ports;
        let MarkedVolume { location, identity, operation, .. } = &orphan.volume;
        if let Some(why) = &orphan.kept {
            return Err(why.clone());
        }
        if let Some(job) = &orphan.job {
            let ended = ports.jobs.abort(&job.domain, &job.target).await;
            ended.map_err(|error| format!("its copy could not be ended: {error}"))?;
            let domains = self.described().await?;
            if job_into(&domains, location).is_some() {
                return Err("its copy still runs".to_owned());
            }
        }
        // Looked at again: a copy that was ended may have been a pivot.
        if let Some(why) = self.kept(&orphan.volume, None).await {
            return Err(why);
        }
        volumes::remove(ports, location, identity).await.map_err(|error| error.to_string())?;
        volumes::unmark(&self.context, location, operation).await;
        Ok(())
    }

    /// Removes volumes under private names of operations that ended without them. Other hosts' are left alone.
    pub(super) async fn sweep(&self) {
        for pool in &self.context.host().pools {
            // A pool that cannot be searched now is searched the next time.
            let Ok(marked) = self.marked(pool, Search::Names).await else { continue };
            for volume in marked.into_iter().filter(|volume| volume.private) {
                if !self.has_ended_without(&volume.operation).await
                    || self.is_of_another_host(pool, &volume).await
                {
                    continue;
                }
                let MarkedVolume { location, identity, operation, .. } = &volume;
                match volumes::remove(&self.context.ports, location, identity).await {
                    Ok(()) => tracing::info!(%operation, volume = %location, "swept"),
                    Err(error) => tracing::warn!(%operation, volume = %location, %error, "sweep"),
                }
            }
        }
    }

    async fn marked(&self, pool: &Pool, search: Search) -> Result<Vec<MarkedVolume>, String> {
        let told = |error: PortError| error.to_string();
        if let PoolKind::File(FilePool { path, must_be_mounted: true, .. }) = &pool.kind {
            let folder = self.context.ports.files.folder(path).await.map_err(told)?;
            if !folder.mounted {
                return Err("nothing is mounted there".to_owned());
            }
        }
        self.context.ports.marks.find(&pool.kind, search).await.map_err(told)
    }

    /// An operation that runs, is undecided, or whose leftover the volume is, has it in hand.
    async fn is_known(&self, id: &OperationId) -> Result<bool, JournalError> {
        let Some(view) = self.context.journal.view(id).await? else { return Ok(false) };
        let left = self.context.journal.leftovers().await?;
        Ok(!view.state.is_final()
            || view.state == State::NeedsOperator
            || left
                .iter()
                .any(|leftover| leftover.operation == *id && leftover.kind != LeftoverKind::Secret))
    }

    /// Whether another host's agent made it, under an id that this host's journal knows too; also when that cannot be
    /// told.
    async fn is_of_another_host(&self, pool: &Pool, volume: &MarkedVolume) -> bool {
        match self.marked(pool, Search::Marks).await {
            Ok(marked) => marked.iter().any(|other| {
                let ours = &self.context.host().host_name;
                other.location == volume.location
                    && other.host.as_ref().is_some_and(|host| host != ours)
            }),
            Err(why) => {
                tracing::warn!(volume = %volume.location, why, "not swept: its mark cannot be read");
                true
            }
        }
    }

    /// The volume is what a move led to; only its mark has stayed.
    async fn has_moved_to(
        &self,
        id: &OperationId,
        volume: &VolumeLocation,
    ) -> Result<bool, JournalError> {
        let view = self.context.journal.view(id).await?;
        let result = view.as_ref().and_then(|view| view.result.as_ref());
        Ok(result.is_some_and(|result| result.location == *volume))
    }

    async fn has_ended_without(&self, id: &OperationId) -> bool {
        match (self.context.journal.view(id).await, self.is_known(id).await) {
            (Ok(Some(_)), Ok(known)) => !known,
            (Ok(None), _) => false,
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(operation = %id, error = %chain(&error), "sweep");
                false
            }
        }
    }

    async fn described(&self) -> Result<Vec<DomainObservation>, String> {
        users::every(&self.context.ports).await.map_err(|error| error.to_string())
    }

    /// Why the volume is not removed: another host made it, or somebody uses it beside the copy into it.
    async fn kept(&self, volume: &MarkedVolume, job: Option<&OrphanJob>) -> Option<String> {
        let ours = &self.context.host().host_name;
        if let Some(host) = volume.host.as_ref().filter(|host| *host != ours) {
            return Some(format!("host {host} made it: ask there"));
        }
        match self.user(volume, job).await {
            Ok(None) => None,
            Ok(Some(user)) => Some(format!("{user} uses it")),
            Err(error) => Some(format!("whether it is in use cannot be told: {error}")),
        }
    }

    async fn user(
        &self,
        volume: &MarkedVolume,
        job: Option<&OrphanJob>,
    ) -> Result<Option<String>, PortError> {
        let ports = &self.context.ports;
        let is_it = |image: &Named| is_volume(image, &volume.location);
        let own = job.map(|job| &job.domain);
        if let Some(user) = users::other_user_by_headers(ports, own, is_it).await? {
            return Ok(Some(format!("domain {user}")));
        }
        // Both XMLs of a domain can be wrong about what its QEMU uses.
        for domain in users::every(ports).await? {
            if matches!(domain.state, DomainState::ShutOff | DomainState::Crashed) {
                continue;
            }
            let names = [volume.location.clone()];
            if users::qemu_may_use(ports, &domain.uuid, &names).await? {
                return Ok(Some(format!("domain {}", domain.name)));
            }
        }
        // Other hosts show in watchers and locks only; while our own copy runs, so does it.
        let open = match job {
            Some(_) => vec![],
            None => users::open_by(ports, &volume.location, 0).await?,
        };
        Ok((!open.is_empty()).then(|| open.join(", ")))
    }
}

/// The copy of a domain into this volume.
fn job_into(domains: &[DomainObservation], volume: &VolumeLocation) -> Option<OrphanJob> {
    domains.iter().find_map(|domain| {
        let xml = volferry_xml::DomainXml::parse(&domain.live_xml).ok()?;
        let disk = xml.disks().iter().find(|disk| {
            disk.mirror.as_ref().is_some_and(|mirror| {
                mirror.job.as_deref() == Some("copy")
                    && Named::of(&mirror.source).is_some_and(|image| is_volume(&image, volume))
            })
        })?;
        Some(OrphanJob {
            domain: domain.uuid.clone(),
            domain_name: domain.name.clone(),
            target: DiskTarget::new(&disk.target).ok()?,
        })
    })
}
