//! A QEMU that does not answer: bounded, and nobody else's trouble.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SIGCONT, SIGKILL, SIGSTOP, Signal, kill};
use nix::unistd::Pid;
use volferry_agent::libvirt::{LibvirtPorts, Timeouts};
use volferry_agent::ports::{BlockJobs, Domains, ErrorClass, EventKind, Events, JobEnd, PortError};
use volferry_agent::spec::DomainReference;

use crate::lab::{Guest, TempFile, class_is, connected, lab, vda, wait_for, wait_kind};

fn signal(guest: &Guest, signal: Signal) {
    kill(Pid::from_raw(guest.qemu_pid()), signal).expect("the lab's QEMU is ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_qemu_is_told_in_time_and_holds_up_nobody_else() {
    let Some(lab) = lab("a_hung_qemu").await else { return };
    let ports = lab.ports().await;
    let hung: Vec<Guest> = (0..6).map(|_| Guest::start(&lab.uri, 8)).collect();
    let healthy = Guest::start(&lab.uri, 8);
    hung.iter().for_each(|guest| signal(guest, SIGSTOP));

    let begun = Instant::now();
    let asked = hung.iter().map(|guest| ports.qemu_devices(&guest.uuid));
    for answer in futures::future::join_all(asked).await {
        class_is(&answer, ErrorClass::NoAnswer);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());

    // A stuck lane answers at once and says for how long.
    let begun = Instant::now();
    let again: Result<_, PortError> = ports.info(&hung[0].uuid, &vda()).await;
    class_is(&again, ErrorClass::NoAnswer);
    assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());

    let begun = Instant::now();
    ports.qemu_devices(&healthy.uuid).await.expect("the healthy one answers");
    for guest in &hung {
        let reference = DomainReference::from(guest.uuid.clone());
        ports.observe(&reference).await.expect("libvirt answers without QEMU");
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    hung.iter().for_each(|guest| signal(guest, SIGCONT));
    let begun = Instant::now();
    while ports.qemu_devices(&hung[0].uuid).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the lane is usable again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pivot_that_hangs_is_not_given_up_but_told() {
    let Some(lab) = lab("a_pivot_that_hangs").await else { return };
    let timeouts = Timeouts {
        pivot: Duration::from_secs(2),
        qemu: Duration::from_secs(2),
        idle: Duration::from_secs(1),
        ..Timeouts::default()
    };
    let ports = LibvirtPorts::connect(&lab.uri, timeouts).expect("the URI is valid");
    connected(&ports).await;
    let guest = Guest::start(&lab.uri, 8);
    let copy = TempFile::qcow2("VOLFERRY_LAB_POOL_LOCAL", 8);
    let mut events = ports.subscribe();
    ports.start_copy(&guest.copy(&copy.xml(), None)).await.expect("the copy starts");
    wait_kind(&mut events, EventKind::JobReady).await;
    // Long enough for the lane to have been closed for being idle.
    tokio::time::sleep(Duration::from_secs(2)).await;
    signal(&guest, SIGSTOP);
    class_is(&ports.pivot(&guest.uuid, &vda()).await, ErrorClass::NoAnswer);
    class_is(&ports.qemu_devices(&guest.uuid).await, ErrorClass::NoAnswer);
    signal(&guest, SIGCONT);
    // The call is still under way and takes effect.
    wait_kind(&mut events, EventKind::JobEnded(JobEnd::Completed)).await;
    let devices = ports.qemu_devices(&guest.uuid).await.expect("QEMU answers");
    assert_eq!(devices[0].file_name.as_deref(), copy.0.to_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_hangs_is_told_in_time_and_found_again() {
    let Some(lab) = lab("a_daemon_that_hangs").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 8);
    ports.info(&guest.uuid, &vda()).await.expect("QEMU answers");
    let mut events = ports.subscribe();
    let daemon = Pid::from_raw(lab.daemon_pid());
    kill(daemon, SIGSTOP).expect("the lab's daemon is ours");
    let reference = DomainReference::from(guest.uuid.clone());
    let begun = Instant::now();
    let seen = ports.observe(&reference).await;
    let info = ports.info(&guest.uuid, &vda()).await;
    let waited = begun.elapsed();
    // Keepalive gives the connection up.
    let lost = wait_for(&mut events, Duration::from_secs(40), |event| {
        event.event.kind == EventKind::ConnectionLost
    })
    .await;
    eprintln!("  lost after {:?}", lost.at.duration_since(begun));
    kill(daemon, SIGCONT).expect("the lab's daemon is ours");
    class_is(&seen, ErrorClass::NoAnswer);
    class_is(&info, ErrorClass::NoAnswer);
    assert!(waited < Duration::from_secs(9), "{waited:?}");
    connected(&ports).await;
    ports.observe(&reference).await.expect("libvirt answers again");
    let begun = Instant::now();
    while let Err(error) = ports.info(&guest.uuid, &vda()).await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A copy that is ready, and a pivot call that is on its way to a QEMU that stands still.
async fn pivot_under_way(
    ports: &Arc<LibvirtPorts>,
    guest: &Guest,
    copy: &TempFile,
) -> tokio::task::JoinHandle<Result<(), PortError>> {
    let mut events = ports.subscribe();
    ports.start_copy(&guest.copy(&copy.xml(), None)).await.expect("the copy starts");
    wait_kind(&mut events, EventKind::JobReady).await;
    signal(guest, SIGSTOP);
    let (ports, uuid) = (Arc::clone(ports), guest.uuid.clone());
    let call = tokio::spawn(async move { ports.pivot(&uuid, &vda()).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(500)).await;
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pivot_that_ends_with_qemu_leaves_the_outcome_open() {
    let Some(lab) = lab("a_pivot_that_ends_with_qemu").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 8);
    let copy = TempFile::qcow2("VOLFERRY_LAB_POOL_LOCAL", 8);
    let call = pivot_under_way(&ports, &guest, &copy).await;
    signal(&guest, SIGKILL);
    class_is(&call.await.expect("no panic"), ErrorClass::NoAnswer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pivot_that_loses_its_daemon_leaves_the_outcome_open() {
    let Some(lab) = lab("a_pivot_that_loses_its_daemon").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 8);
    let copy = TempFile::qcow2("VOLFERRY_LAB_POOL_LOCAL", 8);
    let call = pivot_under_way(&ports, &guest, &copy).await;
    lab.ctl(&["libvirtd-kill9", "main"]);
    let answer = call.await.expect("no panic");
    signal(&guest, SIGCONT);
    lab.restart_daemon();
    class_is(&answer, ErrorClass::Unavailable);
    connected(&ports).await;
    ports.qemu_devices(&guest.uuid).await.expect("QEMU answers");
}
