//! Setting the stage: the little that behaviours need besides the ports, and what they all ask through them.

use std::path::Path;
use std::time::Duration;

use rbdutils::monitors::MonitorList;
use tokio::sync::broadcast::Receiver;
use volferry_agent::plan::qemu_view;
use volferry_agent::ports::{
    CopyRequest, DomainObservation, ErrorClass, EventKind, JobEnd, PortError, Ports, TimedEvent,
};
use volferry_agent::spec::{
    Bytes, BytesPerSecond, CopyFlag, CopyFlags, DiskTarget, DomainReference, DomainUuid, Identity,
    RbdPoolAddress, VolumeFormat, VolumeLocation,
};

/// Slow enough that no copy of a stage is done before it is looked at.
pub const SLOW: u64 = 1 << 20;

/// A kind of volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Rbd,
    File,
}

/// A running domain with the disk `vda`.
#[derive(Debug, Clone)]
pub struct Guest {
    pub uuid: DomainUuid,
    pub name: String,
    pub volume: VolumeLocation,
}

/// What is done to the world without the ports.
pub trait Stage: Send + Sync {
    fn ports(&self) -> &Ports;
    /// The size of every guest's disk.
    fn size(&self) -> u64;
    /// A running domain whose disk has some content.
    fn guest(&self, kind: Kind, persistent: bool) -> Guest;
    /// A free name, in another pool than the guests' where there is one.
    fn place(&self, kind: Kind) -> VolumeLocation;
    /// Ends a guest in order.
    fn destroy(&self, guest: &Guest);
    /// Kills a guest's QEMU.
    fn kill(&self, guest: &Guest);
    /// Removes a file behind everybody's back.
    fn unlink(&self, path: &Path);
    /// Takes an image away from under its name, open or not.
    fn trash(&self, volume: &VolumeLocation);
    /// Gives an image a snapshot.
    fn snapshot(&self, volume: &VolumeLocation, name: &str);
    /// An address of the stage's cluster nobody listens at.
    fn nobody_listens(&self) -> String;
}

pub fn vda() -> DiskTarget {
    DiskTarget::new("vda").expect("a plain target")
}

pub fn image(volume: &VolumeLocation) -> (RbdPoolAddress, String) {
    match volume {
        VolumeLocation::Rbd { address, image } => (address.clone(), image.clone()),
        VolumeLocation::File { .. } => panic!("{volume} is an image"),
    }
}

pub fn path(volume: &VolumeLocation) -> &Path {
    match volume {
        VolumeLocation::File { path } => path,
        VolumeLocation::Rbd { .. } => panic!("{volume} is a file"),
    }
}

/// The destination as libvirt is told of it.
fn destination_xml(volume: &VolumeLocation) -> String {
    let (kind, format, source) = match volume {
        VolumeLocation::File { path } => {
            ("file", "qcow2", format!("<source file='{}'/>", path.display()))
        }
        VolumeLocation::Rbd { address, image } => {
            let monitors = MonitorList::parse(&address.monitors, 0).expect("the stage's monitors");
            let hosts = monitors.to_libvirt_hosts().expect("plain monitors");
            let hosts: String = hosts
                .iter()
                .map(|host| {
                    format!("<host name='{}' port='{}'/>", host.name, host.port.unwrap_or(0))
                })
                .collect();
            let user = address.user.as_deref().expect("the stage's user");
            let secret = address.secret_uuid.as_deref().expect("the stage's secret");
            let name = address.image_path(image);
            let source = format!(
                "<source protocol='rbd' name='{name}'>{hosts}<auth username='{user}'>\
                 <secret type='ceph' uuid='{secret}'/></auth></source>"
            );
            ("network", "raw", source)
        }
    };
    format!(
        "<disk type='{kind}'><driver name='qemu' type='{format}'/>{source}<target dev='vda'/></disk>"
    )
}

/// A request to copy the guest's disk there, with the flags every copy has.
pub fn copy(guest: &Guest, to: &VolumeLocation) -> CopyRequest {
    CopyRequest {
        domain: guest.uuid.clone(),
        target: vda(),
        destination_xml: destination_xml(to),
        flags: CopyFlags::from([CopyFlag::ReuseExt, CopyFlag::TransientJob]),
        bandwidth: None,
    }
}

