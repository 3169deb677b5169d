//! Copies that go as they should: ready, pivot, abort, limits, and the order in which things are refused.

use std::time::{Duration, Instant};

use volferry_agent::ports::{BlockJobs, Domains, ErrorClass, EventKind, Events, JobEnd};
use volferry_agent::spec::{Bytes, BytesPerSecond, DomainReference};

use crate::lab::{Guest, TempFile, class_is, lab, vda, wait_kind};

const LOCAL: &str = "VOLFERRY_LAB_POOL_LOCAL";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_becomes_ready_and_a_pivot_moves_the_disk() {
    let Some(lab) = lab("a_copy_becomes_ready").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 32);
    let copy = TempFile::qcow2(LOCAL, 32);
    let mut events = ports.subscribe();
    ports.start_copy(&guest.copy(&copy.xml(), None)).await.expect("the copy starts");
    let ready = wait_kind(&mut events, EventKind::JobReady).await;
    assert_eq!(ready.event.domain.as_ref(), Some(&guest.uuid));
    assert_eq!(ready.event.target, Some(vda()));
    let info = ports.info(&guest.uuid, &vda()).await.expect("QEMU answers").expect("a job");
    assert!(info.is_copy);
    assert_eq!(info.current, info.end);
    let answer = ports.pivot(&guest.uuid, &vda()).await.expect("the pivot succeeds");
    assert!(answer.called_at > ready.at);
    wait_kind(&mut events, EventKind::JobEnded(JobEnd::Completed)).await;
    let devices = ports.qemu_devices(&guest.uuid).await.expect("QEMU answers");
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].file_name.as_deref(), copy.0.to_str());
    assert_eq!(devices[0].qdev, "/machine/peripheral/virtio-disk0/virtio-backend");
    let seen =
        ports.observe(&DomainReference::from(guest.uuid.clone())).await.expect("it is there");
    for xml in [Some(&seen.live_xml), seen.inactive_xml.as_ref()] {
        assert!(xml.is_some_and(|xml| xml.contains(copy.0.to_str().unwrap_or("?"))));
    }
    assert_eq!(ports.info(&guest.uuid, &vda()).await.expect("QEMU answers"), None);
    let sizes = ports.block_info(&guest.uuid, &vda()).await.expect("QEMU answers");
    assert_eq!(sizes.capacity, Bytes::mib(32));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_at_the_wrong_time_is_refused_in_its_own_class() {
    let Some(lab) = lab("what_comes_at_the_wrong_time").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 32);
    let copy = TempFile::qcow2(LOCAL, 32);
    class_is(&ports.abort(&guest.uuid, &vda()).await, ErrorClass::NotFound);
    class_is(&ports.pivot(&guest.uuid, &vda()).await, ErrorClass::NotFound);
    class_is(&ports.set_bandwidth(&guest.uuid, &vda(), None).await, ErrorClass::NotFound);

    let request = guest.copy(&copy.xml(), Some(1 << 20));
    ports.start_copy(&request).await.expect("the copy starts");
    class_is(&ports.start_copy(&request).await, ErrorClass::Busy);
    class_is(&ports.pivot(&guest.uuid, &vda()).await, ErrorClass::NotReady);
    let limit = |job: Option<volferry_agent::ports::JobInfo>| job.and_then(|job| job.bandwidth);
    let info = ports.info(&guest.uuid, &vda()).await.expect("QEMU answers");
    assert_eq!(limit(info).map(BytesPerSecond::get), Some(1 << 20));
    let faster = BytesPerSecond::new(3 << 20).ok();
    ports.set_bandwidth(&guest.uuid, &vda(), faster).await.expect("the limit changes");
    let info = ports.info(&guest.uuid, &vda()).await.expect("QEMU answers");
    assert_eq!(limit(info), faster);
    ports.set_bandwidth(&guest.uuid, &vda(), None).await.expect("the limit is lifted");
    assert_eq!(limit(ports.info(&guest.uuid, &vda()).await.expect("QEMU answers")), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_returns_when_the_job_has_ended() {
    let Some(lab) = lab("an_abort_returns").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 32);
    let copy = TempFile::qcow2(LOCAL, 32);
    let mut events = ports.subscribe();
    ports.start_copy(&guest.copy(&copy.xml(), Some(1 << 20))).await.expect("the copy starts");
    ports.abort(&guest.uuid, &vda()).await.expect("the abort succeeds");
    assert_eq!(ports.info(&guest.uuid, &vda()).await.expect("QEMU answers"), None);
    wait_kind(&mut events, EventKind::JobEnded(JobEnd::Cancelled)).await;
    let devices = ports.qemu_devices(&guest.uuid).await.expect("QEMU answers");
    assert_eq!(devices[0].file_name.as_deref(), guest.disk.to_str());
}

/// A figure, no bound: READY callback entered to pivot call, without the engine's own work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_ready_to_the_pivot_call() {
    let Some(lab) = lab("from_ready_to_the_pivot_call").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 8);
    let mut delays = Vec::new();
    for _ in 0..50 {
        let copy = TempFile::qcow2(LOCAL, 8);
        let mut events = ports.subscribe();
        ports.start_copy(&guest.copy(&copy.xml(), None)).await.expect("the copy starts");
        let ready = wait_kind(&mut events, EventKind::JobReady).await;
        let answer = ports.pivot(&guest.uuid, &vda()).await.expect("the pivot succeeds");
        delays.push(answer.called_at.duration_since(ready.at));
    }
    delays.sort();
    let at = |share: usize| delays[(delays.len() - 1) * share / 100];
    eprintln!("READY to pivot call: p50 {:?}, p90 {:?}, max {:?}", at(50), at(90), at(100));
    assert!(at(50) < Duration::from_millis(20), "the lane was not warm: {:?}", at(50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_is_gone_has_no_job() {
    let Some(lab) = lab("a_guest_that_is_gone").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 8);
    let mut events = ports.subscribe();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(guest.qemu_pid()), nix::sys::signal::SIGKILL)
        .expect("the lab's QEMU is ours");
    wait_kind(&mut events, EventKind::DomainStopped { reason: "failed" }).await;
    let begun = Instant::now();
    let asked = [
        ports.info(&guest.uuid, &vda()).await.map(drop),
        ports.abort(&guest.uuid, &vda()).await,
        ports.pivot(&guest.uuid, &vda()).await.map(drop),
        ports.qemu_devices(&guest.uuid).await.map(drop),
        ports.start_copy(&guest.copy("<disk type='file'><source file='/x'/></disk>", None)).await,
    ];
    for answer in &asked {
        eprintln!("  {answer:?}");
        assert!(answer.is_err());
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
}
