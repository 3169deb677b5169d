//! The rules of libvirt, QEMU, Ceph and file systems that the programmable world obeys, seen through the ports.
//! Each was seen on the real thing; where the two differ, the world is wrong.

use std::time::Duration;

use volferry_agent::fake::Scene;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::scene::{DISK_SIZE, Guest, Home};
use volferry_agent::ports::{CopyRequest, ErrorClass, EventKind, JobEnd, Ports};
use volferry_agent::spec::{
    Bytes, CopyFlag, CopyFlags, DiskTarget, RbdPoolAddress, VolumeFormat, VolumeLocation,
};

struct Host {
    scene: Scene,
    guest: Guest,
    ports: Ports,
    target: DiskTarget,
}

fn host(home: Home, persistent: bool) -> Host {
    let scene = Scene::new();
    let guest = scene.guest("web", home, persistent);
    let ports = scene.world.ports();
    Host { scene, guest, ports, target: DiskTarget::new("vda").expect("a target") }
}

impl Host {
    /// A copy to a file, with the flags every copy has.
    fn copy(&self, path: &str) -> CopyRequest {
        CopyRequest {
            domain: self.guest.uuid.clone(),
            target: self.target.clone(),
            destination_xml: format!(
                "<disk type='file'><driver name='qemu' type='qcow2'/><source file='{path}'/>\
                 <target dev='vda'/></disk>"
            ),
            flags: CopyFlags::from([CopyFlag::ReuseExt, CopyFlag::TransientJob]),
            bandwidth: None,
        }
    }

    async fn made(&self, path: &str, size: u64) -> CopyRequest {
        let created =
            self.ports.files.create(path.as_ref(), VolumeFormat::Qcow2, Bytes(size), None);
        created.await.expect("a free name");
        self.copy(path)
    }

    async fn refused(&self, request: &CopyRequest) -> ErrorClass {
        self.ports.jobs.start_copy(request).await.expect_err("it is refused").class
    }

    async fn live_xml(&self) -> String {
        let seen = self.ports.domains.observe(&self.guest.uuid.clone().into()).await;
        seen.expect("the domain").live_xml
    }

    fn image(&self) -> (RbdPoolAddress, String) {
        match &self.guest.volume {
            VolumeLocation::Rbd { address, image } => (address.clone(), image.clone()),
            VolumeLocation::File { .. } => panic!("a guest on RBD"),
        }
    }
}

const PATH: &str = "/srv/smp-1/copy.qcow2";

#[tokio::test(start_paused = true)]
async fn a_copy_needs_a_destination_a_free_disk_and_its_flag() {
    let host = host(Home::Rbd, true);
    assert_eq!(host.refused(&host.copy(PATH)).await, ErrorClass::Other, "no destination");
    let request = host.made(PATH, DISK_SIZE).await;
    let mut without = request.clone();
    without.flags.remove(&CopyFlag::TransientJob);
    assert_eq!(host.refused(&without).await, ErrorClass::Other, "domain is not transient");
    host.ports.jobs.start_copy(&request).await.expect("a copy");
    assert_eq!(host.refused(&request).await, ErrorClass::Busy, "one job for each disk");
}

#[tokio::test(start_paused = true)]
async fn a_pivot_waits_for_ready_and_changes_both_xmls() {
    let host = host(Home::Rbd, true);
    let mut events = host.ports.events.subscribe();
    let request = host.made(PATH, DISK_SIZE).await;
    host.ports.jobs.start_copy(&request).await.expect("a copy");
    let info = host.ports.jobs.info(&host.guest.uuid, &host.target).await.expect("an answer");
    assert!(info.is_some_and(|info| info.current < info.end), "never equal before READY");
    let early = host.ports.jobs.pivot(&host.guest.uuid, &host.target).await;
    assert_eq!(early.expect_err("too early").class, ErrorClass::NotReady);
    let xml = host.live_xml().await;
    assert!(xml.contains("<mirror type='file' job='copy'>") && !xml.contains("ready="));
    let event = events.recv().await.expect("an event").event;
    assert_eq!((event.kind, event.target), (EventKind::JobReady, Some(host.target.clone())));
    assert!(host.live_xml().await.contains("job='copy' ready='yes'"));
    host.ports.jobs.pivot(&host.guest.uuid, &host.target).await.expect("a pivot");
    let seen = host.ports.domains.observe(&host.guest.uuid.clone().into()).await.expect("a domain");
    for xml in [Some(seen.live_xml), seen.inactive_xml].into_iter().flatten() {
        assert!(xml.contains(PATH) && !xml.contains("<mirror"), "{xml}");
    }
    let words = events.recv().await.expect("an event").event.kind;
    assert!(matches!(words, EventKind::QemuJobCompleted { error: None, .. }));
    let end = events.recv().await.expect("an event").event.kind;
    assert_eq!(end, EventKind::JobEnded(JobEnd::Completed));
    let devices = host.ports.domains.qemu_devices(&host.guest.uuid).await.expect("devices");
    assert_eq!(devices[0].file_name.as_deref(), Some(PATH));
}