/// The same, slowly.
pub fn slow_copy(guest: &Guest, to: &VolumeLocation) -> CopyRequest {
    CopyRequest { bandwidth: BytesPerSecond::new(SLOW).ok(), ..copy(guest, to) }
}

/// Makes a volume through the ports.
pub async fn make(
    stage: &dyn Stage,
    at: &VolumeLocation,
    size: u64,
) -> Result<Identity, PortError> {
    match at {
        VolumeLocation::Rbd { address, image } => {
            let made = stage.ports().images.create(address, image, Bytes(size)).await;
            made.map(|image_id| Identity::Rbd { image_id })
        }
        VolumeLocation::File { path } => {
            stage.ports().files.create(path, VolumeFormat::Qcow2, Bytes(size), None).await
        }
    }
}

/// A free name with a volume of the disk's size.
pub async fn made(stage: &dyn Stage, kind: Kind) -> VolumeLocation {
    let place = stage.place(kind);
    make(stage, &place, stage.size()).await.expect("a free name");
    place
}

pub async fn observe(stage: &dyn Stage, guest: &Guest) -> DomainObservation {
    let reference = DomainReference::from(guest.uuid.clone());
    stage.ports().domains.observe(&reference).await.expect("the domain is there")
}

/// Whether QEMU itself says that the disk is on this volume.
pub async fn qemu_uses(stage: &dyn Stage, guest: &Guest, volume: &VolumeLocation) -> bool {
    let devices = stage.ports().domains.qemu_devices(&guest.uuid).await.expect("QEMU answers");
    let device = qemu_view::device(&devices, "virtio-disk0").expect("the disk's device");
    qemu_view::uses(device, volume).expect("words that are understood")
}

/// QEMU and both XMLs are on this volume and know of no copy.
pub async fn is_on(stage: &dyn Stage, guest: &Guest, volume: &VolumeLocation) {
    assert!(qemu_uses(stage, guest, volume).await, "QEMU is not on {volume}");
    let seen = observe(stage, guest).await;
    for xml in [Some(seen.live_xml), seen.inactive_xml].into_iter().flatten() {
        assert!(xml.contains(&volume.name()) && !xml.contains("<mirror"), "{volume}: {xml}");
    }
}

/// Starts a copy and waits until it is ready.
pub async fn ready(stage: &dyn Stage, guest: &Guest, to: &VolumeLocation) -> Receiver<TimedEvent> {
    let mut events = stage.ports().events.subscribe();
    stage.ports().jobs.start_copy(&copy(guest, to)).await.expect("the copy starts");
    assert_eq!(next(&mut events, guest).await, EventKind::JobReady);
    events
}

/// The next event of this guest. Events of its disk name the disk.
pub async fn next(events: &mut Receiver<TimedEvent>, guest: &Guest) -> EventKind {
    let find = async {
        loop {
            let event = events.recv().await.expect("the source of events lives").event;
            if event.domain.as_ref() == Some(&guest.uuid) {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(Duration::from_secs(60), find).await.expect("an event");
    let of_disk = !matches!(event.kind, EventKind::DomainStopped { .. });
    assert_eq!(event.target, of_disk.then(vda), "{event:?}");
    event.kind
}

/// QEMU's words about the job, with their error, then libvirt's.
pub async fn ended(
    events: &mut Receiver<TimedEvent>,
    guest: &Guest,
    words: Option<&str>,
    end: JobEnd,
) {
    let kind = next(events, guest).await;
    let EventKind::QemuJobCompleted { device, error } = kind else {
        panic!("QEMU's words come first: {kind:?}");
    };
    assert!(device.starts_with("copy-vda-libvirt-"), "{device}");
    assert_eq!(error.as_deref(), words);
    assert_eq!(next(events, guest).await, EventKind::JobEnded(end));
}

#[track_caller]
pub fn class<T: std::fmt::Debug>(answer: Result<T, PortError>, class: ErrorClass) {
    let error = answer.expect_err("it is refused");
    assert_eq!(error.class, class, "{error}");
}
