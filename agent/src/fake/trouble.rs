//! What goes wrong with the moves of one domain's disks, again and again: each trouble leads to one way an operation
//! can end. `volferryd --fake` offers them by name; what they stand for is in docs/fake.md.
//!
//! A trouble watches the world as an outsider: it strikes when a copy is half done, or what is called names the domain.

use std::time::Duration;

use serde::Deserialize;

use super::World;
use super::faults::{Fault, Method};
use super::scene::put;
use super::state::State;
use crate::ports::ErrorClass;
use crate::spec::{DomainUuid, Identity, VolumeLocation};

/// Between two looks at how far a copy is. Copies progress with time, and nobody reports that.
const LOOK: Duration = Duration::from_millis(20);
/// A client of another host.
const STRANGER: &str = "192.0.2.99:0/7";

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trouble {
    /// The destination is full when half is copied.
    DestinationFull,
    /// The destination fails a write.
    DestinationWriteError,
    /// The source fails a read.
    SourceReadError,
    /// QEMU finds that the images differ in size.
    SizeMismatch,
    /// Somebody puts another volume in the destination's place.
    DestinationReplaced,
    /// The block job fails and nobody says why.
    JobLost,
    /// Somebody else ends the block job.
    JobStolen,
    /// The guest shuts down.
    GuestGone,
    /// The guest writes as quickly as can be copied: only a deadline or a cancel ends it.
    NeverConverges,
    /// libvirt is never there to start the copy: only a deadline or a cancel ends it.
    LibvirtGone,
    /// The destination's pool takes no writes and gives no error, when half is copied.
    PoolStalled,
    /// QEMU cannot switch to the copy.
    PivotFailed,
    /// QEMU dies within the pivot, both volumes differ, and nothing proves anything: an operator has to decide.
    Undecided,
    /// The move succeeds, and its source cannot be removed.
    SourceStays,
    /// A stopped domain is started while its volume is copied.
    VolumeInUse,
    /// Somebody writes to a stopped domain's volume while it is copied.
    VerifyMismatch,
}

impl Trouble {
    /// Every trouble.
    pub const ALL: [Self; 16] = [
        Self::DestinationFull,
        Self::DestinationWriteError,
        Self::SourceReadError,
        Self::SizeMismatch,
        Self::DestinationReplaced,
        Self::JobLost,
        Self::JobStolen,
        Self::GuestGone,
        Self::NeverConverges,
        Self::LibvirtGone,
        Self::PoolStalled,
        Self::PivotFailed,
        Self::Undecided,
        Self::SourceStays,
        Self::VolumeInUse,
        Self::VerifyMismatch,
    ];
}

/// Whose moves go wrong, and how.
#[derive(Debug)]
pub(super) struct Troubled {
    pub uuid: DomainUuid,
    /// The volumes of its disks as they were at first.
    pub volumes: Vec<VolumeLocation>,
    pub trouble: Trouble,
    /// For how many copies; without a number for every one.
    pub times: Option<u32>,
}

/// A copy of one of the domain's disks that runs.
struct Running {
    /// Tells it from every other.
    number: u64,
    target: String,
    source: VolumeLocation,
    destination: VolumeLocation,
    half_done: bool,
}

/// Lets it go wrong until the world ends, or so often as it is to.
pub(super) async fn cause(world: World, troubled: Troubled) {
    let Troubled { uuid, trouble, .. } = &troubled;
    let mut left = troubled.times;
    let mut struck = None;
    before(&world, &troubled);
    while left != Some(0) {
        tokio::time::sleep(LOOK).await;
        let running = match trouble {
            Trouble::VolumeInUse | Trouble::VerifyMismatch => offline(&world, &troubled.volumes),
            _ => live(&world, uuid),
        };
        let Some(running) = running.filter(|running| struck != Some(running.number)) else {
            continue;
        };
        if strike(&world, uuid, *trouble, &running) {
            struck = Some(running.number);
            left = left.map(|left| left.saturating_sub(1));
        }
    }
}

/// What is wrong before any copy runs.
fn before(world: &World, troubled: &Troubled) {
    if troubled.trouble == Trouble::LibvirtGone {
        let (name, text) = (troubled.uuid.as_str(), "libvirt is away");
        world.refuse_naming(Method::StartCopy, name, ErrorClass::Unavailable, text);
    }
}

