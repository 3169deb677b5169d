//! Rules of the programmable world that only virtual time can show: pools that fill up and guests that write for
//! hours. Everything that the real ones can be asked for too is in `contract`.

use std::time::Duration;

use volferry_agent::fake::Scene;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::scene::{DISK_SIZE, Guest, Home};
use volferry_agent::ports::{CopyRequest, ErrorClass, Ports};
use volferry_agent::spec::{Bytes, CopyFlag, CopyFlags, DiskTarget, VolumeFormat, VolumeLocation};

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

    async fn live_xml(&self) -> String {
        let seen = self.ports.domains.observe(&self.guest.uuid.clone().into()).await;
        seen.expect("the domain").live_xml
    }
}

const PATH: &str = "/srv/smp-1/copy.qcow2";

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
