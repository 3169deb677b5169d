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
            never_stopped(state, guest)?;
            one_end(view)?;
            unmarked(state, view)?;
            independent(state, view)?;
            match view.state {
                Phase::Succeeded => succeeded(state, guest, view, before),
                Phase::Failed | Phase::Cancelled => rolled_back(state, guest, before),
                Phase::NeedsOperator => undecided(state, guest, view, before),
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

/// Unless somebody else stopped it, the guest still runs in the QEMU it had at first.
fn never_stopped(state: &State, guest: &Guest) -> Result<(), String> {
    if state.stopped.contains(&guest.uuid) {
        return Ok(());
    }
    let run = state.domains.get(&guest.uuid).and_then(|domain| domain.qemu.as_ref());
    let first = state.first_runs.get(&guest.uuid);
    rule(run.map(|qemu| &qemu.run) == first, || "the guest was stopped".to_owned())
}

/// A volume that is nobody's destination any more carries no mark; one that stays does, for as long as it stays.
fn unmarked(state: &State, view: &OperationView) -> Result<(), String> {
    let kept = view.state == Phase::NeedsOperator;
    for mark in state.marks.values().filter(|mark| mark.operation == view.spec.operation) {
        let there = state.volumes().values().any(|identity| *identity == mark.identity);
        rule(kept || there && view.state != Phase::Succeeded, || format!("{mark:?} is left"))?;
    }
    Ok(())
}

/// Nothing is left of a clone: neither the snapshot it was made from nor what it shares; unless the result says so.
fn independent(state: &State, view: &OperationView) -> Result<(), String> {
    if view.result.as_ref().is_some_and(|result| result.depends_on.is_some()) {
        return Ok(());
    }
    let own = view.spec.operation.private_volume_name();
    if view.state == Phase::NeedsOperator {
        return Ok(());
    }
    let pools = state.clusters.iter().flat_map(|cluster| cluster.pools.values());
    for (name, image) in pools.flat_map(|pool| &pool.images) {
        rule(!image.snapshots.contains(&own), || format!("{name} still has the snapshot {own}"))?;
        let shares = image.parent.as_ref().is_some_and(|parent| parent.snapshot == own);
        rule(!shares, || format!("{name} still depends on the snapshot {own}"))?;
    }
    Ok(())
}

/// There is one end, and it is the last state.
fn one_end(view: &OperationView) -> Result<(), String> {
    let ends = view.phases.iter().filter(|phase| phase.state.is_final()).count();
    let last = view.phases.last().map(|phase| phase.state);
    rule(ends == 1 && last == Some(view.state), || {
        format!("{ends} ends, the last state {last:?} and the state {}", view.state)
    })
}

/// Every write that was acknowledged to the guest is on this volume.
fn complete(state: &State, guest: &Guest, place: &VolumeLocation) -> Result<(), String> {
    let volume = state.volume(place).ok_or_else(|| format!("{place} is gone"))?;
    let (held, last) = (state.content(&volume.identity), state.acknowledged(&guest.uuid));
    rule(held >= last, || format!("{place} holds write {held}, and {last} was acknowledged"))
}

/// QEMU, the live XML and the stored XML all name this volume, and it holds every write.
fn current(state: &State, guest: &Guest, place: &VolumeLocation) -> Result<(), String> {
    complete(state, guest, place)?;
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

/// Both volumes are kept and nothing else was made; one of them holds every write; what QEMU uses is what is stored.
fn undecided(
    state: &State,
    guest: &Guest,
    view: &OperationView,
    before: &BTreeMap<String, Identity>,
) -> Result<(), String> {
    let places = [&view.source, &view.destination];
    for place in places {
        rule(state.volume(place).is_some(), || format!("{place} is gone"))?;
    }
    let mut found = state.volumes();
    found.remove(&view.destination.to_string());
    same(&found, before)?;
    let whole: Vec<String> =
        places.into_iter().filter_map(|place| complete(state, guest, place).err()).collect();
    rule(whole.len() < 2, || whole.join("; "))?;
    let failure = view.failure.as_ref().map(ToString::to_string).unwrap_or_default();
    for place in places {
        rule(failure.contains(&place.to_string()), || format!("{place} is not named: {failure}"))?;
    }
    let Some(domain) = state.domains.get(&guest.uuid) else { return Ok(()) };
    let (Some(disk), Some(stored)) = (domain.disk("vda"), &domain.inactive_xml) else {
        return Ok(());
    };
    let used = &disk.node.volume;
    let ours = places.into_iter().any(|place| place.to_string() == used.to_string());
    rule(!ours || names(state, stored, used), || format!("QEMU uses {used}; stored is {stored}"))
}