/// Lets it go wrong if the time has come.
fn strike(world: &World, uuid: &DomainUuid, trouble: Trouble, running: &Running) -> bool {
    let target = running.target.as_str();
    let fails = |operation, text: &str| {
        world.with(|state| state.fail_job(uuid, target, operation, text));
    };
    match trouble {
        // Right when it begins: what is half done may be done the next moment.
        Trouble::SizeMismatch => fails(None, "Source and target image have different sizes"),
        Trouble::NeverConverges => world.with(|state| never_converges(state, uuid, target)),
        Trouble::PivotFailed => {
            let (uuid, target) = (uuid.clone(), target.to_owned());
            let name = uuid.to_string();
            let fails = move |world: &World| {
                let text = "Input/output error";
                world.with(|state| state.fail_job(&uuid, &target, Some("write"), text));
            };
            world.fault_naming(Method::Pivot, &name, Fault::Do(Box::new(fails)));
        }
        Trouble::Undecided => undecided(world, uuid, &running.source),
        Trouble::SourceStays => source_stays(world, &running.source),
        Trouble::LibvirtGone => return false,
        _ if !running.half_done => return false,
        Trouble::DestinationFull => fails(Some("write"), "No space left on device"),
        Trouble::DestinationWriteError => fails(Some("write"), "Input/output error"),
        Trouble::SourceReadError => fails(Some("read"), "Input/output error"),
        Trouble::JobLost => fails(None, "Input/output error"),
        Trouble::JobStolen => {
            // Whoever was quicker has ended it.
            let _ = world.with(|state| state.abort_job(uuid, target, "end the block job"));
        }
        Trouble::GuestGone => world.shut_down(uuid),
        Trouble::DestinationReplaced => {
            world.with(|state| put(state, &running.destination, 1 << 20, 0));
        }
        Trouble::PoolStalled => world.with(|state| stall(state, &running.destination)),
        Trouble::VolumeInUse => world.with(|state| state.start_again(uuid)),
        Trouble::VerifyMismatch => world.with(|state| {
            if let Some(source) = state.volume(&running.source) {
                state.scribble(&source.identity);
            }
        }),
    }
    true
}

fn never_converges(state: &mut State, uuid: &DomainUuid, target: &str) {
    let disk = state.domains.get_mut(uuid).and_then(|domain| domain.disk_mut(target));
    if let Some(disk) = disk {
        disk.pace.dirty = disk.pace.copy;
    }
}

/// A pool of Ceph says nothing when it is full; a file system does.
fn stall(state: &mut State, place: &VolumeLocation) {
    if let VolumeLocation::Rbd { address, .. } = place
        && let Ok(pool) = state.pool_mut(address)
    {
        pool.full = true;
    }
}

fn undecided(world: &World, uuid: &DomainUuid, source: &VolumeLocation) {
    let name = uuid.to_string();
    let (uuid, source) = (uuid.clone(), source.clone());
    let dies = move |world: &World| {
        world.with(|state| {
            if let Some(source) = state.volume(&source) {
                state.scribble(&source.identity);
            }
        });
        world.kill_qemu(&uuid);
    };
    let text = "Unable to read from monitor: Connection reset by peer";
    world.fault_naming(Method::Pivot, &name, Fault::Do(Box::new(dies)));
    world.fault_naming(Method::Pivot, &name, Fault::Refuse(ErrorClass::NoAnswer, text));
}

fn source_stays(world: &World, source: &VolumeLocation) {
    match source {
        VolumeLocation::Rbd { address, image } => world.with(|state| {
            let pool = state.pool_mut(address).ok();
            if let Some(image) = pool.and_then(|pool| pool.images.get_mut(image)) {
                image.watchers.push(STRANGER.to_owned());
            }
        }),
        VolumeLocation::File { path } => {
            let (name, text) = (path.display().to_string(), "Read-only file system");
            let refused = Fault::Refuse(ErrorClass::PermissionDenied, text);
            world.fault_naming(Method::RemoveFile, &name, refused);
        }
    }
}

/// The copy of a running domain's disk.
fn live(world: &World, uuid: &DomainUuid) -> Option<Running> {
    world.quietly(|state| {
        state.advance_jobs();
        let domain = state.domains.get(uuid)?;
        let mut disks = domain.qemu.iter().flat_map(|qemu| qemu.disks.iter());
        let (target, disk, job) =
            disks.find_map(|(target, disk)| Some((target, disk, disk.job.as_ref()?)))?;
        Some(Running {
            number: job.number,
            target: target.clone(),
            source: disk.node.volume.clone(),
            destination: job.destination.volume.clone(),
            half_done: job.ready || job.copied >= job.remaining,
        })
    })
}

/// The copy of a volume that no domain runs on.
fn offline(world: &World, volumes: &[VolumeLocation]) -> Option<Running> {
    world.quietly(|state| {
        let of = |identity: &Identity| {
            volumes.iter().find(|volume| {
                state.volume(volume).is_some_and(|found| found.identity == *identity)
            })
        };
        state.copies.iter().find_map(|copy| {
            let source = of(&copy.from)?.clone();
            Some(Running {
                number: copy.number,
                target: String::new(),
                destination: source.clone(),
                source,
                half_done: true,
            })
        })
    })
}
