//! What must be true of the world once an operation has ended, whatever happened on the way.

use std::collections::BTreeMap;

use volferry_xml::DomainXml;

use super::scene::Guest;
use super::state::State;
use super::{World, xml};
use crate::operation::{OperationView, SourceFate, State as Phase};
use crate::plan::encryption;
use crate::spec::{Identity, VolumeLocation};

impl World {
    /// Every volume of every pool, by its name in words.
    pub fn volumes(&self) -> BTreeMap<String, Identity> {
        self.with(|state| state.volumes())
    }

    /// Judges an operation that has ended. `before` is what [`Self::volumes`] said when it was accepted.
    ///
    /// Errors: the first rule that is broken, in words.
    pub fn audit(
        &self,
        guest: &Guest,
        view: &OperationView,
        before: &BTreeMap<String, Identity>,
    ) -> Result<(), String> {
        self.with(|state| {
            no_job(state, guest)?;
            secrets(state, guest, view)?;
            match view.state {
                Phase::Succeeded => succeeded(state, guest, view, before),
                Phase::Failed | Phase::Cancelled => rolled_back(state, guest, before),
                Phase::NeedsOperator => both_kept(state, view),
                other => Err(format!("{other} is no end")),
            }
        })
    }
}

impl State {
    fn volumes(&self) -> BTreeMap<String, Identity> {
        let mut all = BTreeMap::new();
        for cluster in &self.clusters {
            for (pool, content) in &cluster.pools {
                for (name, image) in &content.images {
                    let id = Identity::Rbd { image_id: image.id.clone() };
                    all.insert(format!("rbd:{pool}/{name}"), id);
                }
            }
        }
        for path in self.files.keys() {
            if let Some(identity) = self.file_identity(path) {
                all.insert(path.display().to_string(), identity);
            }
        }
        all
    }
}

fn rule(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}

fn no_job(state: &State, guest: &Guest) -> Result<(), String> {
    let domain = state.domains.get(&guest.uuid);
    let job = domain.and_then(|domain| domain.disk("vda")).and_then(|disk| disk.job.as_ref());
    rule(job.is_none(), || "a block job is left".to_owned())?;
    let mirror = domain.is_some_and(|domain| domain.live_xml.contains("<mirror"));
    rule(!mirror, || "the live XML still has a mirror".to_owned())
}

/// The current volume opens with the secret the domain names, and nothing else of the operation is left in libvirt.
fn secrets(state: &State, guest: &Guest, view: &OperationView) -> Result<(), String> {
    let domain = state.domains.get(&guest.uuid);
    let texts = domain.iter().flat_map(|domain| {
        std::iter::once(domain.live_xml.as_str()).chain(domain.inactive_xml.as_deref())
    });
    let mut named = Vec::new();
    for text in texts {
        let Ok(parsed) = DomainXml::parse(text) else { continue };
        let Ok(disk) = parsed.find_disk("vda") else { continue };
        let place = xml::volume(state, &disk.source, None);
        let volume = place.and_then(|place| state.volume(&place));
        let header = volume.and_then(|volume| volume.header);
        let uuid = disk.encryption.as_ref().and_then(|known| known.secret_uuid.clone());
        let value = uuid.as_ref().and_then(|uuid| state.volume_secrets.get(uuid)?.value.clone());
        rule(value == header.map(|header| header.passphrase), || {
            format!("the secret of {} does not open it", disk.source.describe())
        })?;
        named.extend(uuid);
    }
    if view.state == Phase::NeedsOperator {
        return Ok(());
    }
    let mark = encryption::mark(&view.spec.operation);
    let orphan = state.volume_secrets.iter().find(|(uuid, secret)| {
        secret.description.as_deref() == Some(mark.as_str())
            && domain.is_some()
            && !named.contains(uuid)
    });
    rule(orphan.is_none(), || format!("a secret is left: {orphan:?}"))
}

/// QEMU, the live XML and the stored XML all name this volume.
fn current(state: &State, guest: &Guest, place: &VolumeLocation) -> Result<(), String> {
    let Some(domain) = state.domains.get(&guest.uuid) else { return Ok(()) };
    if let Some(disk) = domain.disk("vda") {
        let used = &disk.node.volume;
        rule(used == place || used.to_string() == place.to_string(), || {
            format!("QEMU uses {used} and not {place}")
        })?;
        rule(names(state, &domain.live_xml, place), || format!("the live XML is not on {place}"))?;
    }
    let stored = domain.inactive_xml.as_deref();
    rule(stored.is_none_or(|stored| names(state, stored, place)), || {
        format!("the stored XML is not on {place}: {}", stored.unwrap_or_default())
    })
}

fn names(state: &State, text: &str, place: &VolumeLocation) -> bool {
    let Ok(domain) = DomainXml::parse(text) else { return false };
    domain
        .find_disk("vda")
        .ok()
        .and_then(|disk| xml::volume(state, &disk.source, None))
        .is_some_and(|volume| volume.to_string() == place.to_string())
}

fn succeeded(
    state: &State,
    guest: &Guest,
    view: &OperationView,
    before: &BTreeMap<String, Identity>,
) -> Result<(), String> {
    let result = view.result.as_ref().ok_or("succeeded without a result")?;
    current(state, guest, &view.destination)?;
    let mut expected = before.clone();
    let source = expected.remove(&guest.volume.to_string());
    expected.insert(view.destination.to_string(), result.identity.clone());
    match &result.source {
        SourceFate::Removed | SourceFate::AlreadyGone => {}
        SourceFate::Trashed { location: VolumeLocation::Rbd { address, .. }, identity, .. } => {
            let Identity::Rbd { image_id } = identity else {
                return Err(format!("{identity} is no image"));
            };
            let kept = state.pool(address).is_ok_and(|pool| pool.trash.contains_key(image_id));
            rule(kept, || format!("{image_id} is not in the trash"))?;
        }
        SourceFate::Trashed { location, identity, .. } => {
            expected.insert(location.to_string(), identity.clone());
        }
        SourceFate::Kept { location } | SourceFate::LeftBehind { location, .. } => {
            let identity = source.ok_or("there was no source")?;
            expected.insert(location.to_string(), identity);
        }
    }
    same(&state.volumes(), &expected)
}

fn rolled_back(
    state: &State,
    guest: &Guest,
    before: &BTreeMap<String, Identity>,
) -> Result<(), String> {
    current(state, guest, &guest.volume)?;
    same(&state.volumes(), before)
}

fn same(
    found: &BTreeMap<String, Identity>,
    expected: &BTreeMap<String, Identity>,
) -> Result<(), String> {
    rule(found == expected, || format!("volumes {found:#?}\ninstead of {expected:#?}"))
}

fn both_kept(state: &State, view: &OperationView) -> Result<(), String> {
    for place in [&view.source, &view.destination] {
        rule(state.volume(place).is_some(), || format!("{place} is gone"))?;
    }
    Ok(())
}