#[tokio::test(start_paused = true)]
async fn a_destination_of_another_size_fails_the_job_a_little_later() {
    let host = host(Home::Rbd, true);
    let mut events = host.ports.events.subscribe();
    let request = host.made(PATH, DISK_SIZE - 512).await;
    host.ports.jobs.start_copy(&request).await.expect("libvirt does not look at sizes");
    let EventKind::QemuJobCompleted { device, error: Some(text) } =
        events.recv().await.expect("an event").event.kind
    else {
        panic!("QEMU's words come first")
    };
    assert!(device.starts_with("copy-vda-libvirt-"));
    assert_eq!(text, "Source and target image have different sizes");
    let end = events.recv().await.expect("an event").event.kind;
    assert_eq!(end, EventKind::JobEnded(JobEnd::Failed));
    assert!(!host.live_xml().await.contains("<mirror"));
}

#[tokio::test(start_paused = true)]
async fn a_pivot_to_a_deleted_file_succeeds() {
    let host = host(Home::Rbd, true);
    let request = host.made(PATH, DISK_SIZE).await;
    host.ports.jobs.start_copy(&request).await.expect("a copy");
    tokio::time::sleep(Duration::from_secs(60)).await;
    host.scene.world.with(|state| state.files.clear());
    host.ports.jobs.pivot(&host.guest.uuid, &host.target).await.expect("libvirt sees nothing");
    assert!(host.live_xml().await.contains(PATH));
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_with_its_guest_and_a_transient_domain_too() {
    for persistent in [true, false] {
        let host = host(Home::Rbd, persistent);
        let request = host.made(PATH, DISK_SIZE).await;
        host.ports.jobs.start_copy(&request).await.expect("a copy");
        host.scene.world.kill_qemu(&host.guest.uuid);
        let info = host.ports.jobs.info(&host.guest.uuid, &host.target).await;
        assert_eq!(info.expect_err("no domain that runs").class, ErrorClass::NotFound);
        let seen = host.ports.domains.observe(&host.guest.uuid.clone().into()).await;
        assert_eq!(seen.is_ok(), persistent);
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_in_use_can_be_renamed_and_not_removed() {
    let host = host(Home::Rbd, true);
    let (pool, image) = host.image();
    let images = &host.ports.images;
    let seen = images.observe(&pool, &image).await.expect("an answer").expect("the image");
    assert_eq!(seen.watchers.len(), 1);
    images.rename(&pool, &image, "other").await.expect("renaming an open image works");
    let busy = images.remove(&pool, "other", &seen.image_id).await;
    assert_eq!(busy.expect_err("the guest has it open").class, ErrorClass::Busy);
    host.scene.world.shut_down(&host.guest.uuid);
    let replaced = images.remove(&pool, "other", "somebody else's").await;
    assert_eq!(replaced.expect_err("another id").class, ErrorClass::Replaced);
    images.remove(&pool, "other", &seen.image_id).await.expect("nobody uses it");
    let gone = images.remove(&pool, "other", &seen.image_id).await;
    assert_eq!(gone.expect_err("it is gone").class, ErrorClass::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_full_ceph_pool_says_nothing_and_lets_everybody_wait() {
    let host = host(Home::File, true);
    let VolumeLocation::Rbd { address, image } = host.scene.place("ceph-ssd", "copy") else {
        panic!("a pool on RBD")
    };
    host.ports.images.create(&address, &image, Bytes(DISK_SIZE)).await.expect("a free name");
    let mut request = host.copy("/unused");
    request.destination_xml = "<disk type='network'><driver name='qemu' type='raw'/>\
        <source protocol='rbd' name='ssd/copy'><host name='198.51.100.21' port='6789'/></source>\
        <target dev='vda'/></disk>"
        .to_owned();
    host.ports.jobs.start_copy(&request).await.expect("a copy");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let full = |full| {
        host.scene.world.with(|state| {
            state.pool_mut(&address).expect("the pool").full = full;
        });
    };
    full(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (jobs, domain) = (&host.ports.jobs, &host.guest.uuid);
    let one = jobs.info(domain, &host.target).await.expect("an answer").expect("a job");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let other = jobs.info(domain, &host.target).await.expect("an answer").expect("a job");
    assert_eq!(one.current, other.current, "nothing moves and nothing fails");
    let hangs = jobs.abort(domain, &host.target).await;
    assert_eq!(hangs.expect_err("the abort waits too").class, ErrorClass::NoAnswer);
    full(false);
    jobs.abort(domain, &host.target).await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_writes_as_fast_as_it_is_copied_is_never_ready() {
    let host = host(Home::Rbd, true);
    let pace = Pace { copy: 32 << 20, dirty: 32 << 20, ..Pace::default() };
    host.scene.world.pace(&host.guest.uuid, "vda", pace);
    let request = host.made(PATH, DISK_SIZE).await;
    host.ports.jobs.start_copy(&request).await.expect("a copy");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let info = host.ports.jobs.info(&host.guest.uuid, &host.target).await.expect("an answer");
    let info = info.expect("a job");
    assert!(info.end.0 > 50 * DISK_SIZE && info.current < info.end, "both numbers grow: {info:?}");
    host.scene.world.pace(&host.guest.uuid, "vda", Pace { dirty: 0, ..pace });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(host.live_xml().await.contains("ready='yes'"));
}
