//! The images port on the real cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volferry_agent::host::HostImages;
use volferry_agent::host::images::ImageTimeouts;
use volferry_agent::ports::{BlockJobs, ErrorClass, EventKind, Events, Images};
use volferry_agent::spec::{Bytes, RbdPoolAddress};

use crate::lab::{Guest, Lab, class_is, lab, need, unique, vda, wait_kind};

const SHORT: ImageTimeouts = ImageTimeouts {
    quick: Duration::from_secs(3),
    slow: Duration::from_secs(20),
    long: Duration::from_secs(60),
    idle: Duration::from_secs(60),
};

async fn images(lab: &Lab) -> HostImages {
    HostImages::new(lab.ports().await, SHORT)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_made_renamed_and_removed_by_its_id() {
    let Some(lab) = lab("an_image_is_made").await else { return };
    let (images, pool) = (images(&lab).await, lab.rbd('A'));
    images.prepare(&pool).await.expect("the pool is there");
    let (hidden, name) = (format!(".volferry-{}", unique("op")), unique("vol"));
    assert_eq!(images.image_id(&pool, &hidden).await.expect("an answer"), None);
    assert!(images.observe(&pool, &hidden).await.expect("an answer").is_none());
    let id = images.create(&pool, &hidden, Bytes::mib(8)).await.expect("created");
    class_is(&images.create(&pool, &hidden, Bytes::mib(8)).await, ErrorClass::Exists);
    images.rename(&pool, &hidden, &name).await.expect("renamed");
    assert_eq!(images.image_id(&pool, &name).await.expect("an answer"), Some(id.clone()));
    let seen = images.observe(&pool, &name).await.expect("an answer").expect("it is there");
    assert_eq!((seen.image_id.as_str(), seen.size), (id.as_str(), Bytes::mib(8)));
    assert!(seen.snapshots.is_empty() && seen.children.is_empty());
    assert_eq!(images.allocated(&pool, &name).await.ok(), Some(Bytes(0)));

    let other = images.create(&pool, &hidden, Bytes::mib(8)).await.expect("created");
    class_is(&images.rename(&pool, &hidden, &name).await, ErrorClass::Exists);
    class_is(&images.remove(&pool, &name, &other).await, ErrorClass::Replaced);
    images.remove(&pool, &hidden, &other).await.expect("removed");
    images.remove(&pool, &name, &id).await.expect("removed");
    class_is(&images.remove(&pool, &name, &id).await, ErrorClass::NotFound);
    let space = images.space(&pool).await.expect("an answer");
    assert!(space.available.is_some_and(|available| available > Bytes::mib(100)));
    assert!(!space.full);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_look_at_an_id_is_quick() {
    let Some(lab) = lab("a_warm_look").await else { return };
    let (images, pool) = (images(&lab).await, lab.rbd('A'));
    images.prepare(&pool).await.expect("the pool is there");
    let mut delays = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        images.image_id(&pool, "nothing-of-that-name").await.expect("an answer");
        delays.push(begun.elapsed());
    }
    delays.sort();
    eprintln!("image_id: p50 {:?}, p99 {:?}", delays[99], delays[197]);
    assert!(delays[99] < Duration::from_millis(20), "{:?}", delays[99]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_may_come_from_a_libvirt_secret() {
    let Some(lab) = lab("the_key_may_come").await else { return };
    let ports = lab.ports().await;
    let images = HostImages::new(Arc::clone(&ports) as _, SHORT);
    let secret = Some(need("VOLFERRY_LAB_SECRET_UUID"));
    let pool = RbdPoolAddress { key_file: None, secret_uuid: secret, ..lab.rbd('B') };
    images.prepare(&pool).await.expect("the key opens the cluster");
    let missing = "5e0f1d8a-0000-4d5e-8f60-000000000000".to_owned();
    let pool = RbdPoolAddress { secret_uuid: Some(missing), ..pool };
    class_is(&images.prepare(&pool).await, ErrorClass::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_cluster_cannot_be_used_is_told_apart() {
    let Some(lab) = lab("why_a_cluster").await else { return };
    let images = images(&lab).await;
    let good = lab.rbd('A');
    let pool = RbdPoolAddress { pool: "no-such-pool".to_owned(), ..good.clone() };
    class_is(&images.prepare(&pool).await, ErrorClass::NotFound);
    // By the port of the older protocol the library would take the refusal for a monitor that does not answer.
    let monitors =
        format!("{}:{}", need("VOLFERRY_LAB_MON_HOST"), need("VOLFERRY_LAB_MON_PORT_V2"));
    let pool = RbdPoolAddress { user: Some("nobody".to_owned()), monitors, ..good.clone() };
    class_is(&images.prepare(&pool).await, ErrorClass::PermissionDenied);
    let pool = RbdPoolAddress { key_file: Some("/nonexistent/key".into()), ..good.clone() };
    class_is(&images.prepare(&pool).await, ErrorClass::NotFound);
    let begun = Instant::now();
    let pool = RbdPoolAddress { monitors: "127.0.0.1:1".to_owned(), ..good };
    class_is(&images.prepare(&pool).await, ErrorClass::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pivot_onto_an_image_makes_it_busy() {
    let Some(lab) = lab("a_pivot_onto_an_image").await else { return };
    let ports = lab.ports().await;
    let images = HostImages::new(Arc::clone(&ports) as _, SHORT);
    let (pool, name) = (lab.rbd('A'), unique("vol"));
    let id = images.create(&pool, &name, Bytes::mib(32)).await.expect("created");
    let guest = Guest::start(&lab.uri, 32);
    let mut events = ports.subscribe();
    ports.start_copy(&guest.copy(&rbd_xml(&pool, &name), None)).await.expect("the copy starts");
    wait_kind(&mut events, EventKind::JobReady).await;
    guest.write(20, 4);
    ports.pivot(&guest.uuid, &vda()).await.expect("the pivot succeeds");
    let seen = images.observe(&pool, &name).await.expect("an answer").expect("it is there");
    assert_eq!(seen.watchers.len(), 1);
    class_is(&images.remove(&pool, &name, &id).await, ErrorClass::Busy);
    assert_eq!(images.allocated(&pool, &name).await.ok(), Some(Bytes::mib(20)));
    drop(guest);
    let begun = Instant::now();
    while let Err(error) = images.remove(&pool, &name, &id).await {
        assert!(begun.elapsed() < Duration::from_secs(40), "{error}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_hangs_is_told_in_time() {
    let Some(lab) = lab("a_cluster_that_hangs").await else { return };
    let ports = lab.ports().await;
    let images = HostImages::new(Arc::clone(&ports) as _, SHORT);
    let (pool, name) = (lab.rbd('A'), unique("vol"));
    let id = images.create(&pool, &name, Bytes::mib(32)).await.expect("created");
    let guest = Guest::start(&lab.uri, 32);
    let mut events = ports.subscribe();
    let request = guest.copy(&rbd_xml(&pool, &name), Some(4 << 20));
    ports.start_copy(&request).await.expect("the copy starts");
    lab.ctl(&["osd-freeze"]);
    // A process of many threads takes a moment to stop.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    let look = images.image_id(&pool, &name).await;
    let waited = begun.elapsed();
    let info = ports.info(&guest.uuid, &vda()).await;
    lab.ctl(&["osd-thaw"]);
    class_is(&look, ErrorClass::NoAnswer);
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    eprintln!("  job while the cluster hangs: {info:?}");
    wait_kind(&mut events, EventKind::JobReady).await;
    ports.abort(&guest.uuid, &vda()).await.expect("the abort succeeds");
    images.remove(&pool, &name, &id).await.expect("removed");
}

fn rbd_xml(pool: &RbdPoolAddress, image: &str) -> String {
    let (host, port) = (need("VOLFERRY_LAB_MON_HOST"), need("VOLFERRY_LAB_MON_PORT"));
    let (user, secret) = (need("VOLFERRY_LAB_RBD_USER"), need("VOLFERRY_LAB_SECRET_UUID"));
    format!(
        "<disk type='network'><driver name='qemu' type='raw'/><source protocol='rbd' name='{}'>\
         <host name='{host}' port='{port}'/><auth username='{user}'>\
         <secret type='ceph' uuid='{secret}'/></auth></source></disk>",
        pool.image_path(image)
    )
}
